package engineclient

import (
	"slices"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// stateFrom reads the engine's message. Modes of a later version count as ERR: a replica that
// cannot be understood is not trusted.
func stateFrom(s *enginev1.State) State {
	c := s.GetCounters()
	out := State{
		Volume: s.GetVolumeName(), Engine: s.GetInstanceName(), SizeBytes: s.GetSize(),
		Frontend: s.GetFrontend(), FrontendUp: s.GetFrontendState() == "up", Endpoint: s.GetEndpoint(),
		DeviceID:  s.GetDeviceId(),
		Suspended: s.GetSuspended(), SuspendedReason: s.GetSuspendedReason(),
		Epoch: s.GetEpoch(), Generation: s.GetGeneration(),
		Expanding: s.GetExpanding(), LastExpansionError: s.GetLastExpansionError(),
		LastExpansionFailedAt: s.GetLastExpansionFailedAt(), Options: optionsFrom(s.GetOptions()),
		Backups: backupsFrom(s.GetBackups()), Restore: restoreFrom(s),
		Clone: cloneFrom(s.GetClone()), UpgradePause: time.Duration(s.GetUpgradePauseNanos()),
		Counters: Counters{
			Reads: c.GetReads(), Writes: c.GetWrites(), ReadBytes: c.GetReadBytes(), WriteBytes: c.GetWriteBytes(),
			Flushes: c.GetFlushes(), Discards: c.GetDiscards(),
		},
	}
	for _, r := range s.GetReplicas() {
		mode := modeFrom(r.GetMode())
		if mode == ModePending && r.GetRebuild().GetRunning() {
			mode = ModeWO
		}
		out.Replicas = append(out.Replicas, Replica{
			Address: plain(r.GetAddress()), Member: r.GetMember(), Mode: mode, Error: r.GetError(),
			Lost: r.GetLost(), Rebuild: rebuildFrom(r.GetRebuild()), Purge: purgeFrom(r.GetPurge()),
		})
	}
	if len(s.GetSnapshots()) > 0 {
		out.Snapshots = make(map[string]Snapshot, len(s.GetSnapshots()))
	}
	for name, p := range s.GetSnapshots() {
		out.Snapshots[name] = snapshotFrom(p)
	}
	return out
}

func modeFrom(m enginev1.Mode) Mode {
	switch m {
	case enginev1.Mode_MODE_RW:
		return ModeRW
	case enginev1.Mode_MODE_WO:
		return ModeWO
	case enginev1.Mode_MODE_UNSPECIFIED:
		return ModePending
	}
	return ModeERR
}

func rebuildFrom(r *enginev1.Rebuild) *Rebuild {
	if r == nil {
		return nil
	}
	return &Rebuild{
		Running: r.GetRunning(), Percent: int(min(max(r.GetProgress(), 0), 100)), DoneBytes: r.GetDoneBytes(),
		TotalBytes: r.GetTotalBytes(), State: r.GetState(), Error: r.GetError(), From: plain(r.GetFromAddress()),
	}
}

func purgeFrom(p *enginev1.Purge) *Purge {
	if p == nil {
		return nil
	}
	return &Purge{Running: p.GetRunning(), Percent: int(min(max(p.GetProgress(), 0), 100)), State: p.GetState(),
		Error: p.GetError()}
}

func optionsFrom(o *enginev1.Options) Options {
	if o == nil {
		return Options{}
	}
	count, size, unmap := int(o.GetSnapshotMaxCount()), o.GetSnapshotMaxSize(), o.GetUnmapMarkSnapChainRemoved()
	out := Options{SnapshotMaxCount: &count, SnapshotMaxSizeBytes: &size, UnmapMarkSnapChainRemoved: &unmap}
	if n := int(o.GetRebuildConcurrency()); n > 0 { // older engines have none
		bandwidth := o.GetRebuildBandwidth()
		out.RebuildConcurrency, out.RebuildBandwidth = &n, &bandwidth
	}
	return out
}

func snapshotFrom(p *enginev1.Snapshot) Snapshot {
	s := Snapshot{
		Name: p.GetName(), Parent: p.GetParent(), Removed: p.GetRemoved(), UserCreated: p.GetUserCreated(),
		Created: p.GetCreated(), SizeBytes: p.GetSize(), Labels: p.GetLabels(),
	}
	for child, present := range p.GetChildren() {
		if present {
			s.Children = append(s.Children, child)
		}
	}
	slices.Sort(s.Children)
	return s
}
