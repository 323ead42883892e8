package v1beta2_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"ankole.storage/api/longhorn/v1beta2"
)

func TestEveryKindIsRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kinds := v1beta2.Kinds()
	if len(kinds) != 22 {
		t.Errorf("%d kinds, want 22", len(kinds))
	}
	for _, k := range kinds {
		for name, want := range map[string]runtime.Object{k.Name: k.Object, k.Name + "List": k.List} {
			got, err := scheme.New(v1beta2.GroupVersion.WithKind(name))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if reflect.TypeOf(got) != reflect.TypeOf(want) {
				t.Errorf("%s is registered as %T, want %T", name, got, want)
			}
		}
	}
}

// TestJSONForms holds what other clients read and write, field by field where it is not plain.
func TestJSONForms(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	tests := []struct {
		what   string
		object any
		// has and lacks are parts of the JSON text.
		has, lacks []string
	}{
		{"sizes are strings", &v1beta2.VolumeSpec{Size: 1 << 40, BackupBlockSize: v1beta2.BackupBlockSize2Mi},
			[]string{`"size":"1099511627776"`, `"backupBlockSize":"2097152"`, `"snapshotMaxSize":"0"`}, nil},
		{"an enumeration without an empty value is left out", &v1beta2.VolumeSpec{},
			[]string{`"frontend":""`, `"Standby":false`}, []string{"accessMode", "backupBlockSize", "dataEngine", "standby"}},
		{"a list that cannot be null", &v1beta2.VolumeSpec{}, nil, []string{"diskSelector"}},
		{"the same list, empty", &v1beta2.VolumeSpec{DiskSelector: []string{}}, []string{`"diskSelector":[]`}, nil},
		{"a map that can be null", &v1beta2.EngineStatus{}, []string{`"replicaModeMap":null`}, []string{"membership"}},
		{"parts that Engine and Replica share are not nested", &v1beta2.ReplicaSpec{InstanceSpec: v1beta2.InstanceSpec{
			VolumeName: "demo", VolumeSize: 5}}, []string{`"volumeName":"demo"`, `"volumeSize":"5"`}, []string{"InstanceSpec"}},
		{"times", &v1beta2.BackupTargetSpec{SyncRequestedAt: at}, []string{`"syncRequestedAt":"2026-03-04T05:06:07Z"`}, nil},
		{"a time that can be null", &v1beta2.BackupTargetSpec{}, []string{`"syncRequestedAt":null`}, nil},
		{"a time that cannot", &v1beta2.SystemBackupStatus{}, []string{`"lastSyncedAt":null`}, []string{"createdAt"}},
		{"a setting has no spec", &v1beta2.Setting{Value: "5"}, []string{`"value":"5"`, `"applied":false`}, []string{"spec"}},
		{"odd names", &v1beta2.EngineStatus{Snapshots: map[string]v1beta2.SnapshotInfo{"a": {UserCreated: true}}},
			[]string{`"usercreated":true`}, nil},
		{"versions", &v1beta2.InstanceManagerStatus{ProxyAPIVersion: 4},
			[]string{`"proxyApiVersion":4`, `"apiVersion":0`}, nil},
	}
	for _, test := range tests {
		text, err := json.Marshal(test.object)
		if err != nil {
			t.Errorf("%s: %v", test.what, err)
			continue
		}
		for _, part := range test.has {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s: %s lacks %s", test.what, text, part)
			}
		}
		for _, part := range test.lacks {
			if strings.Contains(string(text), `"`+part+`"`) {
				t.Errorf("%s: %s has %s", test.what, text, part)
			}
		}
	}
}

func TestVolumeSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := v1beta2.Volume{}
		v.Spec.Size = rapid.Int64().Draw(t, "size")
		v.Spec.SnapshotMaxSize = rapid.Int64().Draw(t, "snapshot size")
		v.Spec.NumberOfReplicas = rapid.IntRange(0, 20).Draw(t, "replicas")
		v.Spec.DiskSelector = rapid.SliceOf(rapid.StringMatching(`[a-z]+`)).Draw(t, "tags")
		v.Status.ActualSize = rapid.Int64().Draw(t, "actual size")
		v.Status.Conditions = []v1beta2.Condition{{Type: rapid.String().Draw(t, "type")}}
		text, err := json.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		var back v1beta2.Volume
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v, back) {
			t.Fatalf("%+v became %+v", v, back)
		}
	})
}

func TestSetCondition(t *testing.T) {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	later := first.Add(time.Hour)
	const stamp = "2026-01-01T00:00:00Z"

	list, changed := v1beta2.SetCondition(nil, v1beta2.Condition{Type: "Ready", Status: v1beta2.ConditionTrue}, first)
	if !changed || len(list) != 1 || list[0].LastTransitionTime != stamp {
		t.Fatalf("new condition: %+v, %v", list, changed)
	}
	same, changed := v1beta2.SetCondition(list,
		v1beta2.Condition{Type: "Ready", Status: v1beta2.ConditionTrue, Reason: "Fine", Message: "m"}, later)
	if changed || same[0].LastTransitionTime != stamp || same[0].Reason != "Fine" || same[0].Message != "m" {
		t.Errorf("other reason: %+v, %v", same, changed)
	}
	if list[0].Reason != "" {
		t.Error("the list given was changed")
	}
	other, changed := v1beta2.SetCondition(same, v1beta2.Condition{Type: "Ready", Status: v1beta2.ConditionFalse}, later)
	if !changed || other[0].LastTransitionTime != "2026-01-01T01:00:00Z" || len(other) != 1 {
		t.Errorf("other status: %+v, %v", other, changed)
	}
	two, _ := v1beta2.SetCondition(other, v1beta2.Condition{Type: "Schedulable", Status: v1beta2.ConditionTrue}, later)
	if len(two) != 2 || v1beta2.IsConditionTrue(two, "Ready") || !v1beta2.IsConditionTrue(two, "Schedulable") {
		t.Errorf("second condition: %+v", two)
	}
	if got := v1beta2.FindCondition(two, "Missing"); got.Status != v1beta2.ConditionUnknown || got.Type != "Missing" {
		t.Errorf("missing condition: %+v", got)
	}
}

// Objects of before image had its name are read with it, and others as they are.
func TestImageByItsOlderName(t *testing.T) {
	for _, o := range []runtime.Object{&v1beta2.Volume{}, &v1beta2.Engine{}, &v1beta2.Replica{}} {
		for in, want := range map[string]string{
			`{"spec":{"engineImage":"old"}}`:               "old",
			`{"spec":{"image":"new"}}`:                     "new",
			`{"spec":{"image":"new","engineImage":"old"}}`: "new",
			`{"spec":{}}`: "",
		} {
			o := o.DeepCopyObject()
			if err := json.Unmarshal([]byte(in), o); err != nil {
				t.Fatal(err)
			}
			u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedString(u, "spec", "image"); got != want {
				t.Errorf("%T from %s has image %q, want %q", o, in, got, want)
			}
		}
	}
}

func TestMergeImages(t *testing.T) {
	tests := []struct{ what, before, image, engineImage, want string }{
		{"created by a new client", "", "a", "", "a"},
		{"created by an old client", "", "", "a", "a"},
		{"created with both", "", "a", "a", "a"},
		{"created with two", "", "a", "b", "a"},
		{"changed by a new client", "a", "b", "a", "b"},
		{"changed by an old client", "a", "a", "b", "b"},
		{"changed by a client that knows one field", "a", "b", "", "b"},
		{"changed by an old client that dropped the new field", "a", "", "b", "b"},
		{"both changed", "a", "b", "c", "b"},
		{"nothing changed", "a", "a", "a", "a"},
	}
	for _, test := range tests {
		if got := v1beta2.MergeImages(test.before, test.image, test.engineImage); got != test.want {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}

func TestAttacherPriority(t *testing.T) {
	order := [][]v1beta2.AttacherType{
		{v1beta2.AttacherTypeVolumeRestore, v1beta2.AttacherTypeVolumeExpansion},
		{v1beta2.AttacherTypeLonghornAPI},
		{v1beta2.AttacherTypeCSI, v1beta2.AttacherTypeSalvage, v1beta2.AttacherTypeShareManager},
		{v1beta2.AttacherTypeSnapshot, v1beta2.AttacherTypeBackup, v1beta2.AttacherTypeVolumeClone,
			v1beta2.AttacherTypeVolumeEviction, v1beta2.AttacherTypeBackingImageData, v1beta2.AttacherTypeVolumeRebuilding},
		{"somebody-else"},
	}
	want := []int{2000, 1000, 900, 800, 0}
	for i, group := range order {
		for _, attacher := range group {
			if got := attacher.Priority(); got != want[i] {
				t.Errorf("%s has priority %d, want %d", attacher, got, want[i])
			}
		}
	}
}

func TestKindsGivesCopies(t *testing.T) {
	v1beta2.Kinds()[0].Name = "Changed"
	if got := v1beta2.Kinds()[0].Name; got != "Volume" {
		t.Errorf("the table was changed through a copy: %s", got)
	}
}
