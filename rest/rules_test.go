package rest_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resttest"
)

// badChange is one change that is not allowed, asked for at both doors.
type badChange struct {
	name string
	// state changes an object of the cluster before. May be nil.
	state func(o client.Object)
	// request is method, path and body, as by a client of the API.
	request [3]string
	// edit is the same change as by kubectl; nil deletes the object, and a new one is made with make.
	plural, object string
	edit           func(o client.Object)
	create         client.Object
	// want is a part of what both say.
	want string
}

// on makes a function of one kind of object one of any.
func on[T client.Object](edit func(T)) func(client.Object) {
	return func(o client.Object) {
		if typed, ok := o.(T); ok {
			edit(typed)
		}
	}
}

// ofDisk edits disk-1 of a node.
func ofDisk(edit func(d *lh.DiskSpec)) func(client.Object) {
	return on(func(n *lh.Node) {
		d := n.Spec.Disks["disk-1"]
		edit(&d)
		n.Spec.Disks["disk-1"] = d
	})
}

func addDisk(d lh.DiskSpec) func(client.Object) {
	d.DiskType = orElse(d.DiskType, lh.DiskTypeFilesystem)
	return on(func(n *lh.Node) { n.Spec.Disks["d2"] = d })
}

func orElse[T ~string](value, otherwise T) T { return T(cmp.Or(string(value), string(otherwise))) }

const (
	putNode    = "/v1/nodes/node-1"
	diskUpdate = "/v1/nodes/node-1?action=diskUpdate"
	diskKept   = `"disk-1":{"path":"/var/lib/longhorn","allowScheduling":true,"tags":["ssd"]}`
	actionOf   = "/v1/volumes/demo?action="
)

var badNodes = []badChange{
	{name: "eviction of a node", request: [3]string{"PUT", putNode, `{"allowScheduling":true,"evictionRequested":true}`},
		edit: on(func(n *lh.Node) { n.Spec.EvictionRequested = true }),
		want: "need to disable scheduling on node node-1 for node eviction"},
	{name: "tags of a node", request: [3]string{"PUT", putNode, `{"allowScheduling":true,"tags":["a b","-","fast"]}`},
		edit: on(func(n *lh.Node) { n.Spec.Tags = []string{"-", "a b", "fast"} }), // in the order that they are stored in
		want: `at least one error encountered while validating tags: tag "-": `},
	{name: "CPU of a node", request: [3]string{"PUT", putNode, `{"instanceManagerCPURequest":-1}`},
		edit: on(func(n *lh.Node) { n.Spec.InstanceManagerCPURequest = -1 }), want: "CPU request -1 of node node-1"},
	{name: "eviction of a disk", request: [3]string{"POST", diskUpdate, `{"disks":{"disk-1":{"path":"/var/lib/longhorn",
		"allowScheduling":true,"evictionRequested":true}}}`},
		edit: ofDisk(func(d *lh.DiskSpec) { d.EvictionRequested = true }),
		want: "need to disable scheduling on disk disk-1 of node node-1 for disk eviction"},
	{name: "tags of a disk", request: [3]string{"POST", diskUpdate, `{"disks":{"disk-1":{"path":"/var/lib/longhorn",
		"tags":["a b"]}}}`}, edit: ofDisk(func(d *lh.DiskSpec) { d.Tags = []string{"a b"} }),
		want: "disk disk-1: at least one error encountered while validating tags"},
	{name: "path", request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept + `,"d2":{"path":"relative"}}}`},
		edit: addDisk(lh.DiskSpec{Path: "relative"}), want: `disk d2 has the path "relative"; give an absolute path`},
	{name: "path of another", request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept +
		`,"d2":{"path":"/var/lib/longhorn/"}}}`}, edit: addDisk(lh.DiskSpec{Path: "/var/lib/longhorn/"}),
		want: "duplicate disk paths on node node-1: disks d2 and disk-1"},
	{name: "reserve", request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept +
		`,"d2":{"path":"/d2","storageReserved":-1}}}`}, edit: addDisk(lh.DiskSpec{Path: "/d2", StorageReserved: -1}),
		want: "storageReserved setting of disk d2 is not valid"},
	{name: "type", request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept +
		`,"d2":{"path":"/d2","diskType":"block"}}}`}, edit: addDisk(lh.DiskSpec{Path: "/d2", DiskType: "block"}),
		want: `disk d2 of node node-1 has type "block"; only "filesystem" is supported`},
	{name: "driver", request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept +
		`,"d2":{"path":"/d2","diskDriver":"aio"}}}`}, edit: addDisk(lh.DiskSpec{Path: "/d2", DiskDriver: "aio"}),
		want: "a file system takes no disk driver"},
	{name: "name of a disk", request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept + `,"a b\n":{"path":"/d2"}}}`},
		edit: on(func(n *lh.Node) {
			n.Spec.Disks["a b\n"] = lh.DiskSpec{Path: "/d2", DiskType: lh.DiskTypeFilesystem}
		}), want: "invalid disk name"},
	{name: "another type", state: ofDisk(func(d *lh.DiskSpec) { d.DiskType = "block" }),
		request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept + `}}`},
		edit:    ofDisk(func(d *lh.DiskSpec) { d.DiskType = lh.DiskTypeFilesystem }),
		want:    "the disk type is not allow to change from block to filesystem"},
	{name: "too early", state: on(func(n *lh.Node) { n.Status.DiskStatus = nil }),
		request: [3]string{"POST", diskUpdate, `{"disks":{` + diskKept + `,"d2":{"path":"/d2"}}}`},
		edit:    addDisk(lh.DiskSpec{Path: "/d2"}), want: "being syncing and please retry later"},
	{name: "removal of a disk in use", request: [3]string{"POST", diskUpdate, `{"disks":{}}`},
		edit: on(func(n *lh.Node) { n.Spec.Disks = nil }),
		want: "Please disable the disk disk-1 first and remove all replicas and backing images first"},
	{name: "deletion", request: [3]string{"DELETE", putNode, ""},
		want: "could not delete node node-1 with node ready condition is True, reason is , node schedulable true, and 1 " +
			"replica and engine running on it: remove the Kubernetes node first, or end the manager Pod there; disable " +
			"scheduling with: ankole node scheduling off node-1; "},
}

var badVolumes = []badChange{
	{name: "growth while faulted", state: on(func(v *lh.Volume) { v.Status.Robustness = lh.VolumeRobustnessFaulted }),
		request: [3]string{"POST", actionOf + "expand", `{"size":"2Gi"}`}, edit: on(grown), want: "faulted; salvage it first"},
	{name: "growth of a clone", state: on(func(v *lh.Volume) {
		v.Status.CloneStatus.State = lh.VolumeCloneStateInitiated
	}), request: [3]string{"POST", actionOf + "expand", `{"size":"2Gi"}`}, edit: on(grown), want: "is being cloned"},
	{name: "growth while restoring", state: on(func(v *lh.Volume) { v.Status.RestoreRequired = true }),
		request: [3]string{"POST", actionOf + "expand", `{"size":"2Gi"}`}, edit: on(grown), want: "is restoring data"},
	{name: "growth while detaching", state: on(func(v *lh.Volume) {
		v.Spec.NodeID, v.Status.State = "", lh.VolumeStateDetaching
	}), request: [3]string{"POST", actionOf + "expand", `{"size":"2Gi"}`}, edit: on(grown),
		want: "invalid volume state to expand: volume demo is detaching"},
	{name: "end of a growth under way", state: func(o client.Object) {
		on(grown)(o)
		on(func(e *lh.Engine) { e.Status.IsExpanding = true })(o)
	}, request: [3]string{"POST", actionOf + "cancelExpansion", ""},
		edit: on(func(v *lh.Volume) { v.Spec.Size = 1 << 30 }), want: "the engine expansion is in progress"},
	{name: "locality", request: [3]string{"POST", actionOf + "updateDataLocality", `{"dataLocality":"strict-local"}`},
		edit: on(func(v *lh.Volume) { v.Spec.DataLocality = lh.DataLocalityStrictLocal }),
		want: "only while it is detached; it is attached, detach it first"},
	{name: "access mode", request: [3]string{"POST", actionOf + "updateAccessMode", `{"accessMode":"rwx"}`},
		edit: on(func(v *lh.Volume) { v.Spec.AccessMode = lh.AccessModeReadWriteMany }),
		want: "can only update volume access mode while volume is detached: volume demo is attached"},
	{name: "number of replicas", request: [3]string{"POST", actionOf + "updateReplicaCount", `{"replicaCount":21}`},
		edit: on(func(v *lh.Volume) { v.Spec.NumberOfReplicas = 21 }), want: "must between 1 to 20"},
	{name: "new, with a frontend", request: [3]string{"POST", "/v1/volumes", `{"name":"fresh","frontend":"iscsi"}`},
		create: freshVolume(func(v *lh.Volume) { v.Spec.Frontend = "iscsi" }), want: "this version has no iSCSI target"},
	{name: "new, with many replicas", request: [3]string{"POST", "/v1/volumes", `{"name":"fresh","numberOfReplicas":-1}`},
		create: freshVolume(func(v *lh.Volume) { v.Spec.NumberOfReplicas = -1 }), want: "must between 1 to 20"},
}

func grown(v *lh.Volume) { v.Spec.Size = 2 << 30 }

// freshVolume is a new volume as admission has completed it.
func freshVolume(edit func(*lh.Volume)) client.Object {
	v := &lh.Volume{ObjectMeta: resttest.Meta("fresh"), Spec: lh.VolumeSpec{Size: (2 << 20),
		Frontend: lh.VolumeFrontendBlockDev}}
	admission.MutateVolume(nil, v, nil)
	edit(v)
	return v
}

var badOthers = []badChange{
	{name: "the default image", plural: "engineimages", object: resttest.DeployedImage().Name,
		request: [3]string{"DELETE", "/v1/engineimages/" + resttest.DeployedImage().Name, ""},
		want:    "(ankole/engine:dev) is not allowed"},
	{name: "an image in use", plural: "engineimages", object: "ei-used",
		request: [3]string{"DELETE", "/v1/engineimages/ei-used", ""}, want: "not allowed while being used"},
	{name: "a backup target", plural: "backuptargets",
		request: [3]string{"POST", "/v1/backuptargets", `{"name":"new","pollInterval":"0","backupTargetURL":"ftp://x"}`},
		create:  newTarget("new", "ftp://x"), want: `invalid URL "ftp://x" of backup target new`},
	{name: "a backup target's name", plural: "backuptargets",
		request: [3]string{"POST", "/v1/backuptargets", `{"name":"A B","pollInterval":"0"}`},
		create:  newTarget("A B", ""), want: "invalid name A B for backup target"},
	{name: "what the system sets", plural: "settings", object: setting.DefaultEngineImage,
		request: [3]string{"PUT", "/v1/settings/default-engine-image", `{"value":"other:1"}`},
		edit:    on(func(s *lh.Setting) { s.Value = "other:1" }), want: "setting default-engine-image is read-only"},
	ofJob("cron", `"cron":"often"`, func(s *lh.RecurringJobSpec) { s.Cron = "often" }, "invalid cron format (often)"),
	ofJob("age", `"cron":"@daily","retainAge":"-1h"`, func(s *lh.RecurringJobSpec) { s.RetainAge = "-1h" },
		"retainAge -1h should not be negative"),
	ofJob("group", `"cron":"@daily","groups":["a b"]`, func(s *lh.RecurringJobSpec) { s.Groups = []string{"a b"} },
		`invalid group name "a b"`),
	ofJob("key", `"cron":"@daily","labels":{"a b":"c"}`, labelled("a b", "c"), `invalid key "a b" of a label`),
	ofJob("reserved key", `"cron":"@daily","labels":{"KubernetesStatus":"c"}`, labelled("KubernetesStatus", "c"),
		"label KubernetesStatus is reserved for the system"),
	ofJob("empty label", `"cron":"@daily","labels":{"a":""}`, labelled("a", ""), "label a has no value"),
	ofJob("parameter", `"cron":"@daily","parameters":{"speed":"5"}`, func(s *lh.RecurringJobSpec) {
		s.Parameters = map[string]string{"speed": "5"}
	}, `unknown parameter "speed"`),
}

func newTarget(name, url string) client.Object {
	return &lh.BackupTarget{ObjectMeta: resttest.Meta(name), Spec: lh.BackupTargetSpec{BackupTargetURL: url}}
}

// ofJob is a bad change of a recurring job; fields are what PUT sends.
func ofJob(name, fields string, edit func(*lh.RecurringJobSpec), want string) badChange {
	return badChange{name: name + " of a job", plural: "recurringjobs", object: "nightly",
		request: [3]string{"PUT", "/v1/recurringjobs/nightly", "{" + fields + "}"},
		edit: on(func(j *lh.RecurringJob) {
			j.Spec = lh.RecurringJobSpec{Name: "nightly", Task: j.Spec.Task, Cron: "@daily"}
			admission.CompleteRecurringJob(j)
			edit(&j.Spec)
		}), want: want}
}

func labelled(key, value string) func(*lh.RecurringJobSpec) {
	return func(s *lh.RecurringJobSpec) { s.Labels = map[string]string{key: value} }
}

// objects are a cluster on which every row of the tables is a bad change for one reason alone.
func (c badChange) objects() []client.Object {
	used := resttest.DeployedImage("node-1")
	used.Name, used.Spec.Image, used.Status.RefCount = "ei-used", "other:1", 2
	all := append(admissible(false), used, nightly(),
		&lh.Setting{ObjectMeta: resttest.Meta(setting.DefaultEngineImage), Value: resttest.Image})
	for _, o := range all {
		switch o := o.(type) {
		case *lh.Engine:
			o.Spec.NodeID = "" // one instance on the node is enough
			o.SetLabels(naming.VolumeLabels("demo"))
		case *lh.Replica:
			o.SetLabels(naming.VolumeLabels("demo"))
		}
		if c.state != nil && (o.GetName() == "node-1" || strings.HasPrefix(o.GetName(), "demo")) {
			c.state(o)
		}
	}
	return all
}

// byKubectl is what the webhook says to the change.
func (c badChange) byKubectl(t *testing.T) string {
	t.Helper()
	f := newFixture(t, c.objects()...)
	var err error
	switch {
	case c.create != nil:
		err = reviewOf(t, f.Client, c.plural, nil, c.create)
	default:
		old := map[string]client.Object{"nodes": &lh.Node{}, "volumes": &lh.Volume{}, "engineimages": &lh.EngineImage{},
			"settings": &lh.Setting{}, "recurringjobs": &lh.RecurringJob{}}[c.plural]
		f.Read(c.object, old)
		var changed client.Object
		if c.edit != nil {
			changed = old.DeepCopyObject().(client.Object)
			c.edit(changed)
		}
		err = reviewOf(t, f.Client, c.plural, old, changed)
	}
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), "denied the request: ")
	return text
}

// TestSameVerdictAtBothDoors: what REST refuses, the webhook refuses for the same reason and in the
// same words. REST's own words before them name the object, so that one that is only named in front
// is named once.
func TestSameVerdictAtBothDoors(t *testing.T) {
	for of, rows := range map[string][]badChange{"nodes": badNodes, "volumes": badVolumes, "": badOthers} {
		for _, c := range rows {
			if of != "" {
				c.plural, c.object = of, map[string]string{"nodes": "node-1", "volumes": "demo"}[of]
			}
			t.Run(c.name, func(t *testing.T) {
				f := newFixture(t, c.objects()...)
				before := f.State()
				a := f.Do(c.request[0], c.request[1], c.request[2])
				f.Refused(a, http.StatusInternalServerError, c.want)
				if after := f.State(); after != before {
					t.Errorf("the refused change was made:\n%s", difference(before, after))
				}
				said := c.byKubectl(t)
				text := said
				for _, object := range []string{"node node-1: ", "volume demo: ", "volume fresh: "} {
					text = strings.TrimPrefix(text, object)
				}
				if text == "" || !strings.HasSuffix(a.Message(), ": "+text) {
					t.Errorf("REST says    %q\nkubectl says %q", a.Message(), said)
				}
			})
		}
	}
}

// TestStoredTagsStay: tags of a node and of its disks that are stored, whatever they are, keep
// nothing else from being changed; new ones are judged.
func TestStoredTagsStay(t *testing.T) {
	objects := resttest.Cluster()
	n := objects[0].(*lh.Node)
	n.Spec.Tags = []string{"a b"}
	ofDisk(func(d *lh.DiskSpec) { d.Tags = []string{"c d"} })(n)
	f := newFixture(t, objects...)
	disks := func(tags string) string {
		return `{"disks":{"disk-1":{"path":"/var/lib/longhorn","tags":[` + tags + `]}}}`
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", putNode, `{"allowScheduling":false,"tags":["a b"]}`, 200},
		{"PUT", putNode, `{"allowScheduling":false,"tags":["a b","good"]}`, 200},
		{"PUT", putNode, `{"allowScheduling":false,"tags":["a b","c d"]}`, 500},
		{"POST", diskUpdate, disks(`"c d","good"`), 200},
		{"POST", diskUpdate, disks(`"a b"`), 500},
		{"POST", diskUpdate, disks(``), 200},
		{"POST", diskUpdate, disks(`"c d"`), 500},
	} {
		if a := f.Do(tt.method, tt.path, tt.body); a.Status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.body, a.Status, a.Text, tt.status)
		}
	}
}

// TestMarksOfTheSystem: the annotations by which the system itself may change and delete what is
// guarded hold for REST, too.
func TestMarksOfTheSystem(t *testing.T) {
	c := badChange{}
	for _, tt := range []struct {
		annotation string
		name       string
		request    [3]string
	}{
		{naming.AnnotationDeleteNode, "node-1", [3]string{"DELETE", putNode, ""}},
		{naming.AnnotationDeleteEngineImage, resttest.DeployedImage().Name,
			[3]string{"DELETE", "/v1/engineimages/" + resttest.DeployedImage().Name, ""}},
		{naming.AnnotationUpdateSetting, setting.DefaultEngineImage,
			[3]string{"PUT", "/v1/settings/default-engine-image", `{"value":"other:1"}`}},
	} {
		for _, marked := range []bool{false, true} {
			objects := c.objects()
			for _, o := range objects {
				if marked && o.GetName() == tt.name {
					o.SetAnnotations(map[string]string{tt.annotation: ""})
				}
			}
			a := newFixture(t, objects...).Do(tt.request[0], tt.request[1], tt.request[2])
			if want := map[bool]int{false: 500, true: 200}[marked]; a.Status != want {
				t.Errorf("%s, marked %v: %d %s", tt.annotation, marked, a.Status, a.Text)
			}
		}
	}
}
