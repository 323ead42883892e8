package csi

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
		want        func(w *wish)
	}{
		{"numberOfReplicas", "2", func(w *wish) { w.volume.NumberOfReplicas = 2 }},
		{"NumberOfReplicas", "2", func(w *wish) { w.volume.NumberOfReplicas = 2 }},
		{"staleReplicaTimeout", "30", func(w *wish) { w.volume.StaleReplicaTimeout = 30 }},
		{"dataLocality", "best-effort", func(w *wish) { w.volume.DataLocality = "best-effort" }},
		{"dataLocality", "disabled", func(w *wish) { w.volume.DataLocality = "disabled" }},
		{"dataLocality", "", func(*wish) {}},
		{"replicaAutoBalance", "least-effort", func(w *wish) { w.volume.ReplicaAutoBalance = "least-effort" }},
		{"diskSelector", "ssd, fast,", func(w *wish) { w.volume.DiskSelector = []string{"ssd", "fast"} }},
		{"nodeSelector", "storage", func(w *wish) { w.volume.NodeSelector = []string{"storage"} }},
		{"migratable", "true", func(w *wish) { w.volume.Migratable = true }},
		{"exclusive", "true", func(w *wish) { w.exclusive = true }},
		{"encrypted", "false", func(*wish) {}},
		{"encrypted", "true", func(w *wish) { w.volume.Encrypted = true }},
		{"share", "false", func(*wish) {}},
		{"disableRevisionCounter", "false", func(w *wish) { w.volume.RevisionCounterDisabled = false }},
		{"unmapMarkSnapChainRemoved", "enabled", func(w *wish) { w.volume.UnmapMarkSnapChainRemoved = "enabled" }},
		{"replicaSoftAntiAffinity", "enabled", func(w *wish) { w.volume.ReplicaSoftAntiAffinity = "enabled" }},
		{"replicaZoneSoftAntiAffinity", "disabled", func(w *wish) { w.volume.ReplicaZoneSoftAntiAffinity = "disabled" }},
		{"replicaDiskSoftAntiAffinity", "ignored", func(w *wish) { w.volume.ReplicaDiskSoftAntiAffinity = "ignored" }},
		{"frontend", "blockdev", func(w *wish) { w.volume.Frontend = "blockdev" }},
		{"freezeFilesystemForSnapshot", "enabled", func(w *wish) { w.volume.FreezeFilesystemForSnapshot = "enabled" }},
		{"backupTargetName", "second", func(w *wish) { w.volume.BackupTargetName = "second" }},
		{"backupBlockSize", "16Mi", func(w *wish) { w.volume.BackupBlockSize = "16Mi" }},
		{"fromBackup", "s3://b@r/?backup=x&volume=y", func(w *wish) {
			w.volume.FromBackup = "s3://b@r/?backup=x&volume=y"
		}},
		{"dataSource", "", func(*wish) {}},
		{"cloneMode", "full-copy", func(w *wish) { w.volume.CloneMode = "full-copy" }},
		{"recurringJobSelector", `[{"name":"daily","isGroup":false},{"name":"g","isGroup":true}]`, func(w *wish) {
			w.volume.RecurringJobSelector = []client.RecurringJobName{{Name: "daily"}, {Name: "g", IsGroup: true}}
		}},
		{"dataEngine", "v1", func(w *wish) { w.volume.DataEngine = "v1" }},
		{"fsType", "xfs", func(w *wish) { w.fsType = "xfs" }},
		{"csi.storage.k8s.io/fstype", "ext4", func(w *wish) { w.fsType = "ext4" }},
		{"csi.storage.k8s.io/pvc/name", "claim", func(*wish) {}},
		{"mkfsParams", "-b 1024  -O ^64bit", func(w *wish) { w.mkfs = []string{"-b", "1024", "-O", "^64bit"} }},
		{"nfsOptions", "vers=4.2", func(*wish) {}},
		{"volumeTopology", "zonal", func(w *wish) { w.topologyMode = "zonal" }},
		{"strictTopology", "true", func(w *wish) { w.strict = true }},
		{"storageCapacityMode", "node", func(w *wish) { w.capacity = "node" }},
	} {
		want, _, _ := parse(nil)
		tc.want(&want)
		got, unknown, err := parse(map[string]string{tc.name: tc.value})
		if err != nil || len(unknown) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s=%s: %+v, unknown %v, %v; want %+v", tc.name, tc.value, got, unknown, err, want)
		}
	}
}

// TestDefaults: what a class without parameters means, as in the reference.
func TestDefaults(t *testing.T) {
	w, _, err := parse(nil)
	if err != nil || w.volume.StaleReplicaTimeout != 2880 || !w.volume.RevisionCounterDisabled ||
		w.volume.NumberOfReplicas != 0 {
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
		{"backingImage", "image", "backing images"}, {"backupBlockSize", "much", "quantity"},
		{"recurringJobSelector", "daily", "isGroup"}, {"recurringJobSelector", `[{"nam":"daily"}]`, "nam"},
		{"recurringJobSelector", `[{"isGroup":true}]`, "without a name"}, {"dataEngine", "v2", "v1"}, {"fsType", "btrfs",
			"ext4"},
		{"frontend", "iscsi", "blockdev"}, {"cloneMode", "linked-clone", "full-copy"}, {"volumeTopology", "local", "zonal"},
		{"storageCapacityMode", "rack", "zone"}, {"strictTopology", "2", "true or false"},
	} {
		_, _, err := parse(map[string]string{tc.name: tc.value})
		csitest.Wants(t, err, codes.InvalidArgument)
		csitest.Says(t, err, tc.name, tc.words)
	}
}

// TestUnknownParameters: classes in use have parameters of other versions.
func TestUnknownParameters(t *testing.T) {
	_, unknown, err := parse(map[string]string{"baseImage": "", "replicaCount": "3", "csi.storage.k8s.io/pv/name": "x"})
	if err != nil || !slices.Equal(unknown, []string{"baseImage", "replicaCount"}) {
		t.Errorf("%v, %v", unknown, err)
	}
}

// TestMutableParameters: what a VolumeAttributesClass may change, and by which action.
func TestMutableParameters(t *testing.T) {
	got, err := parseMutable(map[string]string{"numberOfReplicas": "2", "dataLocality": "best-effort"})
	want := []change{{"dataLocality", "updateDataLocality", map[string]any{"dataLocality": "best-effort"}},
		{"numberOfReplicas", "updateReplicaCount", map[string]any{"replicaCount": 2}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []map[string]string{{"fsType": "xfs"}, {"nonsense": "1"}, {"numberOfReplicas": "0"},
		{"migratable": "true"}} {
		_, err := parseMutable(bad)
		csitest.Wants(t, err, codes.InvalidArgument)
	}
}
