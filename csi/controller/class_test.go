package controller

import (
	"context"
	"log/slog"
	"maps"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// wholeClass has every parameter that this version knows, with a value that is not the default
// where there is another one.
var wholeClass = map[string]string{
	"numberOfReplicas": "2", "staleReplicaTimeout": "31", "dataLocality": "best-effort",
	"replicaAutoBalance": "least-effort", "diskSelector": "ssd", "nodeSelector": "fast", "migratable": "true",
	"encrypted": "true", "share": "false", "exclusive": "false", "disableRevisionCounter": "false",
	"unmapMarkSnapChainRemoved": "enabled", "replicaSoftAntiAffinity": "enabled",
	"replicaZoneSoftAntiAffinity": "disabled", "replicaDiskSoftAntiAffinity": "enabled", "frontend": "blockdev",
	"freezeFilesystemForSnapshot": "enabled", "snapshotDataIntegrity": "fast-check", "snapshotMaxCount": "50",
	"snapshotMaxSize": "8Gi", "offlineRebuilding": "enabled", "rebuildConcurrentSyncLimit": "4",
	"backingImageDataSourceType": "download", "backingImageChecksum": imageSum,
	"backingImageMinNumberOfCopies":    "2",
	"backingImageDataSourceParameters": `{"url":"https://example.org/i"}`,
	"backingImageNodeSelector":         "storage",
	"backingImageDiskSelector":         "hdd",
	"backingImage":                     "golden",
	"backupTargetName":                 "second", "backupBlockSize": "16Mi", "cloneMode": "full-copy",
	"recurringJobSelector": `[{"name":"daily","isGroup":false},{"name":"weekly","isGroup":true}]`, "dataEngine": "v1",
	"fsType": "xfs", "csi.storage.k8s.io/fstype": "xfs", "volumeTopology": "zonal", "strictTopology": "true",
	"storageCapacityMode": "zone", "mkfsParams": "-m bigtime=0", "nfsOptions": "vers=4.2",
	"deleteSnapshotsWithVolume": "true",
	"shareManagerNodeSelector":  "kind:storage", "shareManagerTolerations": "kind=storage:NoSchedule",
}

// imageSum is the checksum of image golden.
var imageSum = strings.Repeat("0a", 64)

// wholeWish is what that class asks for, of a claim of 1 GiB for block volumes on several nodes.
func wholeWish() request.Wish {
	return request.Wish{Volume: client.VolumeSpec{Name: "pvc-1", Size: "1073741824", NumberOfReplicas: 2,
		Frontend:     "blockdev",
		DataLocality: "best-effort", AccessMode: "rwx", StaleReplicaTimeout: 31, DiskSelector: []string{"ssd"},
		NodeSelector: []string{"fast"}, Migratable: true, Encrypted: true,
		CloneMode: "full-copy", DataEngine: "v1", ReplicaAutoBalance: "least-effort",
		ReplicaSoftAntiAffinity: "enabled", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "enabled",
		UnmapMarkSnapChainRemoved: "enabled", FreezeFilesystemForSnapshot: "enabled", SnapshotDataIntegrity: "fast-check",
		SnapshotMaxCount: 50, SnapshotMaxSize: "8Gi", OfflineRebuilding: "enabled", RebuildConcurrentSyncLimit: 4,
		BackingImage: "golden", BackupTargetName: "second", BackupBlockSize: "16Mi", DeleteSnapshotsWithVolume: true,
		RecurringJobSelector: []client.RecurringJobName{{Name: "daily"}, {Name: "weekly", IsGroup: true}},
		TopologyRequirement:  []resource.TopologyTerm{{Zone: "zone-1"}}},
		Image: client.BackingImageSpec{Name: "golden", SourceType: "download", ExpectedChecksum: imageSum,
			Parameters: map[string]string{"url": "https://example.org/i"}, MinNumberOfCopies: 2,
			NodeSelector: []string{"storage"}, DiskSelector: []string{"hdd"}},
		FSType: "xfs", Mkfs: []string{"-m", "bigtime=0"}, TopologyMode: request.TopologyZonal, Strict: true,
		Capacity: request.CapacityOfZone}
}

// wholeVolume is the object that the manager makes of it.
func wholeVolume() lh.Volume {
	return lh.Volume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"recurring-job.longhorn.io/daily": "enabled",
		"recurring-job-group.longhorn.io/weekly": "enabled"}},
		Spec: lh.VolumeSpec{AccessMode: "rwx", BackingImage: "golden",
			BackupBlockSize: 16 << 20, BackupTargetName: "second", CloneMode: "full-copy",
			DataEngine: "v1", DataLocality: "best-effort",
			DeleteSnapshotsWithVolume: true, DiskSelector: []string{"ssd"},
			Encrypted: true, FreezeFilesystemForSnapshot: "enabled", Frontend: "blockdev", Migratable: true,
			NodeSelector: []string{"fast"}, NumberOfReplicas: 2, OfflineRebuilding: "enabled", RebuildConcurrentSyncLimit: 4,
			ReplicaAutoBalance: "least-effort", ReplicaDiskSoftAntiAffinity: "enabled", ReplicaSoftAntiAffinity: "enabled",
			ReplicaZoneSoftAntiAffinity: "disabled", Size: gib,
			SnapshotDataIntegrity: "fast-check", SnapshotMaxCount: 50, SnapshotMaxSize: 8 << 30, StaleReplicaTimeout: 31,
			TopologyRequirement:       []lh.TopologyTerm{{Zone: "zone-1"}},
			UnmapMarkSnapChainRemoved: "enabled"}}
}

// settling is a manager's API behind which controllers have done at once what is to be done for a
// new volume.
type settling struct {
	request.Manager
	ordered []client.VolumeSpec
}

func (m *settling) CreateVolume(ctx context.Context, s client.VolumeSpec) (*resource.Volume, error) {
	m.ordered = append(m.ordered, s)
	return m.Manager.CreateVolume(ctx, s)
}

func (m *settling) Volume(ctx context.Context, name string) (*resource.Volume, error) {
	v, err := m.Manager.Volume(ctx, name)
	if err == nil {
		v.State, v.Ready, v.CloneStatus.State = stateDetached, true, string(lh.VolumeCloneStateCompleted)
		v.Controllers = []resource.Controller{{Size: v.Size}}
	}
	return v, err
}

// Setting: the one that is read is of the topology.
func (m *settling) Setting(context.Context, string) (*resource.Setting, error) {
	return &resource.Setting{Name: request.TopologySetting, Value: request.LabelZone}, nil
}

// TestWholeClass: every parameter of a class, all at once, reaches the manager, and the object that
// the manager makes has all of them, and nothing else.
func TestWholeClass(t *testing.T) {
	for _, name := range request.Parameters() {
		_, _, refusal := request.ParseClass(map[string]string{name: "anything"})
		// TestRestoredByItsClass has fromBackup, which does not go together with a source.
		if _, given := wholeClass[name]; !given && !(refusal != nil && missing(name)) && name != "fromBackup" {
			t.Errorf("parameter %s is not in the class", name)
		}
	}
	source := resttest.Volume("source")
	source[0].(*lh.Volume).Spec.Encrypted = true
	golden := &lh.BackingImage{ObjectMeta: metav1.ObjectMeta{Namespace: lh.Namespace, Name: "golden"},
		Spec: lh.BackingImageSpec{Secret: "key", SourceType: lh.BackingImageSourceTypeDownload,
			SourceParameters: map[string]string{"url": "https://example.org/i"}},
		Status: lh.BackingImageStatus{Checksum: imageSum, DiskFileStatusMap: map[string]lh.BackingImageDiskFileStatus{
			"d1": {State: lh.BackingImageStateReady}}}}
	api := resttest.Client(t, interceptor.Funcs{}, resttest.Cluster(append(source, golden)...)...)
	server, err := rest.New(rest.Config{EngineImage: resttest.Image,
		Config: serve.Config{Client: api, Open: true, Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	through, err := client.New(web.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	m := &settling{Manager: through}
	c := newController(newFake())
	c.manager = m
	r := createRequest("pvc-1", gib)
	r.VolumeCapabilities, r.Parameters = []*spec.VolumeCapability{csitest.Capability("", csitest.Many)},
		maps.Clone(wholeClass)
	r.AccessibilityRequirements = &spec.TopologyRequirement{Requisite: []*spec.Topology{
		{Segments: map[string]string{request.LabelZone: "zone-1"}}}}
	o, err := c.judge(r)
	o.Volume.Size = "1073741824" // which the source decides
	if want := wholeWish(); err != nil || !reflect.DeepEqual(o.Wish, want) {
		t.Errorf("asked for\n%+v, %v; want\n%+v", o.Wish, err, want)
	}
	v := ordered(t, c, r)
	if !maps.Equal(v.VolumeContext, wholeClass) || v.CapacityBytes != gib || len(v.AccessibleTopology) != 1 {
		t.Errorf("answered %+v", v)
	}
	if want := wholeWish().Volume; len(m.ordered) != 1 || !reflect.DeepEqual(m.ordered[0], want) {
		t.Errorf("ordered\n%+v, want\n%+v", m.ordered, want)
	}
	var got lh.Volume
	if err := api.Get(background, kube.ObjectKey{Namespace: lh.Namespace, Name: "pvc-1"}, &got); err != nil {
		t.Fatal(err)
	}
	if want := wholeVolume(); !reflect.DeepEqual(got.Spec, want.Spec) || !maps.Equal(got.Labels, want.Labels) {
		t.Errorf("the object is\n%+v, %v; want\n%+v, %v", got.Spec, got.Labels, want.Spec, want.Labels)
	}
	if again := ordered(t, c, r); again.String() != v.String() || len(m.ordered) != 1 {
		t.Errorf("asked again: %v after %v, ordered %d times", again, v, len(m.ordered))
	}
}

// missing reports whether a parameter is for what this version does not have, or gives nobody.
func missing(name string) bool {
	return name == "dataSource"
}
