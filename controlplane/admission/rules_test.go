package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

func storedSetting(name, value string, annotations ...string) *v1beta2.Setting {
	s := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	for _, a := range annotations {
		s.Annotations = map[string]string{a: ""}
	}
	return s
}

func TestSettings(t *testing.T) {
	const marker = "longhorn.io/update-setting-from-longhorn"
	for _, tt := range []struct {
		name     string
		old, new *v1beta2.Setting
		facts    SettingFacts
		want     string
	}{
		{"create", nil, storedSetting("auto-salvage", "true"), SettingFacts{}, ""},
		{"unknown", nil, storedSetting("no-such", "x"), SettingFacts{}, "setting no-such is not supported"},
		{"replaced", nil, storedSetting("backup-target", "x"), SettingFacts{}, "setting backup-target is not supported"},
		{"not a bool", nil, storedSetting("auto-salvage", "yes"), SettingFacts{}, "auto-salvage with invalid value yes"},
		{"too large", nil, storedSetting("guaranteed-instance-manager-cpu", "41"), SettingFacts{},
			"should be less than or equal to 40"},
		{"too small", nil, storedSetting("default-replica-count", "0"), SettingFacts{},
			"should be greater than or equal to 1"},
		{"bad toleration", nil, storedSetting("taint-toleration", "k=v:Sometimes"), SettingFacts{}, "invalid effect"},
		{"read-only", storedSetting("default-engine-image", "a"), storedSetting("default-engine-image", "b"),
			SettingFacts{}, "is read-only"},
		{"read-only, by the manager", storedSetting("default-engine-image", "a"),
			storedSetting("default-engine-image", "b", marker), SettingFacts{}, ""},
		{"read-only, marked before", storedSetting("default-engine-image", "a", marker),
			storedSetting("default-engine-image", "b"), SettingFacts{}, ""},
		{"not read-only, whatever there is", storedSetting("auto-salvage", "true"), storedSetting("auto-salvage", "false"),
			SettingFacts{Attached: []string{"a attached"}, Nodes: 1, Engines: 1}, ""},
		{"engine on with engines", storedSetting("v1-data-engine", "false"), storedSetting("v1-data-engine", "true"),
			SettingFacts{Engines: 1}, ""},
		{"engine off without engines", storedSetting("v1-data-engine", "true"), storedSetting("v1-data-engine", "false"),
			SettingFacts{}, ""},
		{"read-only, same value", storedSetting("default-engine-image", "a"),
			storedSetting("default-engine-image", "a"), SettingFacts{}, ""},
		{"priority class missing", storedSetting("priority-class", ""), storedSetting("priority-class", "high"),
			SettingFacts{Missing: "priority class"}, "failed to get priority class "},
		{"storage network while attached", storedSetting("storage-network", ""), storedSetting("storage-network", "a/b"),
			SettingFacts{Attached: []string{"vol attached", "a attaching"}},
			"storage-network with invalid value a/b: 2 volumes are not detached: a attaching, vol attached; detach"},
		{"storage network while many are attached", storedSetting("storage-network", ""),
			storedSetting("storage-network", "a/b"), SettingFacts{Attached: strings.Split("bcdefghijkla", "")},
			"12 volumes are not detached: a, b, c, d, e, f, g, h, i, j and 2 more; detach all"},
		{"storage network while as many are attached as are named", storedSetting("storage-network", ""),
			storedSetting("storage-network", "a/b"), SettingFacts{Attached: strings.Split("bcdefghija", "")},
			"10 volumes are not detached: a, b, c, d, e, f, g, h, i, j; detach all"},
		{"storage network of no namespace", nil, storedSetting("storage-network", "net"), SettingFacts{},
			"in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format"},
		{"storage network while detached", storedSetting("storage-network", ""),
			storedSetting("storage-network", "a/b"), SettingFacts{}, ""},
		{"data path with nodes", storedSetting("default-data-path", "/a"), storedSetting("default-data-path", "/b"),
			SettingFacts{Nodes: 1}, "once a node has joined"},
		{"engine off with engines", storedSetting("v1-data-engine", "true"), storedSetting("v1-data-engine", "false"),
			SettingFacts{Engines: 1},
			"cannot apply v1-data-engine setting to Longhorn workloads when there are attached v1 volumes"},
	} {
		tt.facts.Stored = setting.Values{}
		expect(t, tt.name, CheckSetting(tt.old, tt.new, tt.facts), tt.want)
	}
	err := CheckSetting(nil, storedSetting("no-such", "x"), SettingFacts{})
	if err == nil || err.Error() != "setting no-such is not supported" {
		t.Errorf("unknown: %v", err)
	}
}

func nodeWith(edit ...func(*v1beta2.Node)) *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Spec.Name = "n"
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/a", DiskType: "filesystem"}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {}}
	for _, e := range edit {
		e(n)
	}
	return n
}

func TestNodes(t *testing.T) {
	disk := func(name string, d v1beta2.DiskSpec) func(*v1beta2.Node) {
		return func(n *v1beta2.Node) { n.Spec.Disks[name] = d }
	}
	for _, tt := range []nodeRule{
		{"nothing", nil, nil, NodeFacts{}, ""},
		{"no name", nil, func(n *v1beta2.Node) { n.Spec.Name = "" }, NodeFacts{}, "has no name"},
		{"evict while scheduling", nil, func(n *v1beta2.Node) {
			n.Spec.EvictionRequested, n.Spec.AllowScheduling = true, true
		}, NodeFacts{},
			"need to disable scheduling on node n for node eviction"},
		{"evict a disk while scheduling", nil, disk("d",
			v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", EvictionRequested: true, AllowScheduling: true}),
			NodeFacts{}, "need to disable scheduling on disk d"},
		{"bad tag", nil, func(n *v1beta2.Node) {
			n.Spec.Tags = []string{"a b"}
		}, NodeFacts{}, "at least one error encountered while validating tags"},
		{"bad disk tag", nil, disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", Tags: []string{"!"}}),
			NodeFacts{},
			"at least one error encountered while validating tags"},
		{"bad name of a disk", nil, disk("two\nlines", v1beta2.DiskSpec{Path: "/b", DiskType: "filesystem"}), NodeFacts{},
			"invalid disk name"},
		{"stored name of a disk", disk("", v1beta2.DiskSpec{Path: "/b", DiskType: "filesystem"}), func(n *v1beta2.Node) {
			n.Spec.Tags = []string{"a"}
		}, NodeFacts{}, ""},
		{"negative CPU", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = -1
		}, NodeFacts{}, "greater than or equal to 0"},
		{"40 % of the CPU", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 3200
		}, NodeFacts{AllocatableMillis: 8000}, ""},
		{"41 % of the CPU", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 3280
		}, NodeFacts{AllocatableMillis: 8000},
			"should be less than or equal to 40"},
		{"40.4 % of the CPU", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 40_400
		}, NodeFacts{AllocatableMillis: 100_000}, ""},
		{"40.5 % of the CPU", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 40_500
		}, NodeFacts{AllocatableMillis: 100_000}, "is 41% of the allocatable CPU"},
		{"any CPU of a node that is gone", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 99999
		}, NodeFacts{}, ""},
		{"stored CPU above 40 %", func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = 4000 },
			func(n *v1beta2.Node) { n.Spec.Tags = []string{"a"} }, NodeFacts{AllocatableMillis: 8000}, ""},
		{"scheduling", nil, func(n *v1beta2.Node) { n.Spec.AllowScheduling = true }, NodeFacts{}, ""},
		{"evict", nil, func(n *v1beta2.Node) { n.Spec.EvictionRequested = true }, NodeFacts{}, ""},
		{"scheduling to a disk", nil, disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", AllowScheduling: true}),
			NodeFacts{}, ""},
		{"evict a disk", nil, disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", EvictionRequested: true}),
			NodeFacts{}, ""},
		{"tags", nil, func(n *v1beta2.Node) { n.Spec.Tags = []string{"a", "b.c/d"} }, NodeFacts{}, ""},
		{"tags that are stored", func(n *v1beta2.Node) { n.Spec.Tags = []string{"a b"} }, func(n *v1beta2.Node) {
			n.Spec.Tags, n.Spec.AllowScheduling = []string{"a b"}, false
		}, NodeFacts{}, ""},
		{"disk of another type", disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "block"}),
			disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem"}), NodeFacts{}, "disk type is not allow to change"},
		{"disk gets a type", disk("d", v1beta2.DiskSpec{Path: "/a"}),
			disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem"}), NodeFacts{}, ""},
		{"negative reserve", nil, disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", StorageReserved: -1}),
			NodeFacts{},
			"storageReserved setting of disk d"},
		{"same path twice", nil, disk("e", v1beta2.DiskSpec{Path: "/a/", DiskType: "filesystem"}), NodeFacts{},
			"duplicate disk paths on node"},
		{"block disk", nil, disk("e", v1beta2.DiskSpec{Path: "/dev/sdx", DiskType: "block"}), NodeFacts{},
			`only "filesystem" is supported`},
		{"disk driver", nil, disk("e", v1beta2.DiskSpec{Path: "/e", DiskDriver: "aio"}), NodeFacts{}, "no disk driver"},
		{"relative path", nil, disk("e", v1beta2.DiskSpec{Path: "e"}), NodeFacts{}, "give an absolute path"},
		{"add a disk", nil, disk("e", v1beta2.DiskSpec{Path: "/e", DiskType: "filesystem"}), NodeFacts{}, ""},
		{"add a disk before the last change is taken over", func(n *v1beta2.Node) { n.Status.DiskStatus = nil },
			disk("e", v1beta2.DiskSpec{Path: "/e", DiskType: "filesystem"}), NodeFacts{},
			"being syncing and please retry later"},
		{"change none before the last change is taken over", func(n *v1beta2.Node) { n.Status.DiskStatus = nil },
			func(n *v1beta2.Node) { n.Spec.AllowScheduling = true }, NodeFacts{}, ""},
		{"change a disk while another one is known", func(n *v1beta2.Node) {
			n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"e": {}}
		}, disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", StorageReserved: 1}), NodeFacts{},
			"being syncing and please retry later"},
		{"add a disk beside an enabled one", disk("d",
			v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", AllowScheduling: true}),
			disk("e", v1beta2.DiskSpec{Path: "/e", DiskType: "filesystem"}), NodeFacts{}, ""},
		{"remove a disk with a replica of no size", func(n *v1beta2.Node) {
			n.Status.DiskStatus["d"] = v1beta2.DiskStatus{ScheduledReplica: map[string]int64{"r": 0}}
		}, func(n *v1beta2.Node) { delete(n.Spec.Disks, "d") }, NodeFacts{}, "Please disable the disk d"},
		{"remove a disk that is not mounted and has a replica", func(n *v1beta2.Node) {
			n.Status.DiskStatus["d"] = v1beta2.DiskStatus{DiskUUID: "u", DiskPath: "/a"}
		}, func(n *v1beta2.Node) { delete(n.Spec.Disks, "d") }, NodeFacts{OnDisks: []v1beta2.Replica{
			{Spec: v1beta2.ReplicaSpec{DiskID: "u", DiskPath: "/a"}}}}, "mount it again"},
		{"remove a disk beside one with a replica", func(n *v1beta2.Node) {
			n.Status.DiskStatus["d"] = v1beta2.DiskStatus{DiskUUID: "u", DiskPath: "/a"}
		}, func(n *v1beta2.Node) { delete(n.Spec.Disks, "d") }, NodeFacts{OnDisks: []v1beta2.Replica{
			{Spec: v1beta2.ReplicaSpec{DiskID: "x", DiskPath: "/x"}}}}, ""},
		{"remove an empty, disabled disk", nil, func(n *v1beta2.Node) { delete(n.Spec.Disks, "d") }, NodeFacts{}, ""},
		{"remove a disk in use", func(n *v1beta2.Node) { n.Status.DiskStatus["d"] = v1beta2.DiskStatus{StorageScheduled: 1} },
			func(n *v1beta2.Node) { delete(n.Spec.Disks, "d") }, NodeFacts{}, "Please disable the disk d"},
		{"remove an enabled disk", disk("d", v1beta2.DiskSpec{Path: "/a", DiskType: "filesystem", AllowScheduling: true}),
			func(n *v1beta2.Node) { delete(n.Spec.Disks, "d") }, NodeFacts{}, "disable the disk"},
	} {
		tt.check(t)
	}
	unknown := nodeWith(func(n *v1beta2.Node) { n.Status.DiskStatus = nil })
	added := nodeWith(disk("e", v1beta2.DiskSpec{Path: "/e", DiskType: "filesystem"}))
	if r := asRejection(CheckNode(unknown, added, NodeFacts{})); r.Reason != metav1.StatusReasonForbidden {
		t.Errorf("a change of disks too early is refused with reason %s", r.Reason)
	}
}

// nodeRule is a change of a node that is allowed, or refused with a text.
type nodeRule struct {
	name  string
	state func(*v1beta2.Node) // of old and new
	edit  func(*v1beta2.Node)
	facts NodeFacts
	want  string
}

func (tt nodeRule) check(t *testing.T) {
	t.Helper()
	old := nodeWith()
	if tt.state != nil {
		tt.state(old)
	}
	n := old.DeepCopy()
	if tt.edit != nil {
		tt.edit(n)
	}
	expect(t, tt.name, CheckNode(old, n, tt.facts), tt.want)
}

func TestEnginesAndReplicas(t *testing.T) {
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Name: "v-e-0"}}
	volume := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	migratable := volume.DeepCopy()
	migratable.Spec.Migratable = true
	expect(t, "first engine", CheckEngine(nil, e, InstanceFacts{Volume: volume, EngineEnabled: true}), "")
	expect(t, "second engine", CheckEngine(nil, e, InstanceFacts{Volume: volume, Engines: 1, EngineEnabled: true}),
		"too many")
	expect(t, "second engine of a migration",
		CheckEngine(nil, e, InstanceFacts{Volume: migratable, Engines: 1, EngineEnabled: true}), "")
	expect(t, "third engine", CheckEngine(nil, e, InstanceFacts{Volume: migratable, Engines: 2, EngineEnabled: true}),
		"too many")
	expect(t, "engine of no volume", CheckEngine(nil, e, InstanceFacts{EngineEnabled: true}), "does not exist")
	expect(t, "engines off", CheckEngine(nil, e, InstanceFacts{Volume: volume}), "v1-data-engine")
	expect(t, "replica with engines off", CheckReplica(nil, &v1beta2.Replica{}, InstanceFacts{}), "v1-data-engine")

	for _, tt := range []struct{ name, before, after, want string }{
		{"kept", "v1", "v1", ""},
		{"filled in", "", "v1", ""},
		{"changed", "v1", "v2", "cannot be changed from v1 to v2"},
	} {
		older, newer := e.DeepCopy(), e.DeepCopy()
		older.Spec.DataEngine, newer.Spec.DataEngine = v1beta2.DataEngineType(tt.before), v1beta2.DataEngineType(tt.after)
		expect(t, "data engine of an engine "+tt.name, CheckEngine(older, newer, InstanceFacts{}), tt.want)
		expect(t, "data engine of a replica "+tt.name, CheckReplica(
			&v1beta2.Replica{Spec: v1beta2.ReplicaSpec{InstanceSpec: older.Spec.InstanceSpec}},
			&v1beta2.Replica{Spec: v1beta2.ReplicaSpec{InstanceSpec: newer.Spec.InstanceSpec}}, InstanceFacts{}), tt.want)
	}

	copyOf := func(name string, healthy, failed, evicting bool) v1beta2.Replica {
		r := v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Name: name}}
		r.Spec.NodeID = "n1"
		if healthy {
			r.Spec.HealthyAt = "t"
		}
		if failed {
			r.Spec.FailedAt = "t"
		}
		r.Spec.EvictionRequested = evicting
		return r
	}
	good, second := copyOf("a", true, false, false), copyOf("b", true, false, false)
	failed, evicting, empty := copyOf("c", true, true, false), copyOf("d", true, false, true),
		copyOf("e", false, false, false)
	leaving := deleting(good.DeepCopy())
	lost := copyOf("f", true, false, false)
	lost.Spec.NodeID = "n2" // which is gone
	nodes := []v1beta2.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	const last = "no other healthy replica available"
	for _, tt := range []struct {
		name     string
		replica  v1beta2.Replica
		volume   *v1beta2.Volume
		siblings []v1beta2.Replica
		want     string
	}{
		{"one of two", good, volume, []v1beta2.Replica{good, second}, ""},
		{"the only one", good, volume, []v1beta2.Replica{good}, last},
		{"beside a failed one", good, volume, []v1beta2.Replica{good, failed}, last},
		{"beside one on a node that is gone", good, volume, []v1beta2.Replica{good, lost}, last},
		{"beside an evicting one", good, volume, []v1beta2.Replica{good, evicting}, last},
		{"beside an empty one", good, volume, []v1beta2.Replica{good, empty}, last},
		{"failed beside a good one", failed, volume, []v1beta2.Replica{good, failed}, ""},
		{"failed, the last data", failed, volume, []v1beta2.Replica{failed, empty}, last},
		{"without data", empty, volume, []v1beta2.Replica{empty}, ""},
		{"of a volume being deleted", good, deleting(volume.DeepCopy()), []v1beta2.Replica{good}, ""},
		{"asked for again", *leaving, volume, []v1beta2.Replica{*leaving}, ""},
		{"of no volume", good, nil, nil, ""},
	} {
		expect(t, tt.name, CheckReplicaDeletion(&tt.replica, tt.volume, nil, tt.siblings, nodes), tt.want)
	}
}

func TestEngineImageDeletion(t *testing.T) {
	ei := &v1beta2.EngineImage{ObjectMeta: metav1.ObjectMeta{Name: "ei-1"}}
	ei.Spec.Image = "i"
	expect(t, "free", CheckEngineImageDeletion(ei, "other"), "")
	expect(t, "default", CheckEngineImageDeletion(ei, "i"), "the default engine image")
	ei.Status.RefCount = 2
	expect(t, "used", CheckEngineImageDeletion(ei, "other"), "while being used")
	ei.Status.RefCount, ei.Annotations = 0, map[string]string{"longhorn.io/delete-engine-image-from-longhorn": ""}
	expect(t, "default, forced", CheckEngineImageDeletion(ei, "i"), "")
}

func TestAttachments(t *testing.T) {
	attachment := func(tickets ...v1beta2.AttachmentTicket) *v1beta2.VolumeAttachment {
		va := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
		va.Spec.Volume = "v"
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
		for _, t := range tickets {
			va.Spec.AttachmentTickets[t.ID] = t
		}
		return va
	}
	csi := func(id, node string) v1beta2.AttachmentTicket {
		return v1beta2.AttachmentTicket{ID: id, NodeID: node, Type: v1beta2.AttacherTypeCSI}
	}
	wrongKey := attachment()
	wrongKey.Spec.AttachmentTickets["x"] = csi("y", "n")
	other := attachment()
	other.Spec.Volume = "w"
	owned := func(by string) *v1beta2.VolumeAttachment {
		va := attachment()
		va.OwnerReferences = []metav1.OwnerReference{{Name: by}}
		return va
	}
	labelled := func(volume string) *v1beta2.VolumeAttachment {
		va := attachment()
		va.Labels = map[string]string{"longhornvolume": volume}
		return va
	}
	migratable := &v1beta2.Volume{}
	migratable.Spec.Migratable, migratable.Status.State = true, v1beta2.VolumeStateAttached
	detached := migratable.DeepCopy()
	detached.Status.State = v1beta2.VolumeStateDetached
	local := &v1beta2.Volume{}
	local.Spec.DataLocality = v1beta2.DataLocalityStrictLocal
	onN1 := []v1beta2.Replica{replicaOn("n1")}
	for _, tt := range []struct {
		name     string
		old, new *v1beta2.VolumeAttachment
		facts    AttachmentFacts
		want     string
	}{
		{"create", nil, attachment(csi("a", "n1")), AttachmentFacts{}, ""},
		{"key and id differ", nil, wrongKey, AttachmentFacts{}, "key and id must be equal"},
		{"another volume", attachment(), other, AttachmentFacts{}, "cannot be changed"},
		{"two tickets, plain volume", attachment(), attachment(csi("a", "n1"), csi("b", "n2")),
			AttachmentFacts{Volume: &v1beta2.Volume{}}, ""},
		{"migration", attachment(), attachment(csi("a", "n1"), csi("b", "n2")), AttachmentFacts{Volume: migratable}, ""},
		{"migration of a detached volume", attachment(), attachment(csi("a", "n1"), csi("b", "n2")),
			AttachmentFacts{Volume: detached}, "starts from an attached volume"},
		{"three nodes", attachment(), attachment(csi("a", "n1"), csi("b", "n2"), csi("c", "n3")),
			AttachmentFacts{Volume: migratable}, "two nodes at a time"},
		{"strict-local at its replica", attachment(), attachment(csi("a", "n1")),
			AttachmentFacts{Volume: local, Replicas: onN1}, ""},
		{"migration of a detached volume, first node", attachment(), attachment(csi("a", "n1")),
			AttachmentFacts{Volume: detached}, ""},
		{"three tickets, two of CSI", attachment(), attachment(csi("a", "n1"), csi("b", "n2"),
			v1beta2.AttachmentTicket{ID: "c", NodeID: "n3", Type: v1beta2.AttacherTypeLonghornAPI}),
			AttachmentFacts{Volume: migratable}, ""},
		{"key and id differ, later", attachment(), wrongKey, AttachmentFacts{Volume: &v1beta2.Volume{}},
			"key and id must be equal"},
		{"owned", attachment(), owned("v"), AttachmentFacts{}, ""},
		{"owner kept", owned("v"), owned("v"), AttachmentFacts{}, ""},
		{"another owner", owned("v"), owned("w"), AttachmentFacts{}, "its owner cannot be changed"},
		{"no owner", owned("v"), attachment(), AttachmentFacts{}, "its owner cannot be changed"},
		{"labelled", attachment(), labelled("v"), AttachmentFacts{}, ""},
		{"label kept", labelled("v"), labelled("v"), AttachmentFacts{}, ""},
		{"another label", labelled("v"), labelled("w"), AttachmentFacts{}, "label longhornvolume cannot be changed"},
		{"no label", labelled("v"), attachment(), AttachmentFacts{}, "label longhornvolume cannot be changed"},
		{"not local, replicas elsewhere", attachment(), attachment(csi("a", "n2")),
			AttachmentFacts{Volume: &v1beta2.Volume{}, Replicas: onN1}, ""},
		{"strict-local elsewhere since before", attachment(csi("a", "n2")), attachment(csi("a", "n2")),
			AttachmentFacts{Volume: local, Replicas: onN1}, ""},
		{"strict-local moved", attachment(csi("a", "n1")), attachment(csi("a", "n2")),
			AttachmentFacts{Volume: local, Replicas: onN1}, "its replica is on node n1"},
		{"strict-local to no node", attachment(), attachment(csi("a", "")),
			AttachmentFacts{Volume: local, Replicas: onN1}, "its replica is on node n1"},
		{"strict-local, its replica has no node yet", attachment(), attachment(csi("a", "n2")),
			AttachmentFacts{Volume: local, Replicas: []v1beta2.Replica{replicaOn("")}}, ""},
		{"strict-local elsewhere", attachment(), attachment(csi("a", "n2")),
			AttachmentFacts{Volume: local, Replicas: onN1}, "strict-local"},
	} {
		expect(t, tt.name, CheckAttachment(tt.old, tt.new, tt.facts), tt.want)
	}
}

func TestTicketGenerations(t *testing.T) {
	ticket := func(generation int64, edit func(*v1beta2.AttachmentTicket)) v1beta2.AttachmentTicket {
		k := v1beta2.AttachmentTicket{ID: "t", NodeID: "n1", Type: v1beta2.AttacherTypeCSI, Generation: generation,
			Parameters: map[string]string{"k": "v"}}
		if edit != nil {
			edit(&k)
		}
		return k
	}
	before := ticket(3, nil)
	for _, tt := range []struct {
		name     string
		before   *v1beta2.AttachmentTicket
		reported int64 // generation of the ticket's status; 0: there is none
		sent     v1beta2.AttachmentTicket
		want     int64
	}{
		{"new", nil, 0, ticket(0, nil), 0},
		{"new, numbered", nil, 0, ticket(5, nil), 5},
		{"new, numbered below 0", nil, 0, ticket(-4, nil), 0},
		{"back again", nil, 7, ticket(0, nil), 8},
		{"unchanged", &before, 0, ticket(99, nil), 3},
		{"unchanged and reported", &before, 7, ticket(99, nil), 3},
		{"of another id", &before, 0, ticket(3, func(k *v1beta2.AttachmentTicket) { k.ID = "u" }), 4},
		{"on another node", &before, 7, ticket(0, func(k *v1beta2.AttachmentTicket) { k.NodeID = "n2" }), 4},
		{"of another type", &before, 0, ticket(3, func(k *v1beta2.AttachmentTicket) {
			k.Type = v1beta2.AttacherTypeLonghornAPI
		}), 4},
		{"with other parameters", &before, 0, ticket(3, func(k *v1beta2.AttachmentTicket) { k.Parameters = nil }), 4},
	} {
		old, va := &v1beta2.VolumeAttachment{}, &v1beta2.VolumeAttachment{}
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": tt.sent}
		if tt.before != nil {
			old.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": *tt.before}
		}
		if tt.reported != 0 {
			old.Status.AttachmentTicketStatuses = map[string]v1beta2.AttachmentTicketStatus{"t": {Generation: tt.reported}}
		}
		bumpGenerations(old, va)
		if got := va.Spec.AttachmentTickets["t"].Generation; got != tt.want {
			t.Errorf("%s: generation %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestTicketGenerationsGrow: whatever becomes of a ticket and of its status, one that is filed
// again has a greater generation. The API server counts the changes of the object.
func TestTicketGenerationsGrow(t *testing.T) {
	va := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	last := int64(-1)
	for round := range 6 {
		old := va.DeepCopy()
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": {ID: "t", NodeID: "n"}}
		bumpGenerations(old, va)
		va.Generation++
		got := va.Spec.AttachmentTickets["t"].Generation
		if got <= last {
			t.Errorf("round %d: generation %d after %d", round, got, last)
		}
		last = got
		va.Status.AttachmentTicketStatuses = nil
		if round%2 == 0 { // it goes and comes, or is seen to be satisfied meanwhile
			va.Status.AttachmentTicketStatuses = map[string]v1beta2.AttachmentTicketStatus{"t": {Generation: got}}
		}
		va.Spec.AttachmentTickets = nil
		va.Generation++
	}
}
