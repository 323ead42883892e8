package replica

import (
	"slices"
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestImageBelowAReplica: nothing is started before the image is on the replica's disk; what runs
// goes on without it.
func TestImageBelowAReplica(t *testing.T) {
	image := func(state v1beta2.BackingImageState, disk string) *v1beta2.BackingImage {
		i := &v1beta2.BackingImage{}
		i.Name, i.Status.UUID = "cirros", "0a1b2c3d"
		i.Status.DiskFileStatusMap = map[string]v1beta2.BackingImageDiskFileStatus{disk: {State: state, Progress: 40,
			Message: "told"}}
		return i
	}
	missing := backing{Reason: v1beta2.ReplicaReasonGetBackingImageFailed, Message: "does not exist"}
	of := func(i *v1beta2.BackingImage) backing {
		r := rep()
		r.Spec.BackingImage = "cirros"
		return backingOf(i, r)
	}
	for _, tt := range []struct {
		name    string
		running bool
		backing backing
		want    string
		waits   string
	}{
		{"ready", false, of(image(v1beta2.BackingImageStateReady, "disk-1")), "start replica v-r-11111111", ""},
		{"under way", false, of(image(v1beta2.BackingImageStateInProgress, "disk-1")), "", "in-progress, 40 %: told"},
		{"failed", false, of(image(v1beta2.BackingImageStateFailed, "disk-1")), "", "failed"},
		{"on another disk", false, of(image(v1beta2.BackingImageStateReady, "disk-2")), "", "is not on disk disk-1"},
		{"no image", false, missing, "", "does not exist"},
		{"it runs, and the image is gone", true, missing, "", ""},
	} {
		r := rep()
		r.Spec.BackingImage = "cirros"
		s := seen{Managers: managers(nil), Backing: tt.backing}
		if tt.running {
			s.Managers = managers(runningProcess())
			r.Status.CurrentState = v1beta2.InstanceStateRunning
		}
		got := ""
		if d := decide(now, r, s); d.Do != nil {
			got = d.Do.String()
		}
		if got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
		c := v1beta2.FindCondition(r.Status.Conditions, v1beta2.ReplicaConditionWaitForBackingImage)
		if (c.Status == v1beta2.ConditionTrue) != (tt.waits != "") || !strings.Contains(c.Message, tt.waits) {
			t.Errorf("%s: condition %+v, want %q", tt.name, c, tt.waits)
		}
		if tt.running && r.Status.CurrentState != v1beta2.InstanceStateRunning {
			t.Errorf("%s: it is %s", tt.name, r.Status.CurrentState)
		}
	}
	args := process(rep(), "10.0.0.1", "", false, of(image(v1beta2.BackingImageStateReady, "disk-1")).Path).Args
	at := slices.Index(args, "--backing-file")
	if at < 0 || args[at+1] != "/host/data/backing-images/cirros-0a1b2c3d/backing" {
		t.Errorf("arguments %q", args)
	}
}
