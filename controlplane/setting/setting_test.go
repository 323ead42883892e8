package setting

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// settingFact is a row of the description of the interface, made by tools/facts.
type settingFact struct {
	Name, Category, Type, Default, Minimum, Maximum string
	Options                                         []string
	Required, ReadOnly, DataEngineSpecific          bool
}

// rowCounts is how many settings the description has per category, so that a parser that loses rows
// is caught.
var rowCounts = map[Category]int{
	CategoryGeneral: 44, CategoryDangerZone: 15, CategoryScheduling: 12, CategorySnapshot: 10, CategoryBackup: 11,
	CategoryOrphan: 2, CategorySystemInfo: 8,
}

// notDescribed are settings of ours outside of the tables, with the reason.
var notDescribed = map[string]string{
	BlockDeviceTransport:            "addition: which transport makes the block device",
	BlockDeviceWait:                 "addition: how long the block device waits without an engine",
	APIAnonymousAccess:              "addition: what callers without a token may do",
	APIHostNames:                    "addition: names by which such callers may ask",
	APITokenAudience:                "addition: which tokens callers may show",
	AllowedImageRegistries:          "addition: where what runs on nodes may come from",
	AllowedDiskPaths:                "addition: where disks may be",
	SnapshotSpaceFactor:             "addition: what snapshots of a new volume may occupy",
	ClaimsLeaveDefaultJobs:          "addition: whether a claim takes its volume out of group default",
	BackupVerifyInterval:            "addition: when backups are verified by themselves",
	BackupVerifyBandwidthLimit:      "addition: how fast backups are verified",
	BackupBandwidthLimit:            "addition: what backups of a node may take of its network",
	ReplicaRebuildingBandwidthLimit: "addition: in the description it is one of data engine v2",
}

func init() {
	for _, d := range foreignDefinitions {
		notDescribed[d.Name] = "of data engine v2, which the description leaves out"
	}
}

func facts(t *testing.T) []settingFact {
	t.Helper()
	text, err := os.ReadFile("testdata/settings_facts.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []settingFact
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTableAgreesWithDescription(t *testing.T) {
	counts := map[Category]int{}
	described := map[string]bool{}
	for _, fact := range facts(t) {
		counts[Category(fact.Category)]++
		described[fact.Name] = true
		d, err := Lookup(fact.Name)
		if err != nil {
			t.Errorf("setting %s is missing", fact.Name)
			continue
		}
		got := settingFact{
			Name: d.Name, Category: string(d.Category), Type: string(d.Type), Default: ownDefault(d), Options: d.Options,
			Required: d.Required, ReadOnly: d.ReadOnly, DataEngineSpecific: d.DataEngineSpecific,
		}
		if d.Range != nil {
			got.Minimum = strconv.Itoa(d.Range.Minimum)
			if d.Range.Maximum != nil {
				got.Maximum = strconv.Itoa(*d.Range.Maximum)
			}
		}
		gotText, _ := json.Marshal(got)
		wantText, _ := json.Marshal(fact)
		if string(gotText) != string(wantText) {
			t.Errorf("%s:\n got %s\nwant %s", fact.Name, gotText, wantText)
		}
	}
	for category, want := range rowCounts {
		if counts[category] != want {
			t.Errorf("category %s has %d rows in the facts, want %d", category, counts[category], want)
		}
	}
	for _, d := range Definitions() {
		if !described[d.Name] && notDescribed[d.Name] == "" {
			t.Errorf("setting %s is not in the description and has no reason", d.Name)
		}
		if described[d.Name] && notDescribed[d.Name] != "" {
			t.Errorf("setting %s is in the description after all", d.Name)
		}
	}
}

// ownDefault is the default without the values of data engines that the description leaves out.
func ownDefault(d Definition) string {
	if !d.DataEngineSpecific {
		return d.Default
	}
	return joinEngines(map[string]string{DataEngine: Plain(d, d.Default)})
}

func TestTableIsSound(t *testing.T) {
	all := Definitions()
	if want := 125 + len(legacyDefinitions); len(all) != want || len(byName) != want {
		t.Errorf("%d settings with %d names, want %d of each", len(all), len(byName), want)
	}
	for _, d := range all {
		if d.DisplayName == "" || len(d.Description) < 20 || !strings.HasSuffix(d.Description, ".") {
			t.Errorf("%s: no display name or no description", d.Name)
		}
		if _, replaced := Replaced[d.Name]; replaced {
			t.Errorf("%s is in the table and replaced", d.Name)
		}
		if d.Default != "" {
			if err := Validate(d.Name, d.Default); err != nil {
				t.Errorf("default of %s: %v", d.Name, err)
			}
			if got := Normalize(d.Name, d.Default); got != d.Default && d.Name != DefaultDataPath &&
				d.Name != DefaultControlPath {
				t.Errorf("default of %s is %q, normalised it is %q", d.Name, d.Default, got)
			}
		} else if d.Type != TypeString && d.Type != TypeDeprecated {
			t.Errorf("%s of type %s has no default", d.Name, d.Type)
		}
		if d.Range != nil && d.Type != TypeInt && d.Type != TypeFloat {
			t.Errorf("%s of type %s has a range", d.Name, d.Type)
		}
		for name := range forms {
			if d.Name == name && d.Type != TypeString {
				t.Errorf("%s of type %s has a form", d.Name, d.Type)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name, value string
		// why is a part of the message, empty if the value is good.
		why string
	}{
		{DefaultReplicaCount, "3", ""},
		{DefaultReplicaCount, `{"v1":"3"}`, ""},
		{DefaultReplicaCount, `{"v1":3}`, ""},
		{DefaultReplicaCount, `{"v1":"3","v2":"5"}`, ""},
		{DefaultReplicaCount, "0", "should be greater than or equal to 1"},
		{DefaultReplicaCount, "21", "should be less than or equal to 20"},
		{DefaultReplicaCount, `{"v1":"3","v2":"21"}`, "should be less than or equal to 20"},
		{V2DataEngine, "false", ""},
		{V2DataEngine, "true", "of data engine v2"},
		{DataEngineMemorySize, "2048", ""},
		{DataEngineMemorySize, `{"v2":"2048"}`, ""},
		{DataEngineMemorySize, `{"v2":"4096"}`, "of data engine v2"},
		{DataEngineMemorySize, `{"v1":"2048"}`, "of data engine v2"},
		{DataEngineLogFlags, "", ""},
		{DefaultReplicaCount, `{"v1":"21"}`, "should be less than or equal to 20"},
		{DefaultReplicaCount, `{"v3":"3"}`, "unknown"},
		{DefaultReplicaCount, `{}`, "no value for data engine v1"},
		{DefaultReplicaCount, `{"v1":"3"`, "not a whole number"},
		{DefaultReplicaCount, `{"v1":["3"]}`, "not a whole number"},
		{DefaultReplicaCount, `{"v1":""}`, "shouldn't be empty"},
		{DefaultReplicaCount, "", "required setting default-replica-count shouldn't be empty"},
		{DefaultReplicaCount, "three", "not a whole number"},
		{DefaultReplicaCount, "3.5", "not a whole number"},
		{DefaultReplicaCount, "99999999999999999999", "not a whole number"},
		{GuaranteedInstanceManagerCPU, "12.5", ""},
		{GuaranteedInstanceManagerCPU, "0", ""},
		{GuaranteedInstanceManagerCPU, "40.1", "should be less than or equal to 40"},
		{GuaranteedInstanceManagerCPU, `{"v1":"41"}`, "should be less than or equal to 40"},
		{GuaranteedInstanceManagerCPU, "-1", "should be greater than or equal to 0"},
		{GuaranteedInstanceManagerCPU, "NaN", "not a number"},
		{GuaranteedInstanceManagerCPU, "1e1", "not a number"},
		{GuaranteedInstanceManagerCPU, `{"v1":1e1}`, "not a number"},
		{GuaranteedInstanceManagerCPU, "-0", "not a number"},
		{GuaranteedInstanceManagerCPU, "-0.0", "not a number"},
		{GuaranteedInstanceManagerCPU, "+5", "not a number"},
		{GuaranteedInstanceManagerCPU, "0x1p3", "not a number"},
		{GuaranteedInstanceManagerCPU, "0", ""},
		{DefaultReplicaCount, "+3", "not a whole number"},
		{StorageReservedPercentageForDefaultDisk, "-0", "not a whole number"},
		{StorageReservedPercentageForDefaultDisk, "0", ""},
		{AutoSalvage, "true", ""},
		{AutoSalvage, "True", "should be true or false"},
		{AutoSalvage, `{"v1":"true"}`, "takes a plain value"},
		{DisableRevisionCounter, "false", ""},
		{DisableRevisionCounter, `{"v1":"maybe"}`, "should be true or false"},
		{ReplicaAutoBalance, "least-effort", ""},
		{ReplicaAutoBalance, "ignored", "should be one of disabled, least-effort, best-effort"},
		{DefaultBackupBlockSize, "16", ""},
		{DefaultBackupBlockSize, "4", "should be one of 2, 16"},
		{SnapshotDataIntegrity, `{"v1":"enabled"}`, ""},
		{SnapshotDataIntegrity, "sometimes", "should be one of"},
		{LogLevel, "debug", ""},
		{LogLevel, "chatty", "should be one of"},
		{DefaultDataPath, "/mnt/disk/", ""},
		{DefaultDataPath, "mnt/disk", "absolute path"},
		{DefaultDataPath, "//", "absolute path"},
		{DefaultDataPath, "/dev/x", ""},
		{DefaultControlPath, "/dev/../dev/x", "should not be below /dev"},
		{ManagerURL, "", ""},
		{ManagerURL, "https://storage.example.org:8443", ""},
		{ManagerURL, "ftp://storage.example.org", "http or https"},
		{ManagerURL, "https://", "host is missing"},
		{ManagerURL, "https://storage.example.org/x", "nothing behind"},
		{ManagerURL, "https://storage.example.org?a=b", "nothing behind"},
		{ManagerURL, "https://user@storage.example.org", "nothing behind"},
		{ManagerURL, "https://a b", "form scheme://host"},
		{TaintToleration, "a=b:NoSchedule;c:NoExecute", ""},
		{TaintToleration, "a=b:Never", "invalid effect"},
		{TaintToleration, "a=b", "should have the form"},
		{TaintToleration, "a b:NoSchedule", "invalid key"},
		{TaintToleration, "a=!:NoSchedule", "invalid value"},
		{SystemManagedComponentsNodeSelector, "disk:fast;zone:a", ""},
		{SystemManagedComponentsNodeSelector, "disk", "should have the form label:value"},
		{SystemManagedComponentsNodeSelector, "disk:fast;disk:slow", "given twice"},
		{SystemManagedComponentsNodeSelector, "-:x", "invalid label"},
		{SystemManagedComponentsNodeSelector, "x:-", "invalid value"},
		{SystemManagedCSIComponentsResourceLimits, `{"csi-attacher":{"limits":{"cpu":"100m"}}}`, ""},
		{SystemManagedCSIComponentsResourceLimits, `{"csi-attacher":{"limit":{"cpu":"100m"}}}`, "should be a JSON object"},
		{SystemManagedCSIComponentsResourceLimits, `{"csi":{}}`, "should be one of csi-attacher"},
		{SystemManagedCSIComponentsResourceLimits, `100m`, "should be a JSON object"},
		{StorageNetwork, "", ""},
		{StorageNetwork, "kube-system/storage", ""},
		{StorageNetwork, "storage", "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format"},
		{StorageNetwork, "a/b/c", "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format"},
		{StorageNetwork, "/b", "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format"},
		{EndpointNetworkForRWXVolume, "a/", "must be in <NAMESPACE>/<NETWORK-ATTACHMENT-DEFINITION> format"},
		{SnapshotDataIntegrityCronJob, "0 0 */7 * *", ""},
		{SnapshotDataIntegrityCronJob, "0 0 * *", "expected exactly 5 fields, found 4"},
		{OrphanResourceAutoDeletion, "replica-data;instance", ""},
		{OrphanResourceAutoDeletion, "replica-data,instance", "should be replica-data or instance"},
		{BlacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly, "apps/StatefulSet; apps/DaemonSet", ""},
		{BlacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly, "StatefulSet", "apiVersion/Kind"},
		{CSIAllowedTopologyKeys, "topology.kubernetes.io/zone, disk", ""},
		{CSIAllowedTopologyKeys, "a b", "not the key of a label"},
		{BlockDeviceTransport, "nbd-unix", ""},
		{BlockDeviceWait, "10", ""},
		{APIAnonymousAccess, "read-only", ""},
		{APITokenAudience, "longhorn-backend", ""}, {APITokenAudience, "vault", "should be one of any, longhorn-backend"},
		{APIAnonymousAccess, "some", "should be one of none, read-only, all"},
		{APIHostNames, "a.example; b.example;*", ""},
		{APIHostNames, "", ""},
		{APIHostNames, "a.example:80", "should be a host name without a port"},
		{SnapshotSpaceFactor, "0", ""},
		{SnapshotSpaceFactor, "1001", "should be less than or equal to 1000"},
		{BlockDeviceWait, "9", "should be greater than or equal to 10"},
		{BlockDeviceTransport, "iscsi", "should be one of auto, ublk, fuse-loop, nbd-unix"},
		{RegistrySecret, strings.Repeat("x", maxValueLength+1), "bytes"},
	}
	for _, test := range tests {
		err := Validate(test.name, test.value)
		if test.why == "" {
			if err != nil {
				t.Errorf("%s = %q: %v", test.name, test.value, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s = %q: error %v, want one with %q", test.name, test.value, err, test.why)
			continue
		}
		if len(test.value) < 100 && !strings.HasPrefix(err.Error(),
			"value "+test.value+" of settings "+test.name+" is invalid: ") {
			t.Errorf("%s = %q: message %q does not begin as clients expect", test.name, test.value, err)
		}
	}
	if err := Validate("no-such-setting", "1"); !errors.Is(err, ErrUnknown) ||
		err.Error() != "setting no-such-setting is not supported" {
		t.Errorf("unknown setting: %v", err)
	}
}

func TestNormalize(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{DefaultReplicaCount, " 3 ", `{"v1":"3","v2":"3"}`},
		{DefaultReplicaCount, `{"v1":3}`, `{"v1":"3"}`},
		{DefaultReplicaCount, `{ "v2": "5", "v1": "3" }`, `{"v1":"3","v2":"5"}`},
		{DisableRevisionCounter, `{"v1":"true","v2":"true"}`, `{"v1":"true"}`},
		{DataEngineMemorySize, "2048", `{"v2":"2048"}`},
		{DefaultReplicaCount, `{"v3":"3"}`, `{"v3":"3"}`},
		{DefaultReplicaCount, `{"v2":"3"}`, `{"v2":"3"}`},
		{DefaultReplicaCount, `{"v1":`, `{"v1":`},
		{DefaultReplicaCount, "", ""},
		{DefaultReplicaCount, "many", `{"v1":"many","v2":"many"}`},
		{DisableRevisionCounter, "TRUE", `{"v1":"true"}`},
		{DisableRevisionCounter, `{"v1":false}`, `{"v1":"false"}`},
		{AutoSalvage, "False", "false"},
		{AutoSalvage, "1", "true"},
		{AutoSalvage, "perhaps", "perhaps"},
		{DefaultDataPath, "/var/lib/longhorn/", "/var/lib/longhorn"},
		{DefaultDataPath, "/a//b/../c", "/a/c"},
		{LogLevel, "dEBUG", "Debug"},
		{SystemManagedCSIComponentsResourceLimits, `{"csi-attacher":{}}`, `{"csi-attacher":{}}`},
		{SnapshotDataIntegrityCronJob, "0 0 * * *", `{"v1":"0 0 * * *","v2":"0 0 * * *"}`},
		{"no-such-setting", " x ", "x"},
	}
	for _, test := range tests {
		if got := Normalize(test.name, test.value); got != test.want {
			t.Errorf("Normalize(%s, %q) = %q, want %q", test.name, test.value, got, test.want)
		}
	}
}

func TestNormalizeKeepsMeaningAndIsStable(t *testing.T) {
	names := make([]string, 0, len(byName))
	for _, d := range Definitions() {
		names = append(names, d.Name)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "name")
		value := rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{"true", "false", "T", "/a/", "disabled", `{"v1":"1"}`, `{"v1":"true","v2":"x"}`,
				"{", "debug"}),
			rapid.Map(rapid.IntRange(-1, 300), strconv.Itoa),
		).Draw(t, "value")
		once := Normalize(name, value)
		if twice := Normalize(name, once); twice != once {
			t.Fatalf("%s: %q becomes %q, then %q", name, value, once, twice)
		}
		if Validate(name, value) == nil {
			if err := Validate(name, once); err != nil {
				t.Fatalf("%s: %q is valid, normalised it is not: %v", name, value, err)
			}
		}
	})
}

func TestReaders(t *testing.T) {
	stored := Values{
		DefaultReplicaCount:              "2",
		EngineReplicaTimeout:             `{"v1":"9"}`,
		DisableRevisionCounter:           `{"v1":"false"}`,
		GuaranteedInstanceManagerCPU:     "12.5",
		StorageNetwork:                   "kube-system/storage",
		ReplicaReplenishmentWaitInterval: "minus one",
		SnapshotMaxCount:                 "1000",
	}
	if got := stored.Int(DefaultReplicaCount); got != 2 {
		t.Errorf("plain number: %d, want 2", got)
	}
	if got := stored.Int(EngineReplicaTimeout); got != 9 {
		t.Errorf("number in JSON form: %d, want 9", got)
	}
	if got := stored.Int(ReplicaRebuildConcurrentSyncLimit); got != 1 {
		t.Errorf("missing number: %d, want the default 1", got)
	}
	if got := stored.Int(ReplicaReplenishmentWaitInterval); got != 600 {
		t.Errorf("unreadable number: %d, want the default 600", got)
	}
	if got := stored.Int(SnapshotMaxCount); got != 250 {
		t.Errorf("number out of range: %d, want the default 250", got)
	}
	if stored.Bool(DisableRevisionCounter) || !stored.Bool(AutoSalvage) {
		t.Error("truth values are read wrongly")
	}
	if got := stored.Float(GuaranteedInstanceManagerCPU); got != 12.5 {
		t.Errorf("float: %v, want 12.5", got)
	}
	if got := stored.String(StorageNetwork); got != "kube-system/storage" {
		t.Errorf("text: %q", got)
	}
	if got := (Values)(nil).String(SnapshotDataIntegrity); got != "fast-check" {
		t.Errorf("default text in JSON form: %q, want fast-check", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("reading a truth value as a number does not panic")
		}
	}()
	stored.Int(AutoSalvage)
}

// validateChange tries a change of a setting beside stored values.
func validateChange(t *testing.T, name, value string, stored Values, why string) {
	t.Helper()
	err := ValidateChange(name, value, stored)
	if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
		t.Errorf("%s = %s with %v: error %v, want one with %q", name, value, stored, err, why)
	}
}

func TestValidateChange(t *testing.T) {
	tests := []struct {
		name, value string
		stored      Values
		why         string
	}{
		{DisableSnapshotPurge, "true", nil, "cannot both be true"},
		{DisableSnapshotPurge, "true", Values{AutoCleanupSystemGeneratedSnapshot: "false"}, ""},
		{DisableSnapshotPurge, "false", nil, ""},
		{AutoCleanupSystemGeneratedSnapshot, "true", Values{DisableSnapshotPurge: "true"}, "cannot both be true"},
	}
	for _, test := range tests {
		validateChange(t, test.name, test.value, test.stored, test.why)
	}
}

func TestParseTolerations(t *testing.T) {
	got, err := ParseTolerations("a=b:NoSchedule; c:NoExecute ;d=:PreferNoSchedule;:;key=value1:;k:;:NoExecute")
	if err != nil || len(got) != 7 {
		t.Fatalf("%v, %v", got, err)
	}
	var texts []string
	for _, x := range got {
		texts = append(texts, x.Key+"|"+string(x.Operator)+"|"+x.Value+"|"+string(x.Effect))
	}
	want := []string{"a|Equal|b|NoSchedule", "c|Exists||NoExecute", "d|Equal||PreferNoSchedule", "|Exists||",
		"key|Equal|value1|", "k|Exists||", "|Exists||NoExecute"}
	if !slices.Equal(texts, want) {
		t.Errorf("%v, want %v", texts, want)
	}
	if none, err := ParseTolerations(" "); err != nil || none == nil || len(none) != 0 {
		t.Errorf("empty value: %v, %v", none, err)
	}
}

func TestCommaBetweenTolerations(t *testing.T) {
	_, err := ParseTolerations("a=b:NoSchedule,c:NoExecute")
	if err == nil || !strings.Contains(err.Error(), "put a ; between tolerations") {
		t.Error(err)
	}
	if _, err := ParseTolerations("=v:NoSchedule"); err == nil {
		t.Error("a value without a key is taken")
	}
}

func TestCheckCron(t *testing.T) {
	good := []string{"* * * * *", "0 0 */7 * *", "5,10-20/3 1-23 1 jan-MAR sun", "@daily", "? * * * 0", "1, * * * *",
		"0 0 29 2 *", "0 0 31 1,2 *",
		"@every 1h"}
	bad := []string{"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7",
		"0 0 31 2 *", "0 0 30 feb *", "0 0 31 4,6,9,11 *",
		"*/0 * * * *", "5-1 * * * *", "a * * * *", "@often", "-1 * * * *", "1--2 * * * *", "CRON_TZ=UTC * * * * *",
		"TZ=UTC 0 0 * * *"}
	for _, line := range good {
		if err := CheckCron(line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range bad {
		if err := CheckCron(line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

// TestCheckTimes: a setting that needs times takes no interval.
func TestCheckTimes(t *testing.T) {
	if err := Validate(SnapshotDataIntegrityCronJob, "@every 1h"); err == nil ||
		!strings.Contains(err.Error(), "no times") {
		t.Errorf("@every: %v", err)
	}
	if err := Validate(SnapshotDataIntegrityCronJob, "@weekly"); err != nil {
		t.Error(err)
	}
}

func FuzzValidate(f *testing.F) {
	for _, d := range Definitions() {
		f.Add(d.Name, d.Default)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		// Whatever is accepted can be read back without falling to the default's type error.
		if Validate(name, value) != nil {
			return
		}
		d, err := Lookup(name)
		if err != nil {
			t.Fatalf("%s is valid and unknown", name)
		}
		switch d.Type {
		case TypeInt:
			_, err = Int(name, value)
		case TypeFloat:
			_, err = Float(name, value)
		case TypeBool:
			_, err = Bool(name, value)
		}
		if err != nil {
			t.Errorf("%s = %q is valid and cannot be read: %v", name, value, err)
		}
	})
}
