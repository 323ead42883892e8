package naming

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

// TestSnapshotNames: what can be an object and a file of an engine (chain.TestLongestSnapshotName).
func TestSnapshotNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"s1": true, "a.b-c": true, strings.Repeat("x", 225): true, strings.Repeat("x", 226): false, "": false, "S1": false,
		"x_y": false, "-a": false, "a-": false, "volume-head": false, "a/b": false,
	} {
		if err := CheckSnapshotName(name); (err == nil) != ok {
			t.Errorf("%.40q: %v", name, err)
		}
	}
}

// TestImages: an image whose binaries no directory can be named for is none.
func TestDiskNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"default-disk-fd0000000000": true, "Fast disk/1": true, "Platte 3, ä": true, strings.Repeat("x", 253): true,
		strings.Repeat("x", 254): false, "": false, " d": false, "d ": false, "a\nb": false, "\xff": false, "a\x00b": false,
	} {
		if err := CheckDiskName(name); (err == nil) != ok {
			t.Errorf("%.40q: %v", name, err)
		}
	}
}

func TestImages(t *testing.T) {
	long := "registry/" + strings.Repeat("x", 245)
	for image, ok := range map[string]bool{
		"ankole/engine:dev": true, long: true, long + "xx": false, "": false, "a b": false, "..": false, "a\n": false,
	} {
		if err := CheckImage(image); (err == nil) != ok {
			t.Errorf("%.40q: %v", image, err)
		}
	}
}

// The hashes below were computed with sha512sum, sha256sum and sha224sum. Those of
// c3y1huang/research:175-lh-im and :174-lh-im are from published sample objects of the system we
// are compatible with.
func TestDerivedNames(t *testing.T) {
	const uuid = "9d7f4c1e-0000-4000-8000-000000000001"
	tests := []struct{ what, got, want string }{
		{"engine image", EngineImageName("longhornio/longhorn-engine:v1.5.0"), "ei-d911131c"},
		{"engine image, blanks around it", EngineImageName(" ankole/engine:dev\n"), "ei-5c11872e"},
		{"DaemonSet", EngineImageDaemonSetName("ei-5c11872e"), "engine-image-ei-5c11872e"},
		{"canonical image", CanonicalImage("registry:5000/ankole/engine:dev"), "registry-5000-ankole-engine-dev"},
		{"instance manager", InstanceManagerName("ip-10-0-1-113", "c3y1huang/research:175-lh-im"),
			"instance-manager-b34d5db1fe1e2d52bcfb308be3166cfc"},
		{"instance manager of another node", InstanceManagerName("ip-10-0-1-105", "c3y1huang/research:175-lh-im"),
			"instance-manager-8f81ca7c3bf95bbbf656be6ac2d1b7c4"},
		{"image label", InstanceManagerImageLabel("c3y1huang/research:175-lh-im"), "imi-8d41c3a4"},
		{"image label of an older image", InstanceManagerImageLabel("c3y1huang/research:174-lh-im"), "imi-a1873aa3"},
		{"PDB", PodDisruptionBudgetName("instance-manager-1"), "instance-manager-1"},
		{"first engine", EngineName("demo", 0), "demo-e-0"},
		{"next engine", NextEngineName("demo", "demo-e-9"), "demo-e-10"},
		{"next engine after a random name", NextEngineName("demo", "demo-e-06d4c77d"), "demo-e-1"},
		{"next engine after a random name of decimal digits", NextEngineName("demo", "demo-e-12345678"), "demo-e-1"},
		{"replica", ReplicaName("demo", "ca78cab4"), "demo-r-ca78cab4"},
		{"data directory", ReplicaDataDirectory("demo", "1a2b3c4d"), "demo-1a2b3c4d"},
		{"orphaned data", OrphanDataName("node-1", "disk-1", "/var/lib/longhorn", uuid, "demo-1a2b3c4d"),
			"orphan-70f442b50855f12253e5d708ab7aaf69d180575973aef3f7d1e9bc2e64b80ec1"},
		{"orphaned instance", OrphanInstanceName("demo-e-0", "3f2a9c54", "instance-manager-abc", "v1"),
			"orphan-a3290c8e7553f8c21ea604f9d2447c6e5477d794abe1cbc39e647b2e77cdadf3"},
		{"recurring snapshot", RecurringSnapshotName("daily-job", uuid), "daily-jo-" + uuid},
		{"recurring snapshot of a short job", RecurringSnapshotName("a", uuid), "a-c-" + uuid},
		{"recurring snapshot of a job with a dot", RecurringSnapshotName("nightly.job", uuid), "nightly-" + uuid},
		{"default disk", DefaultDiskName("7f1c0a"), "default-disk-7f1c0a"},
		{"ticket", AttachmentTicketID("longhorn-api", ""), "longhorn-api-"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: %q, want %q", test.what, test.got, test.want)
		}
	}
	if got := AttachmentTicketID("csi-attacher", strings.Repeat("x", 300)); len(got) != 253 {
		t.Errorf("a long ticket id has %d characters, want 253", len(got))
	}
}

func TestCorrectName(t *testing.T) {
	tests := []struct{ given, want string }{
		{"demo", "demo"},
		{"Demo", "demo"},
		{strings.Repeat("a", 40), strings.Repeat("a", 40)},
		{"a-volume-name-that-is-much-longer-than-forty-characters", "a-volume-name-that-is-much-long-730cb05e"},
		{"A-Volume-Name-That-Is-Much-Longer-Than-Forty-Characters", "a-volume-name-that-is-much-long-f2d13d77"},
	}
	for _, test := range tests {
		if got := CorrectName(test.given); got != test.want {
			t.Errorf("CorrectName(%q) = %q, want %q", test.given, got, test.want)
		}
	}
}

func TestCorrectedNamesOfLabelsAreVolumeNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z][a-zA-Z0-9-]{0,80}[a-z0-9]`).Draw(t, "name")
		corrected := CorrectName(name)
		if err := CheckVolumeName(corrected); err != nil {
			t.Fatalf("CorrectName(%q): %v", name, err)
		}
		if again := CorrectName(corrected); again != corrected {
			t.Fatalf("correcting %q twice gives %q, then %q", name, corrected, again)
		}
	})
}

func TestCheckVolumeName(t *testing.T) {
	good := []string{"ab", "pvc-9d7f4c1e-0000-4000-8000-000000000001", "0-0", strings.Repeat("v", 40)}
	bad := []string{"", "a", "-ab", "ab-", "Ab", "a_b", "a.b", "a b", "a/b", "ä-b", strings.Repeat("v", 41), "ab\n"}
	for _, name := range good {
		if err := CheckVolumeName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range bad {
		if err := CheckVolumeName(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	if err := CheckName("a_b.c"); err != nil {
		t.Errorf("general names may have dots and underscores: %v", err)
	}
}

func TestRandomNames(t *testing.T) {
	patterns := map[string]func() string{
		`^[0-9a-f]{8}$`:       RandomSuffix,
		`^snap-[0-9a-f]{16}$`: RandomSnapshotName,
	}
	for pattern, name := range patterns {
		a, b := name(), name()
		if !regexp.MustCompile(pattern).MatchString(a) {
			t.Errorf("%q does not match %s", a, pattern)
		}
		if a == b {
			t.Errorf("two names are equal: %q", a)
		}
	}
	if !IsReplicaDataDirectory(ReplicaDataDirectory("a-b", RandomSuffix())) {
		t.Error("a replica directory is not recognised")
	}
	for _, other := range []string{"lost+found", "demo", "demo-1a2b3c4", "demo-1a2b3c4d.tmp"} {
		if IsReplicaDataDirectory(other) {
			t.Errorf("%q is taken for a replica directory", other)
		}
	}
}

func TestPaths(t *testing.T) {
	tests := []struct{ what, got, want string }{
		{"engine binary", EngineBinaryInPod("ankole/engine:dev"), "/engine-binaries/ankole-engine-dev/longhorn"},
		{"replica binary", ReplicaBinaryInPod("ankole/engine:dev"),
			"/host/var/lib/longhorn/engine-binaries/ankole-engine-dev/longhorn"},
		{"replica", InHostMount(ReplicaPath("/var/lib/longhorn/", "demo-1a2b3c4d")),
			"/host/var/lib/longhorn/replicas/demo-1a2b3c4d"},
		{"disk configuration", DiskConfigPath("/mnt/disk/"), "/mnt/disk/longhorn-disk.cfg"},
		{"decrypted device", MappedDevicePath("demo"), "/dev/mapper/demo"},
		{"frontend", EngineFrontend("blockdev"), "tgt-blockdev"},
		{"frontend iscsi", EngineFrontend("iscsi"), "tgt-iscsi"},
		{"no frontend", EngineFrontend(""), ""},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: %q, want %q", test.what, test.got, test.want)
		}
	}
}

func TestParseCloneSource(t *testing.T) {
	tests := []struct {
		source, volume, snapshot string
		ok                       bool
	}{
		{"vol://demo", "demo", "", true},
		{CloneFromSnapshot("demo", "snap-1"), "demo", "snap-1", true},
		{"vol://", "", "", false},
		{"vol://a/b", "a", "", false},
		{"snap://a", "a", "", false},
		{"snap://a/b/c", "a", "b/c", false},
		{"demo", "", "", false},
	}
	for _, test := range tests {
		volume, snapshot, ok := ParseCloneSource(test.source)
		if ok != test.ok || ok && (volume != test.volume || snapshot != test.snapshot) {
			t.Errorf("ParseCloneSource(%q) = %q, %q, %v", test.source, volume, snapshot, ok)
		}
	}
}

// TestNodeLabel: a node's name is the value of labels as it is where Kubernetes takes it, and else
// one that Kubernetes takes, of this node only.
func TestNodeLabel(t *testing.T) {
	fits, long := strings.Repeat("a.b", 21), strings.Repeat("ab.", 23)+"c"
	if got := NodeLabel(fits); got != fits || len(fits) != 63 {
		t.Errorf("%s becomes %s", fits, got)
	}
	if NodeLabel(long) == NodeLabel(long+"d") {
		t.Errorf("%s and another node have %s", long, NodeLabel(long))
	}
	for what, labels := range map[string]map[string]string{
		"instance manager": InstanceManagerLabels(long, "image", "aio"),
		"orphan":           OrphanLabels(long, "replica-data"),
		"process":          OrphanInstanceLabels(long, "engine-instance", "im", LabelEngine, "demo-e-0"),
		"replica":          ReplicaLabels("demo", long, "disk", ""),
	} {
		named := false
		for key, value := range labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("%s: label %s: %v", what, key, problems)
			}
			named = named || value == NodeLabel(long)
		}
		if !named {
			t.Errorf("%s: no label of %v names the node", what, labels)
		}
	}
}

func TestLabels(t *testing.T) {
	labels := InstanceManagerLabels("ip-10-0-1-113", "c3y1huang/research:175-lh-im", "aio")
	want := map[string]string{
		"longhorn.io/component":              "instance-manager",
		"longhorn.io/instance-manager-image": "imi-8d41c3a4",
		"longhorn.io/instance-manager-type":  "aio",
		"longhorn.io/managed-by":             "longhorn-manager",
		"longhorn.io/node":                   "ip-10-0-1-113",
	}
	if len(labels) != len(want) {
		t.Errorf("%d labels, want %d", len(labels), len(want))
	}
	for key, value := range want {
		if labels[key] != value {
			t.Errorf("label %s = %q, want %q", key, labels[key], value)
		}
	}
	long := strings.Repeat("a", 64)
	for name, want := range map[string]int{"demo-e-0": 6, long: 5} {
		if got := OrphanInstanceLabels("n1", "engine-instance", "im", LabelEngine, name); len(got) != want ||
			want == 6 && got["longhornengine"] != name || got["longhorn.io/component"] != "orphan" {
			t.Errorf("labels of an orphan %v", got)
		}
	}
	replica := ReplicaLabels("demo", "", "", "")
	if len(replica) != 1 || replica[LabelVolume] != "demo" {
		t.Errorf("a replica without a place has labels %v", replica)
	}
}

// TestBackingImageNames has names and labels of what keeps backing images.
func TestBackingImageNames(t *testing.T) {
	// printf '%s' image:1-d1 | sha224sum
	const name = "bim-e3f90f96264b5743888509efdd1d1bec2fa342f76ce6d301e70c5daa"
	if got := BackingImageManagerName("image:1", "d1"); got != name {
		t.Errorf("%s, want %s", got, name)
	}
	if got := BackingImageDataSourcePodName("iso"); got != "backing-image-ds-iso" {
		t.Error(got)
	}
	for _, tt := range []struct{ got, want map[string]string }{
		{BackingImageLabels(), map[string]string{"longhorn.io/component": "backing-image",
			"longhorn.io/managed-by": "longhorn-manager"}},
		{BackingImageManagerLabels("n1", "d1"), map[string]string{"longhorn.io/component": "backing-image-manager",
			"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/node": "n1", "longhorn.io/disk-uuid": "d1"}},
		{BackingImageDataSourceLabels("iso", "n1", "d1"), map[string]string{
			"longhorn.io/component": "backing-image-data-source", "longhorn.io/managed-by": "longhorn-manager",
			"longhorn.io/node": "n1", "longhorn.io/disk-uuid": "d1", "longhorn.io/backing-image-data-source": "iso"}},
	} {
		if !maps.Equal(tt.got, tt.want) {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
}
