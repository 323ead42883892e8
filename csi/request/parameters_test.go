package request

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/client"
)

// referenceParameters are the names of StorageClass parameters that the reference documents.
var referenceParameters = strings.Fields(`numberOfReplicas staleReplicaTimeout fromBackup fsType mkfsParams nfsOptions
	dataLocality replicaAutoBalance diskSelector nodeSelector migratable encrypted share exclusive disableRevisionCounter
	unmapMarkSnapChainRemoved replicaSoftAntiAffinity replicaZoneSoftAntiAffinity replicaDiskSoftAntiAffinity frontend
	backupTargetName backupBlockSize dataSource cloneMode backingImage backingImageDataSourceType
	backingImageDataSourceParameters backingImageChecksum backingImageMinNumberOfCopies backingImageNodeSelector
	backingImageDiskSelector recurringJobSelector shareManagerNodeSelector shareManagerTolerations
	freezeFilesystemForSnapshot strictTopology volumeTopology storageCapacityMode dataEngine`)

// TestEveryParameterIsKnown: of the reference's parameters none is passed over.
func TestEveryParameterIsKnown(t *testing.T) {
	for _, name := range referenceParameters {
		if _, ok := find(name); !ok {
			t.Errorf("parameter %s is not in the table", name)
		}
	}
	var names []string
	for _, p := range parameters {
		if slices.Contains(names, strings.ToLower(p.name)) {
			t.Errorf("parameter %s is there twice", p.name)
		}
		names = append(names, strings.ToLower(p.name))
	}
}

// TestParameters: what each value means, alone.
func TestParameters(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		want        func(w *Wish)
	}{
		{"numberOfReplicas", "2", func(w *Wish) { w.Volume.NumberOfReplicas = 2 }},
		{"NumberOfReplicas", "2", func(w *Wish) { w.Volume.NumberOfReplicas = 2 }},
		{"staleReplicaTimeout", "30", func(w *Wish) { w.Volume.StaleReplicaTimeout = 30 }},
		{"dataLocality", "best-effort", func(w *Wish) { w.Volume.DataLocality = "best-effort" }},
		{"dataLocality", "disabled", func(w *Wish) { w.Volume.DataLocality = "disabled" }},
		{"dataLocality", "", func(*Wish) {}},
		{"replicaAutoBalance", "least-effort", func(w *Wish) { w.Volume.ReplicaAutoBalance = "least-effort" }},
		{"diskSelector", "ssd, fast,", func(w *Wish) { w.Volume.DiskSelector = []string{"ssd", "fast"} }},
		{"nodeSelector", "storage", func(w *Wish) { w.Volume.NodeSelector = []string{"storage"} }},
		{"migratable", "true", func(w *Wish) { w.Volume.Migratable = true }},
		{"exclusive", "true", func(w *Wish) { w.Exclusive = true }},
		{"encrypted", "false", func(*Wish) {}},
		{"encrypted", "true", func(w *Wish) { w.Volume.Encrypted = true }},
		{"share", "false", func(*Wish) {}},
		{"disableRevisionCounter", "false", func(w *Wish) { w.Volume.RevisionCounterDisabled = false }},
		{"unmapMarkSnapChainRemoved", "enabled", func(w *Wish) { w.Volume.UnmapMarkSnapChainRemoved = "enabled" }},
		{"replicaSoftAntiAffinity", "enabled", func(w *Wish) { w.Volume.ReplicaSoftAntiAffinity = "enabled" }},
		{"replicaZoneSoftAntiAffinity", "disabled", func(w *Wish) { w.Volume.ReplicaZoneSoftAntiAffinity = "disabled" }},
		{"replicaDiskSoftAntiAffinity", "ignored", func(w *Wish) { w.Volume.ReplicaDiskSoftAntiAffinity = "ignored" }},
		{"frontend", "blockdev", func(w *Wish) { w.Volume.Frontend = "blockdev" }},
		{"freezeFilesystemForSnapshot", "enabled", func(w *Wish) { w.Volume.FreezeFilesystemForSnapshot = "enabled" }},
		{"backupTargetName", "second", func(w *Wish) { w.Volume.BackupTargetName = "second" }},
		{"backupBlockSize", "16Mi", func(w *Wish) { w.Volume.BackupBlockSize = "16Mi" }},
		{"fromBackup", "s3://b@r/?backup=x&volume=y", func(w *Wish) {
			w.Volume.FromBackup = "s3://b@r/?backup=x&volume=y"
		}},
		{"dataSource", "", func(*Wish) {}},
		{"cloneMode", "full-copy", func(w *Wish) { w.Volume.CloneMode = "full-copy" }},
		{"recurringJobSelector", `[{"name":"daily","isGroup":false},{"name":"g","isGroup":true}]`, func(w *Wish) {
			w.Volume.RecurringJobSelector = []client.RecurringJobName{{Name: "daily"}, {Name: "g", IsGroup: true}}
		}},
		{"dataEngine", "v1", func(w *Wish) { w.Volume.DataEngine = "v1" }},
		{"fsType", "xfs", func(w *Wish) { w.FSType = "xfs" }},
		{"csi.storage.k8s.io/fstype", "ext4", func(w *Wish) { w.FSType = "ext4" }},
		{"csi.storage.k8s.io/pvc/name", "claim", func(*Wish) {}},
		{"mkfsParams", "-b 1024  -O ^64bit", func(w *Wish) { w.Mkfs = []string{"-b", "1024", "-O", "^64bit"} }},
		{"nfsOptions", "vers=4.2", func(*Wish) {}},
		{"volumeTopology", "zonal", func(w *Wish) { w.TopologyMode = "zonal" }},
		{"strictTopology", "true", func(w *Wish) { w.Strict = true }},
		{"backingImageDataSourceType", "export-from-volume", func(w *Wish) { w.Image.SourceType = "export-from-volume" }},
		{"backingImageDataSourceParameters", `{"volume-name": "v", "export-type": "raw"}`, func(w *Wish) {
			w.Image.Parameters = map[string]string{"volume-name": "v", "export-type": "raw"}
		}},
		{"backingImageChecksum", "sum", func(w *Wish) { w.Image.ExpectedChecksum = "sum" }},
		{"backingImageMinNumberOfCopies", "2", func(w *Wish) { w.Image.MinNumberOfCopies = 2 }},
		{"backingImageNodeSelector", "storage, fast", func(w *Wish) { w.Image.NodeSelector = []string{"storage", "fast"} }},
		{"backingImageDiskSelector", "ssd", func(w *Wish) { w.Image.DiskSelector = []string{"ssd"} }},
		{"storageCapacityMode", "node", func(w *Wish) { w.Capacity = "node" }},
	} {
		want, _, _ := ParseClass(nil)
		tc.want(&want)
		got, unknown, err := ParseClass(map[string]string{tc.name: tc.value})
		if err != nil || len(unknown) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s=%s: %+v, unknown %v, %v; want %+v", tc.name, tc.value, got, unknown, err, want)
		}
	}
}

// TestDefaults: what a class without parameters means, as in the reference.
func TestDefaults(t *testing.T) {
	w, _, err := ParseClass(nil)
	if err != nil || w.Volume.StaleReplicaTimeout != 2880 || !w.Volume.RevisionCounterDisabled ||
		w.Volume.NumberOfReplicas != 0 {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestBadParameters: each says which parameter, which value, and what would do.
func TestBadParameters(t *testing.T) {
	for _, tc := range []struct{ name, value, words string }{
		{"numberOfReplicas", "0", "1 to 20"}, {"numberOfReplicas", "21", "1 to 20"}, {"numberOfReplicas", "three", "1 to 20"},
		{"staleReplicaTimeout", "-1", "number"}, {"dataLocality", "sometimes", "best-effort"},
		{"replicaAutoBalance", "yes", "least-effort"}, {"migratable", "maybe", "true or false"},
		{"encrypted", "maybe", "true or false"}, {"share", "true", "shares"},
		{"dataSource", "vol://a", "spec.dataSource"},
		{"backingImageDataSourceType", "torrent", "export-from-volume"},
		{"backingImageDataSourceParameters", "url=x", "is not an object such as"},
		{"backingImageDataSourceParameters", `{"concurrent-limit": 2}`, "is not an object such as"},
		{"backingImageMinNumberOfCopies", "0", "1 or more"}, {"backupBlockSize", "much", "quantity"},
		{"recurringJobSelector", "daily", "isGroup"}, {"recurringJobSelector", `[{"nam":"daily"}]`, "nam"},
		{"recurringJobSelector", `[{"isGroup":true}]`, "without a name"}, {"dataEngine", "v2", "v1"}, {"fsType", "btrfs",
			"ext4"},
		{"frontend", "iscsi", "blockdev"}, {"cloneMode", "linked-clone", "full-copy"}, {"volumeTopology", "local", "zonal"},
		{"storageCapacityMode", "rack", "zone"}, {"strictTopology", "2", "true or false"},
	} {
		_, _, err := ParseClass(map[string]string{tc.name: tc.value})
		csitest.Wants(t, err, codes.InvalidArgument)
		csitest.Says(t, err, tc.name, tc.words)
	}
}

// TestUnknownParameters: classes in use have parameters of other versions.
func TestUnknownParameters(t *testing.T) {
	_, unknown, err := ParseClass(map[string]string{"baseImage": "", "replicaCount": "3",
		"csi.storage.k8s.io/pv/name": "x"})
	if err != nil || !slices.Equal(unknown, []string{"baseImage", "replicaCount"}) {
		t.Errorf("%v, %v", unknown, err)
	}
}

// TestMutableParameters: what a VolumeAttributesClass may change, and by which action.
func TestMutableParameters(t *testing.T) {
	got, err := ParseMutable(map[string]string{"numberOfReplicas": "2", "dataLocality": "best-effort"})
	want := []Change{{"dataLocality", "updateDataLocality", map[string]any{"dataLocality": "best-effort"}},
		{"numberOfReplicas", "updateReplicaCount", map[string]any{"replicaCount": 2}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []map[string]string{{"fsType": "xfs"}, {"nonsense": "1"}, {"numberOfReplicas": "0"},
		{"migratable": "true"}} {
		_, err := ParseMutable(bad)
		csitest.Wants(t, err, codes.InvalidArgument)
	}
}
