package engine

import (
	"slices"
	"testing"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

// TestExpands: an engine is told to expand once it has all replicas that it should have, and not
// while it would refuse.
func TestExpands(t *testing.T) {
	const larger = 3 << 30
	for _, tt := range []struct {
		name string
		edit func(s *seen)
		want string
	}{
		{"in step otherwise", func(*seen) {}, "expand engine v-e-0 from 1073741824 to 3221225472 bytes"},
		{"it has that size", func(s *seen) { s.State.SizeBytes = larger }, ""},
		{"it is at it", func(s *seen) { s.State.Expanding = true }, ""},
		{"a replica is rebuilt", func(s *seen) { s.State.Replicas[1].Mode = engineclient.ModeWO }, ""},
		{"a replica is not judged yet", func(s *seen) { s.State.Replicas[1].Mode = engineclient.ModePending }, ""},
		{"a replica is to be added first", func(s *seen) { s.State.Replicas = s.State.Replicas[:1] },
			"add replica b to engine v-e-0"},
		{"one that is refused does not count", func(s *seen) {
			s.State.Replicas, s.Refused = s.State.Replicas[:1], map[string]string{"10.0.0.2:10000": "no"}
		}, "expand engine v-e-0 from 1073741824 to 3221225472 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			e.Spec.VolumeSize = larger
			tt.edit(&s)
			_, d := settle(e, s)
			got := ""
			if d.Do != nil {
				got = d.Do.String()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestExpansionReachesTheObject: what the engine says of its size is in the status, growth is an
// event, and the first size is none.
func TestExpansionReachesTheObject(t *testing.T) {
	e, s := running()
	events, _ := settle(e, s)
	s.State.Expanding, s.State.LastExpansionError, s.State.LastExpansionFailedAt = true, "no space", "2026-01-01T00:00:00Z"
	settle(e, s)
	if st := e.Status; !st.IsExpanding || st.LastExpansionError != "no space" || st.LastExpansionFailedAt == "" ||
		st.CurrentSize != 1<<30 || len(events) != 0 {
		t.Errorf("%+v, events %+v", st, events)
	}
	s.State.SizeBytes, s.State.Expanding, s.State.LastExpansionError = 2<<30, false, ""
	events, _ = settle(e, s)
	if st := e.Status; st.IsExpanding || st.LastExpansionError != "" || st.CurrentSize != 2<<30 || len(events) != 1 ||
		events[0].Reason != naming.EventSucceededExpansion || events[0].Warning {
		t.Errorf("%+v, events %+v", st, events)
	}
}

// TestStartsWithTheSizeItHas: an engine that is to be larger starts with the size that the volume
// had last, which its replicas have at least.
func TestStartsWithTheSizeItHas(t *testing.T) {
	e, _ := running()
	e.Spec.VolumeSize, e.Status.CurrentSize = 3<<30, 1<<30
	args := process(e, "10.0.0.1", "", nil).Args
	if i := slices.Index(args, "--current-size"); i < 0 || args[i+1] != "1073741824" {
		t.Errorf("%q", args)
	}
}
