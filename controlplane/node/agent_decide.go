package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

const (
	// agentInterval is how often the agent looks at its disks. Nothing is written while nothing has
	// changed.
	agentInterval = 30 * time.Second
	// availableGrain is the unit free space is rounded down to, so that ordinary writing does not
	// rewrite the object all the time.
	availableGrain = 100 << 20
)

// DiskFacts is what a look at a disk's directory tells.
type DiskFacts struct {
	// Problem is why the rest could not be learnt; empty if it could.
	Problem string
	// Unprepared is why the configuration file could not be written at the last try.
	Unprepared string
	// ReadOnly is how the file system says that it takes no writes (mountinfo.Mount.Refuses).
	ReadOnly string
	// HasConfig: the configuration file is there. DiskUUID and DiskName are from it.
	HasConfig          bool
	DiskUUID, DiskName string
	// FilesystemID and Device tell file systems of one node apart: a copy of one has the same ID.
	// FilesystemType is e.g. "ext2/ext3" or "xfs".
	FilesystemID, FilesystemType string
	Device                       uint64
	// Maximum and Available are bytes.
	Maximum, Available int64
}

// agentSeen is what the agent's decide knows besides the object.
type agentSeen struct {
	KubeNode *corev1.Node
	// Facts has an entry for each disk with a status.
	Facts map[string]DiskFacts
	// Health is what the devices of each disk say about themselves; nil if nobody is to ask.
	Health map[string]Health
	// Host are the conditions about what the host offers.
	Host []v1beta2.Condition
	// Join are disks and tags the node should get if it has none.
	Join joining
}

// decideAgent is the agent's part; docs/design/controlplane.md has its table.
func decideAgent(now time.Time, n *v1beta2.Node, s agentSeen) loop.Decision {
	if n.DeletionTimestamp != nil {
		return loop.Decision{}
	}
	for _, c := range s.Host {
		n.Status.Conditions, _ = v1beta2.SetCondition(n.Status.Conditions, c, now)
	}
	ownsReadyCondition := v1beta2.IsConditionTrue(n.Status.Conditions, v1beta2.NodeConditionReady)
	var fresh []string
	for _, name := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
		spec, wanted := n.Spec.Disks[name]
		facts, looked := s.Facts[name]
		if !wanted || !looked {
			continue
		}
		d := n.Status.DiskStatus[name]
		condition := judgeDisk(name, d, facts, n, s.Facts)
		if isFresh(name, d, facts, n, s.Facts) {
			fresh = append(fresh, name)
		}
		d = report(d, spec, facts)
		if d.DiskUUID == "" && condition.Status == v1beta2.ConditionTrue {
			// One that may not be used is not the node's: it would go before another one at the next look.
			d.DiskUUID, d.DiskName = facts.DiskUUID, facts.DiskName
		}
		d = reportHealth(d, s.Health, name)
		if ownsReadyCondition {
			d.Conditions, _ = v1beta2.SetCondition(d.Conditions, condition, now)
		}
		n.Status.DiskStatus[name] = d
	}
	if u := joined(n, s.Join); u != nil {
		return loop.Decision{Do: loop.Update{Object: u}}
	}
	if len(fresh) > 0 {
		return loop.Decision{After: time.Millisecond, FailureReason: v1beta2.DiskConditionReady, Do: prepare(fresh, n)}
	}
	return loop.Decision{After: agentInterval}
}

// prepareOrder gives disks their configuration files.
type prepareOrder struct{ Disks []string }

func prepare(disks []string, n *v1beta2.Node) loop.Call {
	var where []string
	for _, name := range disks {
		where = append(where, "disk "+name+" at "+n.Spec.Disks[name].Path)
	}
	return loop.Call{What: "prepare " + strings.Join(where, ", "), Order: prepareOrder{disks}}
}

// report copies facts into a disk's status. What could not be learnt keeps its former value.
func report(d v1beta2.DiskStatus, spec v1beta2.DiskSpec, f DiskFacts) v1beta2.DiskStatus {
	d.DiskPath, d.DiskType = spec.Path, v1beta2.DiskTypeFilesystem
	if f.Problem != "" {
		return d
	}
	d.FilesystemType = f.FilesystemType
	d.StorageMaximum = f.Maximum
	d.StorageAvailable = f.Available / availableGrain * availableGrain
	return d
}

// reportHealth copies what devices say about themselves into a disk's status. Without an answer the
// last one stays, of an earlier process too.
func reportHealth(d v1beta2.DiskStatus, all map[string]Health, disk string) v1beta2.DiskStatus {
	told := all[disk]
	switch {
	case all == nil:
		d.HealthData, d.HealthDataLastCollectedAt = nil, metav1.Time{}
	case !told.At.IsZero():
		d.HealthData, d.HealthDataLastCollectedAt = told.Devices, metav1.NewTime(told.At.Truncate(time.Second))
	}
	return d
}

// judgeDisk says whether a disk can be used.
func judgeDisk(name string, d v1beta2.DiskStatus, f DiskFacts, n *v1beta2.Node,
	all map[string]DiskFacts) v1beta2.Condition {
	no := func(reason, message string) v1beta2.Condition {
		return v1beta2.Condition{
			Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionFalse, Reason: reason, Message: message,
		}
	}
	path := n.Spec.Disks[name].Path
	twin := sameFilesystem(name, n, all)
	below := ""
	if twin != "" {
		below = ", the directory is on the file system of disk " + twin
	}
	switch {
	case f.Problem != "":
		return no(v1beta2.DiskReasonNoDiskInfo, "disk "+name+" at "+path+" cannot be read: "+f.Problem)
	case f.ReadOnly != "":
		return no(v1beta2.DiskReasonNoDiskInfo, "disk "+name+" at "+path+" cannot be written: its file system says \""+
			f.ReadOnly+"\" in the table of mounts; look at the kernel's log, repair it and mount it again")
	case !f.HasConfig && d.DiskUUID != "":
		return no(v1beta2.DiskReasonDiskFilesystemChanged,
			"disk "+name+" is not mounted at "+path+": its configuration file is not there"+below+"; mount it again")
	case twin != "" && d.DiskUUID != "" && d.DiskUUID != f.DiskUUID:
		return no(v1beta2.DiskReasonDiskFilesystemChanged,
			"disk "+name+" is not mounted at "+path+": there is disk "+f.DiskUUID+below+"; mount it again")
	case twin != "":
		return no(v1beta2.DiskReasonDiskFilesystemChanged,
			"disk "+name+" at "+path+" is on the same file system as disk "+twin+"; is something not mounted?")
	case !f.HasConfig && f.Unprepared != "":
		return no(v1beta2.DiskReasonNoDiskInfo, "disk "+name+" at "+path+" is being prepared, and its configuration file "+
			"cannot be written: "+f.Unprepared+"; see that the directory can be written and has room; it is tried again")
	case !f.HasConfig:
		return no(v1beta2.DiskReasonPreparing, "disk "+name+" at "+path+" is being prepared")
	case f.DiskUUID == "":
		return no(v1beta2.DiskReasonNoDiskInfo, "the configuration file of disk "+name+" at "+path+" has no diskUUID; "+
			mendConfig)
	case d.DiskUUID != "" && d.DiskUUID != f.DiskUUID:
		return no(v1beta2.DiskReasonDiskFilesystemChanged,
			"disk "+name+" at "+path+" is disk "+f.DiskUUID+" now, and was "+d.DiskUUID+"; mount that one there, or add "+
				"the other one at a path of its own")
	}
	return v1beta2.Condition{Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionTrue}
}

// mendConfig is what to do about a configuration file that says nothing.
const mendConfig = "write the disk's UUID of the Node's status.diskStatus into it as {\"diskUUID\":\"…\"}, or remove the " +
	"file if the disk holds no replicas"

// isFresh tells whether the disk has never been used and should get its configuration file.
func isFresh(name string, d v1beta2.DiskStatus, f DiskFacts, n *v1beta2.Node, all map[string]DiskFacts) bool {
	return f.Problem == "" && f.ReadOnly == "" && !f.HasConfig && d.DiskUUID == "" && sameFilesystem(name, n, all) == ""
}

// sameFilesystem returns another disk of the node on the same file system that was there first: one
// with a known UUID, then one with a UUID in its file, then by name. Empty if there is none. A disk
// that is away does not count: its directory is one of the file system below, where another disk
// may be.
func sameFilesystem(name string, n *v1beta2.Node, all map[string]DiskFacts) string {
	id, device := all[name].FilesystemID, all[name].Device
	if id == "" || all[name].Problem != "" {
		return ""
	}
	away := func(disk string) bool {
		was := n.Status.DiskStatus[disk].DiskUUID
		return was != "" && all[disk].DiskUUID != was
	}
	known := func(disk string) int {
		switch {
		case n.Status.DiskStatus[disk].DiskUUID != "":
			return 2
		case all[disk].DiskUUID != "":
			return 1
		}
		return 0
	}
	before := func(a, b string) bool { return cmp.Or(cmp.Compare(known(b), known(a)), cmp.Compare(a, b)) < 0 }
	for _, other := range slices.Sorted(maps.Keys(all)) {
		if other == name || all[other].Problem != "" || all[other].FilesystemID != id ||
			all[other].Device != device || away(other) {
			continue
		}
		if before(other, name) || away(name) {
			return other
		}
	}
	return ""
}
