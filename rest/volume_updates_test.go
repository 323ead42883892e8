package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/volume"
)

func TestUpdateReplicaCount(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Attached()...)...)
	post := func(body string) apitest.Answer {
		return f.Do("POST", "/v1/volumes/demo?action=updateReplicaCount", body)
	}
	if a := post(`{"replicaCount":3}`); a.Status != 200 || a.JSON["numberOfReplicas"] != 3.0 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	for _, count := range []int{0, -1, 21} {
		f.Refused(post(fmt.Sprintf(`{"replicaCount":%d}`, count)), 500, "must between 1 to 20")
	}
	detached := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	detached.Refused(detached.Do("POST", "/v1/volumes/demo?action=updateReplicaCount", `{"replicaCount":3}`), 500,
		"invalid volume state to update replica count")
	detached.Refused(detached.Do("POST", "/v1/volumes/nope?action=updateReplicaCount", `{"replicaCount":3}`), 404,
		"not found")
	for name, edit := range map[string]func(*lh.Volume){
		"should be 1 when data locality is strict-local": func(v *lh.Volume) {
			v.Spec.DataLocality = lh.DataLocalityStrictLocal
		},
		"being upgraded":   func(v *lh.Volume) { v.Status.CurrentImage = "older" },
		"during migration": func(v *lh.Volume) { v.Spec.MigrationNodeID = "node-2" },
	} {
		objects := resttest.Attached()
		edit(objects[0].(*lh.Volume))
		g := newFixture(t, resttest.Cluster(objects...)...)
		g.Refused(g.Do("POST", "/v1/volumes/demo?action=updateReplicaCount", `{"replicaCount":3}`), 500, name)
	}
}

// updates are the actions that change one field: a state in which they are offered, a body that
// changes the field, what the volume shows then, and bodies that are refused.
var updates = map[string]struct {
	detached bool
	body     string
	field    string
	shows    any
	refused  []string
}{
	"updateReplicaCount": {false, `{"replicaCount":3}`, "numberOfReplicas", 3.0, []string{`{"replicaCount":0}`, `{}`}},
	"updateRebuildConcurrentSyncLimit": {true, `{"rebuildConcurrentSyncLimit":5}`, "rebuildConcurrentSyncLimit", 5.0,
		[]string{`{"rebuildConcurrentSyncLimit":6}`, `{"rebuildConcurrentSyncLimit":-1}`}},
	"updateDataLocality": {false, `{"dataLocality":"best-effort"}`, "dataLocality", "best-effort",
		[]string{`{"dataLocality":"near"}`, `{}`, `{"dataLocality":"strict-local"}`}},
	"updateAccessMode": {true, `{"accessMode":"rwx"}`, "accessMode", "rwx", []string{`{"accessMode":"ReadWriteMany"}`, `{}`}},
	"updateReplicaAutoBalance": {false, `{"replicaAutoBalance":"least-effort"}`, "replicaAutoBalance", "least-effort",
		[]string{`{"replicaAutoBalance":"some"}`, `{}`}},
	"updateUnmapMarkSnapChainRemoved": {false, `{"unmapMarkSnapChainRemoved":"enabled"}`, "unmapMarkSnapChainRemoved",
		"enabled", []string{`{"unmapMarkSnapChainRemoved":"true"}`, `{"unmapMarkSnapChainRemoved":true}`, `{}`}},
	"updateSnapshotDataIntegrity": {true, `{"snapshotDataIntegrity":"fast-check"}`, "snapshotDataIntegrity", "fast-check",
		[]string{`{"snapshotDataIntegrity":"quick"}`, `{}`}},
	"updateSnapshotMaxCount": {false, `{"snapshotMaxCount":9}`, "snapshotMaxCount", 9.0,
		[]string{`{"snapshotMaxCount":1}`, `{"snapshotMaxCount":251}`, `{"snapshotMaxCount":"9"}`}},
	"updateSnapshotMaxSize": {true, `{"snapshotMaxSize":"2Gi"}`, "snapshotMaxSize", "2147483648",
		[]string{`{"snapshotMaxSize":"1Gi"}`, `{"snapshotMaxSize":"much"}`, `{"snapshotMaxSize":2147483648}`}},
	"updateBackupCompressionMethod": {true, `{"backupCompressionMethod":"lz4"}`, "backupCompressionMethod", "lz4",
		[]string{`{"backupCompressionMethod":"gzip"}`, `{"backupCompressionMethod":"zip"}`, `{}`}},
	"updateBackupTargetName": {true, `{"backupTargetName":"second"}`, "backupTargetName", "second",
		[]string{`{"backupTargetName":"third"}`, `{}`}},
	"updateFreezeFilesystemForSnapshot": {false, `{"freezeFilesystemForSnapshot":"enabled"}`,
		"freezeFilesystemForSnapshot", "enabled", []string{`{"freezeFilesystemForSnapshot":"yes"}`, `{}`}},
	"updateReplicaSoftAntiAffinity": {false, `{"replicaSoftAntiAffinity":"enabled"}`, "replicaSoftAntiAffinity",
		"enabled", []string{`{"replicaSoftAntiAffinity":"yes"}`, `{}`}},
	"updateReplicaZoneSoftAntiAffinity": {true, `{"replicaZoneSoftAntiAffinity":"disabled"}`,
		"replicaZoneSoftAntiAffinity", "disabled", []string{`{"replicaZoneSoftAntiAffinity":"yes"}`, `{}`}},
	"updateReplicaDiskSoftAntiAffinity": {false, `{"replicaDiskSoftAntiAffinity":"enabled"}`,
		"replicaDiskSoftAntiAffinity", "enabled", []string{`{"replicaDiskSoftAntiAffinity":"yes"}`, `{}`}},
	"offlineReplicaRebuilding": {true, `{"offlineRebuilding":"enabled"}`, "offlineRebuilding", "enabled",
		[]string{`{"offlineRebuilding":"yes"}`, `{}`}},
	"updateReplicaRebuildingBandwidthLimit": {true, `{"replicaRebuildingBandwidthLimit":"10"}`,
		"replicaRebuildingBandwidthLimit", 10.0,
		[]string{`{"replicaRebuildingBandwidthLimit":"10Mi"}`, `{"replicaRebuildingBandwidthLimit":10}`,
			`{"replicaRebuildingBandwidthLimit":"-1"}`}},
	"updateUblkQueueDepth":    {true, `{"ublkQueueDepth":0}`, "ublkQueueDepth", 0.0, []string{`{"ublkQueueDepth":128}`}},
	"updateUblkNumberOfQueue": {true, `{"ublkNumberOfQueue":0}`, "ublkNumberOfQueue", 0.0, []string{`{"ublkNumberOfQueue":2}`}},
}

// refusals are what every refusal of an action says, where the texts are a choice's.
var refusals = map[string]string{
	"updateAccessMode": "invalid access mode: ", "updateReplicaAutoBalance": "invalid replica auto balance option: ",
	"updateSnapshotDataIntegrity":       "invalid snapshot data integrity: ",
	"updateFreezeFilesystemForSnapshot": "invalid freeze filesystem for snapshot option: ",
	"updateReplicaSoftAntiAffinity":     "invalid replica soft anti-affinity option: ",
	"updateReplicaZoneSoftAntiAffinity": "invalid replica zone soft anti-affinity option: ",
	"updateReplicaDiskSoftAntiAffinity": "invalid replica disk soft anti-affinity option: ",
	"offlineReplicaRebuilding":          "invalid offline rebuilding option: ",
	"updateReplicaCount":                "number of replicas 0 of volume demo must between 1 to 20",
}

// admitted has every change of an object judged by the webhook that the API server asks, as
// kubectl's are.
func admitted(t *testing.T) interceptor.Funcs {
	t.Helper()
	return interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.UpdateOption) error {
		old := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), old); err != nil {
			return err
		}
		if err := review(t, c, old, o); err != nil {
			return err
		}
		return c.Update(ctx, o, opts...)
	}}
}

// review asks the webhook about an update of a volume.
func review(t *testing.T, c client.Client, old, o client.Object) error {
	return reviewOf(t, c, "volumes", old, o)
}

// reviewOf asks the webhook about an update of an object, with old nil about a new one, and with o
// nil about a deletion.
func reviewOf(t *testing.T, c client.Client, plural string, old, o client.Object) error {
	raw := func(x any) []byte {
		text, err := json.Marshal(x)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	r := &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create,
		Resource: metav1.GroupVersionResource{Group: lh.Group, Version: "v1beta2", Resource: plural}}
	if old != nil {
		r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: raw(old)}
	}
	if o != nil {
		r.Object = runtime.RawExtension{Raw: raw(o)}
	} else {
		r.Operation = admissionv1.Delete
	}
	body := raw(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r})
	asked := httptest.NewRequest("POST", "/", bytes.NewReader(body))
	asked.Header.Set("Content-Type", "application/json")
	answered := httptest.NewRecorder()
	admission.NewServer(c, c, lh.Namespace, admission.Origins{}).Validation.ServeHTTP(answered, asked)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(answered.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		return fmt.Errorf("no answer: %s (%w)", answered.Body, err)
	}
	if !answer.Response.Allowed {
		return fmt.Errorf("admission webhook %q denied the request: %s", "validator.longhorn.io",
			answer.Response.Result.Message)
	}
	return nil
}

// admissible is a volume as the webhook has completed it, with two backup targets.
func admissible(detached bool) []client.Object {
	objects := resttest.Attached()
	if detached {
		objects = resttest.Volume("demo")
	}
	v := objects[0].(*lh.Volume)
	v.Spec.DataLocality, v.Spec.BackupTargetName, v.Spec.BackupCompressionMethod = "disabled", "default", "lz4"
	v.Spec.BackupBlockSize, v.Spec.SnapshotMaxCount = lh.BackupBlockSize2Mi, 250
	admission.MutateVolume(v.DeepCopy(), v, nil)
	return resttest.Cluster(append(objects, &lh.BackupTarget{ObjectMeta: resttest.Meta("default")},
		&lh.BackupTarget{ObjectMeta: resttest.Meta("second")})...)
}

// TestEveryUpdate sends each action that changes one field: what it changes, alone; that the same
// again writes nothing; and what is refused, here or at admission, with status 500 and no change.
func TestEveryUpdate(t *testing.T) {
	if have, want := volume.UpdateActions(), slices.Sorted(maps.Keys(updates)); !slices.Equal(have, want) {
		t.Fatalf("updates %v, tested %v", have, want)
	}
	for _, action := range slices.Sorted(maps.Keys(updates)) {
		tt := updates[action]
		t.Run(action, func(t *testing.T) {
			f := newFixtureWith(t, admitted(t), func(*rest.Config) {}, admissible(tt.detached)...)
			url := "/v1/volumes/demo?action=" + action
			before := f.Get("/v1/volumes/demo")
			if before["actions"].(map[string]any)[action] == nil {
				t.Errorf("not offered while %v", before["state"])
			}
			a := f.Do("POST", url, tt.body)
			if a.Status != http.StatusOK || a.JSON["type"] != resource.TypeVolume || a.JSON[tt.field] != tt.shows {
				t.Fatalf("%d %s, want %s = %v", a.Status, a.Text, tt.field, tt.shows)
			}
			for key, value := range before {
				if key != tt.field && key != "resourceVersion" && fmt.Sprint(a.JSON[key]) != fmt.Sprint(value) {
					t.Errorf("%s changed from %v to %v", key, value, a.JSON[key])
				}
			}
			var written, after lh.Volume
			f.Read("demo", &written)
			if a := f.Do("POST", url, strings.ToUpper(tt.body[:3])+tt.body[3:]); a.Status != http.StatusOK {
				t.Errorf("again: %s", a.Text)
			}
			for _, body := range tt.refused {
				f.Refused(f.Do("POST", url, body), 500, refusals[action])
			}
			f.Refused(f.Do("POST", url, ""), 500, "EOF")
			if f.Read("demo", &after); after.ResourceVersion != written.ResourceVersion {
				t.Error("the same again, or a refused body, wrote the volume")
			}
			f.Refused(f.Do("POST", "/v1/volumes/nope?action="+action, tt.body), 404, "not found")
		})
	}
}

// admittedVolume is a server on an attached volume, edited, whose changes are judged.
func admittedVolume(t *testing.T, edit func(*lh.Volume)) *fixture {
	objects := admissible(false)
	for _, o := range objects {
		if v, ok := o.(*lh.Volume); ok {
			edit(v)
		}
	}
	return newFixtureWith(t, admitted(t), func(*rest.Config) {}, objects...)
}

// TestUpdatesByState has the actions that some states refuse, with the texts that clients know.
func TestUpdatesByState(t *testing.T) {
	for _, tt := range []struct {
		action, body string
		edit         func(*lh.Volume)
		want         string
	}{
		{"updateAccessMode", `{"accessMode":"rwx"}`, func(*lh.Volume) {},
			"can only update volume access mode while volume is detached: volume demo is attached"},
		{"updateAccessMode", `{"accessMode":"rwx"}`, func(v *lh.Volume) { v.Status.State = lh.VolumeStateDetached },
			"can only update volume access mode while volume is detached: volume demo is about to be attached to node node-1"},
		{"updateAccessMode", `{"accessMode":"rwo"}`, func(v *lh.Volume) {
			v.Spec.Migratable, v.Spec.AccessMode = true, lh.AccessModeReadWriteMany
			v.Status.State, v.Spec.NodeID = lh.VolumeStateDetached, ""
		}, "migratable volumes are only supported in ReadWriteMany"},
		{"updateDataLocality", `{"dataLocality":"strict-local"}`, func(*lh.Volume) {}, "detach it first"},
		{"updateDataLocality", `{"dataLocality":"strict-local"}`, func(v *lh.Volume) {
			v.Status.State, v.Spec.NumberOfReplicas = lh.VolumeStateDetached, 2
		}, "number of replica count should be 1 when data locality is strict-local"},
		{"updateBackupCompressionMethod", `{"backupCompressionMethod":"none"}`, func(*lh.Volume) {},
			"changing backup compression method of volume demo from lz4 to none is not supported"},
		{"updateBackupTargetName", `{"backupTargetName":"third"}`, func(*lh.Volume) {}, "backup target third"},
		{"updateSnapshotMaxCount", `{"snapshotMaxCount":1}`, func(*lh.Volume) {},
			"snapshot max count should be between 2 to 250"},
		{"updateSnapshotMaxSize", `{"snapshotMaxSize":"2047Mi"}`, func(*lh.Volume) {}, "snapshot max size"},
		{"updateBackupTargetName", `{}`, func(*lh.Volume) {}, "no backup target named"},
		{"updateBackupCompressionMethod", `{"backupCompressionMethod":"zip"}`, func(*lh.Volume) {},
			`invalid backup compression method: "zip"; use one of none, lz4, gzip`},
		{"updateUnmapMarkSnapChainRemoved", `{"unmapMarkSnapChainRemoved":"yes"}`, func(*lh.Volume) {},
			"invalid unmap mark snapshot chain removed option: "},
		{"updateDataLocality", `{"dataLocality":"disabled"}`, func(v *lh.Volume) {
			v.Spec.DataLocality, v.Spec.NumberOfReplicas = lh.DataLocalityStrictLocal, 1
		}, "detach it first"},
		{"updateAccessMode", `{"accessMode":"rwx"}`, func(v *lh.Volume) {
			v.Status.State, v.Spec.NodeID = lh.VolumeStateDetaching, ""
		}, "while volume is detached: volume demo is detaching"},
		{"updateReplicaRebuildingBandwidthLimit", `{"replicaRebuildingBandwidthLimit":"fast"}`, func(*lh.Volume) {},
			"failed to parse size"},
		{"updateRebuildConcurrentSyncLimit", `{"rebuildConcurrentSyncLimit":6}`, func(*lh.Volume) {},
			"rebuild concurrent sync limit 6 of volume demo should be between 0 (as the setting says) and 5"},
		{"updateReplicaRebuildingBandwidthLimit", `{"replicaRebuildingBandwidthLimit":"1048577"}`, func(*lh.Volume) {},
			"bandwidth limit 1048577 MiB per second of volume demo should be between 0 (as the setting says) and 1048576"},
		{"updateUblkQueueDepth", `{"ublkQueueDepth":1}`, func(*lh.Volume) {}, "belongs to data engine v2"},
	} {
		f := admittedVolume(t, tt.edit)
		f.Refused(f.Do("POST", "/v1/volumes/demo?action="+tt.action, tt.body), 500, tt.want)
	}
}

// TestUpdatesAtTheirBounds: the largest and smallest values, and those that a state just allows.
func TestUpdatesAtTheirBounds(t *testing.T) {
	accepted := func(body string, edit func(*lh.Volume)) {
		t.Helper()
		f := admittedVolume(t, edit)
		action := "updateReplicaCount"
		if strings.Contains(body, "Limit") {
			action = "updateRebuildConcurrentSyncLimit"
		}
		if a := f.Do("POST", "/v1/volumes/demo?action="+action, body); a.Status != http.StatusOK {
			t.Errorf("%s: %s", body, a.Text)
		}
	}
	accepted(`{"replicaCount":1}`, func(v *lh.Volume) { v.Spec.NumberOfReplicas = 3 })
	accepted(`{"replicaCount":20}`, func(v *lh.Volume) { v.Status.CurrentImage = "" })
	accepted(`{"replicaCount":1}`, func(v *lh.Volume) { v.Spec.DataLocality = lh.DataLocalityStrictLocal })
	accepted(`{"rebuildConcurrentSyncLimit":0}`, func(v *lh.Volume) { v.Spec.RebuildConcurrentSyncLimit = 3 })
	f := admittedVolume(t, func(*lh.Volume) {})
	if a := f.Do("POST", "/v1/volumes/demo?action=updateAccessMode", `{"accessMode":"rwo"}`); a.Status != http.StatusOK {
		t.Errorf("the access mode that an attached volume has: %s", a.Text)
	}
}
