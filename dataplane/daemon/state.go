package daemon

import (
	"sync"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
)

// published is what the control interface tells: the core's state and the frontend's.
type published struct {
	engine   engine.State
	frontend string
	up       bool
	endpoint string
	device   string // ID of the block device, "" without one
}

// watched is a value that many can watch: each watcher gets the newest value after a change, never
// a backlog.
type watched struct {
	mu      sync.Mutex
	value   published
	changed chan struct{}
}

func (w *watched) init() { w.changed = make(chan struct{}) }

func (w *watched) set(f func(*published)) {
	w.mu.Lock()
	f(&w.value)
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
}

// get returns the value and a channel that is closed at the next change.
func (w *watched) get() (published, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.value, w.changed
}

var modes = map[engine.Mode]enginev1.Mode{engine.WO: enginev1.Mode_MODE_WO, engine.RW: enginev1.Mode_MODE_RW,
	engine.ERR: enginev1.Mode_MODE_ERR}

// message turns the state into its wire form.
func (p *engineProcess) message(v published) *enginev1.State {
	s := &v.engine
	m := &enginev1.State{
		VolumeName: p.cfg.VolumeName, InstanceName: p.cfg.Instance, Size: s.Size, Frontend: v.frontend, FrontendState: "down",
		Endpoint: v.endpoint, Snapshots: map[string]*enginev1.Snapshot{}, Suspended: s.Serving && s.Reason != "",
		Epoch: int64(s.Epoch), Generation: int64(s.Record.Generation),
		Counters: &enginev1.Counters{Reads: s.Counters.Reads, Writes: s.Counters.Writes, ReadBytes: s.Counters.ReadBytes,
			WriteBytes: s.Counters.WriteBytes, Flushes: s.Counters.Flushes, Discards: s.Counters.Discards,
			ReadNanos: s.Counters.ReadNanos, WriteNanos: s.Counters.WriteNanos},
	}
	m.VolumeUuid = p.cfg.VolumeUUID
	if i := s.Import; i != nil && i.Kind == engine.KindRestore {
		m.Restore = cloneMessage(i)
	} else {
		m.Clone = cloneMessage(i)
	}
	p.backups.show(m)
	m.UpgradePauseNanos, m.DeviceId = p.upgradePause.Load(), v.device
	m.SuspendedReason, m.Scrub = s.Reason, scrubMessage(s.Scrub)
	m.Hashes = map[string]*enginev1.SnapshotHashState{}
	for i := range s.Hashes {
		m.Hashes[s.Hashes[i].Snapshot] = hashMessage(&s.Hashes[i])
	}
	m.Expanding, m.LastExpansionError, m.LastExpansionFailedAt = s.Expansion.Running, s.Expansion.Error,
		s.Expansion.FailedAt
	m.Options = &enginev1.Options{SnapshotMaxCount: int32(s.Options.SnapshotMaxCount),
		SnapshotMaxSize:           s.Options.SnapshotMaxSize,
		UnmapMarkSnapChainRemoved: s.Options.UnmapMarkSnapChainRemoved,
		RebuildBandwidth:          s.RebuildBudget, RebuildConcurrency: int32(max(1, s.Options.RebuildConcurrency))}
	if v.up {
		m.FrontendState = "up"
	}
	for _, r := range s.Replicas {
		out := &enginev1.Replica{Address: "tcp://" + r.Address, Member: r.Member, Mode: modes[r.Mode], Error: r.Error,
			Lost: r.Lost}
		if b := r.Rebuild; b != nil {
			out.Rebuild = &enginev1.Rebuild{Running: b.Running, Progress: int32(b.Progress), DoneBytes: b.Done,
				TotalBytes: b.Total,
				State:      b.State, Error: b.Error, FromAddress: "tcp://" + b.From}
		}
		if b := r.Purge; b != nil {
			out.Purge = &enginev1.Purge{Running: b.Running, Progress: int32(b.Progress), State: b.State, Error: b.Error}
		}
		m.Replicas = append(m.Replicas, out)
	}
	for _, n := range s.Snapshots {
		out := &enginev1.Snapshot{Name: n.Name, Parent: n.Parent, Children: map[string]bool{}, Removed: n.Removed,
			UserCreated: n.UserCreated, Created: n.Created, Size: n.Size, Labels: n.Labels}
		for _, c := range n.Children {
			out.Children[c] = true
		}
		m.Snapshots[n.Name] = out
		m.ActualSize += n.Size
	}
	return m
}
