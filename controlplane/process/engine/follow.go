package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/instance"
)

// ConditionIOReady of an Engine is False while the engine holds I/O back (too few replicas or no
// witness), with the engine's own reason as message. It is our addition.
const (
	ConditionIOReady  = "IOReady"
	ReasonIOSuspended = "Suspended"
)

// follow copies what the engine says into the status and returns the events for what changed.
func follow(now time.Time, e *v1beta2.Engine, s seen) []loop.Event {
	st := &e.Status
	if st.CurrentState == v1beta2.InstanceStateUnknown {
		return nil // keep what was known last
	}
	if st.CurrentState != v1beta2.InstanceStateRunning {
		st.ReplicaModeMap, st.ReplicaTransitionTimeMap, st.RebuildStatus = nil, nil, nil
		st.CurrentReplicaAddressMap, st.Endpoint, st.IsExpanding, st.CloneStatus = nil, "", false, nil
		st.BackupStatus, st.RestoreStatus = nil, nil
		st.DeviceID = ""
		st.PurgeStatus, st.SnapshotsError = nil, notListed
		st.Conditions = slices.DeleteFunc(slices.Clone(st.Conditions), func(c v1beta2.Condition) bool {
			return c.Type == ConditionIOReady || c.Type == v1beta2.ConditionReplicaFilesLost
		})
		return nil
	}
	if s.State == nil {
		return nil
	}
	events := followSize(st, s.State)
	if on := s.State.Options.UnmapMarkSnapChainRemoved; on != nil {
		st.UnmapMarkSnapChainRemovedEnabled = *on
	}
	if n := s.State.Options.RebuildConcurrency; n != nil {
		st.RebuildConcurrentSyncLimit = *n
	}
	st.Endpoint, st.DeviceID = "", ""
	if s.State.FrontendUp {
		st.Endpoint, st.DeviceID = s.State.Endpoint, s.State.DeviceID
		noteDevice(e, s)
	}
	st.CloneStatus = cloneStatus(e, s)
	st.BackupStatus, st.RestoreStatus = backupStatus(s.State), restoreStatus(e, s)
	for _, r := range st.RestoreStatus {
		if r.LastRestored != "" {
			st.LastRestoredBackup = r.LastRestored
		}
	}
	events = append(events, followSnapshots(e, s.State)...)
	setIOReady(now, st, s.State)
	return slices.Concat(events, followReplicas(now, e, s), setReadOnly(now, e, s), setFilesLost(now, e, s.State))
}

// followImage tells that the engine runs another image than before.
func followImage(e *v1beta2.Engine, before string) []loop.Event {
	st := &e.Status
	if before == "" || st.CurrentImage == "" || st.CurrentImage == before {
		return nil
	}
	st.LastUpgradeError, st.LastUpgradeFailedAt = "", ""
	return []loop.Event{{Reason: naming.EventUpgrade,
		Message: fmt.Sprintf("Engine %s was handed over from image %s to %s", e.Name, before, st.CurrentImage)}}
}

// followSize brings the size, and what is told of expansions, up to date.
func followSize(st *v1beta2.EngineStatus, s *engineclient.State) []loop.Event {
	before := st.CurrentSize
	st.CurrentSize, st.IsExpanding = s.SizeBytes, s.Expanding
	st.LastExpansionError, st.LastExpansionFailedAt = s.LastExpansionError, s.LastExpansionFailedAt
	if before == 0 || s.SizeBytes <= before {
		return nil
	}
	return []loop.Event{{Reason: naming.EventSucceededExpansion,
		Message: fmt.Sprintf("Expanded the volume from %d to %d bytes", before, s.SizeBytes)}}
}

// setReadOnly tells of a file system on the volume that its kernel has made read-only, as the
// instance manager has found it.
func setReadOnly(now time.Time, e *v1beta2.Engine, s seen) []loop.Event {
	c := v1beta2.Condition{Type: v1beta2.EngineConditionFilesystemReadOnly, Status: v1beta2.ConditionFalse}
	i := slices.IndexFunc(s.Managers, func(m v1beta2.InstanceManager) bool {
		return m.Name == e.Status.InstanceManagerName
	})
	if i < 0 {
		return nil
	}
	process := instance.Find(&s.Managers[i], e.Name)
	if process == nil {
		return nil
	}
	bad, told := process.Status.Conditions[c.Type]
	before := v1beta2.IsConditionTrue(e.Status.Conditions, c.Type)
	if !bad && (!told && !before) {
		return nil // most volumes never get one
	}
	if bad {
		c.Status = v1beta2.ConditionTrue
		c.Message = "The file system on volume " + e.Spec.VolumeName +
			" refuses to write, which its kernel does after an error: look at the kernel log of node " +
			e.Spec.NodeID + ", repair it (fsck) while the volume is not mounted, and mount it again"
	}
	e.Status.Conditions, _ = v1beta2.SetCondition(e.Status.Conditions, c, now)
	if bad && !before {
		return []loop.Event{{Warning: true, Reason: c.Type, Message: c.Message}}
	}
	return nil
}

// setFilesLost tells of files that were removed or replaced under a replica which is kept all the
// same, because there is no other one.
func setFilesLost(now time.Time, e *v1beta2.Engine, state *engineclient.State) []loop.Event {
	c := v1beta2.Condition{Type: v1beta2.ConditionReplicaFilesLost, Status: v1beta2.ConditionFalse}
	for _, r := range state.Replicas {
		if r.Lost != "" && r.Mode != engineclient.ModeERR {
			c.Status = v1beta2.ConditionTrue
			c.Message = fmt.Sprintf("Replica %s at %s: %s. What it holds goes with its process: leave the volume attached until "+
				"this condition is gone, or add a replica", nameOf(e, r.Address), r.Address, r.Lost)
		}
	}
	have := v1beta2.FindCondition(e.Status.Conditions, c.Type)
	if c.Status == v1beta2.ConditionFalse && have.Status != v1beta2.ConditionTrue {
		return nil // most never have one
	}
	e.Status.Conditions, _ = v1beta2.SetCondition(e.Status.Conditions, c, now)
	if c.Status == v1beta2.ConditionTrue && have.Status != v1beta2.ConditionTrue {
		return []loop.Event{{Warning: true, Reason: c.Type, Message: c.Message}}
	}
	return nil
}

func setIOReady(now time.Time, st *v1beta2.EngineStatus, state *engineclient.State) {
	c := v1beta2.Condition{Type: ConditionIOReady, Status: v1beta2.ConditionTrue}
	if state.Suspended {
		c.Status, c.Reason, c.Message = v1beta2.ConditionFalse, ReasonIOSuspended, "I/O is held back: "+state.SuspendedReason
	}
	st.Conditions, _ = v1beta2.SetCondition(st.Conditions, c, now)
}

// followReplicas brings modes, transition times, addresses and rebuilds up to date.
func followReplicas(now time.Time, e *v1beta2.Engine, s seen) []loop.Event {
	st := &e.Status
	modes, times, addresses := map[string]v1beta2.ReplicaMode{}, map[string]string{}, map[string]string{}
	rebuilds := map[string]v1beta2.RebuildStatus{}
	var events []loop.Event
	note := func(name, address, why string, mode v1beta2.ReplicaMode) {
		before := st.ReplicaModeMap[name]
		modes[name], times[name] = mode, st.ReplicaTransitionTimeMap[name]
		if before != mode || times[name] == "" {
			times[name] = now.UTC().Format(time.RFC3339)
		}
		if ev, ok := transition(name, address, why, before, mode); ok {
			events = append(events, ev)
		}
	}
	for _, r := range s.State.Replicas {
		name := nameOf(e, r.Address)
		if r.Mode == engineclient.ModePending {
			continue // no news: the engine will judge it
		}
		note(name, r.Address, r.Error, modeOf(r.Mode))
		if !strings.HasPrefix(name, v1beta2.UnknownReplicaPrefix) {
			addresses[name] = r.Address
		}
		if r.Rebuild != nil {
			rebuilds[scheme+r.Address] = rebuild(r.Rebuild)
		}
	}
	for _, name := range sortedKeys(e.Spec.ReplicaAddressMap) {
		address := e.Spec.ReplicaAddressMap[name]
		if why := s.Refused[address]; why != "" && modes[name] == "" {
			// The engine refuses it: for the volume controller that is a failed replica.
			note(name, address, why, v1beta2.ReplicaModeERR)
			rebuilds[scheme+address] = v1beta2.RebuildStatus{State: v1beta2.ProcessStateError, Error: why}
		}
	}
	st.ReplicaModeMap, st.ReplicaTransitionTimeMap = modes, times
	st.CurrentReplicaAddressMap, st.RebuildStatus = addresses, rebuilds
	return events
}

// scheme precedes replica addresses in the keys of rebuildStatus, as in the reference.
const scheme = "tcp://"

// transition says what a change of mode means to people.
func transition(name, address, why string, before, mode v1beta2.ReplicaMode) (loop.Event, bool) {
	if before == mode {
		return loop.Event{}, false
	}
	switch mode {
	case v1beta2.ReplicaModeWO:
		return loop.Event{Reason: naming.EventRebuilding,
			Message: fmt.Sprintf("Rebuilding replica %s at %s", name, address)}, true
	case v1beta2.ReplicaModeRW:
		if before == v1beta2.ReplicaModeWO {
			return loop.Event{Reason: naming.EventRebuilt,
				Message: fmt.Sprintf("Replica %s at %s has been rebuilt", name, address)}, true
		}
	case v1beta2.ReplicaModeERR:
		if why == "" {
			why = "no reason given"
		}
		if before == v1beta2.ReplicaModeWO {
			return loop.Event{Warning: true, Reason: naming.EventFailedRebuilding,
				Message: fmt.Sprintf("Failed rebuilding replica %s at %s: %s", name, address, why)}, true
		}
		return loop.Event{Warning: true, Reason: naming.EventFaulted,
			Message: fmt.Sprintf("Replica %s at %s failed: %s", name, address, why)}, true
	}
	return loop.Event{}, false
}

// nameOf finds the replica behind an address: as wanted, else as acknowledged before, else unknown.
func nameOf(e *v1beta2.Engine, address string) string {
	for _, m := range []map[string]string{e.Spec.ReplicaAddressMap, e.Spec.UpgradedReplicaAddressMap,
		e.Status.CurrentReplicaAddressMap} {
		for _, name := range sortedKeys(m) {
			if m[name] == address {
				return name
			}
		}
	}
	return v1beta2.UnknownReplicaPrefix + address
}

func modeOf(m engineclient.Mode) v1beta2.ReplicaMode {
	switch m {
	case engineclient.ModeRW:
		return v1beta2.ReplicaModeRW
	case engineclient.ModeWO:
		return v1beta2.ReplicaModeWO
	}
	return v1beta2.ReplicaModeERR
}

func rebuild(r *engineclient.Rebuild) v1beta2.RebuildStatus {
	out := v1beta2.RebuildStatus{Error: r.Error, IsRebuilding: r.Running, Progress: r.Percent, State: r.State}
	if r.From != "" {
		out.FromReplicaAddress = scheme + r.From
		out.FromReplicaAddressList = []string{scheme + r.From}
	}
	return out
}

// Snapshots are the snapshots that an engine tells of, as in the status of its object.
func Snapshots(s engineclient.State) map[string]v1beta2.SnapshotInfo {
	in := s.Snapshots
	out := make(map[string]v1beta2.SnapshotInfo, len(in))
	for name, p := range in {
		children := make(map[string]bool, len(p.Children))
		for _, c := range p.Children {
			children[c] = true
		}
		labels := p.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		out[name] = v1beta2.SnapshotInfo{
			Name: p.Name, Parent: p.Parent, Children: children, Removed: p.Removed, UserCreated: p.UserCreated,
			Created: p.Created, Size: strconv.FormatInt(p.SizeBytes, 10), Labels: labels,
		}
	}
	return out
}
