package cli

import (
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestSetLocality: the command ends when the volume has its replicas, one of them local, when there
// is no place for that one, and at once where nothing is to be built.
func TestSetLocality(t *testing.T) {
	objects := func(node string, edit func(*lh.Volume)) *bed {
		attached := resttest.Volume("busy")
		resttest.Attach(attached, node, "/dev/longhorn/busy")
		v := attached[0].(*lh.Volume)
		v.Spec.NumberOfReplicas, v.Spec.DataLocality = 1, lh.DataLocalityDisabled
		edit(v)
		return newBed(t, resttest.Cluster(append(attached, resttest.Volume("demo")...)...)...)
	}
	none := func(*lh.Volume) {}
	full := func(v *lh.Volume) {
		v.Status.Conditions = []lh.Condition{{Type: lh.VolumeConditionScheduled, Status: lh.ConditionFalse,
			Reason: lh.VolumeReasonLocalReplicaSchedulingFailure, Message: "insufficient storage"}}
	}
	for _, tt := range []struct {
		name     string
		bed      *bed
		args     string
		status   int
		out, err string
	}{
		{"a local replica is there", objects("node-1", none), "busy best-effort", 0,
			"volume busy: data locality best-effort; attached to node-1, replicas on node-1\n", ""},
		{"none is there", objects("node-2", none), "busy best-effort --timeout 300ms", 1, "",
			"volume busy is not where it is attached after 300ms: it is attached, healthy"},
		{"not waiting", objects("node-2", none), "busy best-effort --wait=false", 0,
			"volume busy: data locality best-effort; attached to node-2, replicas on node-1\n", ""},
		{"no room", objects("node-2", full), "busy best-effort", 0, "data locality best-effort; attached to node-2",
			"warning: there is no replica on node-2 yet: insufficient storage\n"},
		{"off", objects("node-2", none), "busy disabled", 0, "volume busy: data locality disabled; attached", ""},
		{"detached", objects("node-2", none), "demo best-effort", 0, "volume demo: data locality best-effort\n", ""},
		{"detached, strict", objects("node-2", none), "demo strict-local", 0, "volume demo: data locality strict-local\n",
			""},
	} {
		r := tt.bed.run(append([]string{"volume", "set-locality"}, strings.Fields(tt.args)...)...)
		if r.status != tt.status || !strings.Contains(r.out, tt.out) || !strings.Contains(r.err, tt.err) ||
			tt.err == "" && r.err != "" {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}
