package volume_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestDeviceKeepers: who keeps a volume on its node is told by the volume's condition, and by
// events of the volume and of the Pod, once; and so that nobody does any more.
func TestDeviceKeepers(t *testing.T) {
	const uid = "0f0e0d0c-1111-2222-3333-444444444444"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "exporter-x", UID: uid}}
	f := newFixture(t, append(resttest.Cluster(resttest.Attached()...), pod)...)
	post := func(body string) {
		t.Helper()
		if a := f.Do("POST", "/v1/devicekeepers/demo", body); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Text)
		}
	}
	seen := func(status lh.ConditionStatus, events int, texts ...string) {
		t.Helper()
		var v lh.Volume
		f.Read("demo", &v)
		c := lh.FindCondition(v.Status.Conditions, lh.VolumeConditionDeviceKept)
		var all corev1.EventList
		if err := f.Client.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		said := c.Message
		for _, e := range all.Items {
			said += "\n" + e.InvolvedObject.Kind + " " + e.InvolvedObject.Name + ": " + e.Type + " " + e.Reason + " " + e.Message
		}
		if c.Status != status || len(all.Items) != events {
			t.Errorf("condition %+v, %d events, want %s and %d", c, len(all.Items), status, events)
		}
		for _, text := range texts {
			if !strings.Contains(said, text) {
				t.Errorf("%q lacks %q", said, text)
			}
		}
	}
	const none = `{"nodeID":"node-1","keepers":[]}`
	held := `{"nodeID":"node-1","keepers":[{"podUID":"` + uid + `","program":"exporter","pid":42,"path":"/host/mnt"},` +
		`{"program":"backup","pid":43,"path":"/host/mnt"}]}`
	post(none)
	seen(lh.ConditionUnknown, 0)
	post(strings.Replace(held, "node-1", "node-2", 1)) // where the volume is not any more
	seen(lh.ConditionUnknown, 0)
	for range 2 {
		post(held)
		seen(lh.ConditionTrue, 2, "still mounted on node node-1 by process exporter (42) of Pod monitoring/exporter-x at "+
			"/host/mnt, process backup (43) at /host/mnt", "Volume demo: Warning Waiting Volume demo cannot leave its node",
			"Pod exporter-x: Warning Waiting Volume demo cannot leave node node-1: process exporter (42) of this Pod")
	}
	post(none)
	seen(lh.ConditionFalse, 2)
	f.Refused(f.Do("POST", "/v1/devicekeepers/nope", held), 404, "not found")
}
