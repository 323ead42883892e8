package engine_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// What was written is read again before it counts: a copy that has rotted meanwhile is found, its
// replica dropped, and without another one the clone fails.
func TestCloneIsCompared(t *testing.T) {
	for replicas, want := range map[int]string{1: "content at 0 differs", 2: ""} {
		g := newCloneRig(t, 1, replicas, scrubSize)
		g.slowly()
		g.damage(g.begin("b", nil))
		g.midway()
		g.damage(g.to.disk(0).Rot("/replicas/tr0/volume-head-000.img", 0, 1))
		g.to.ended()
		s := g.to.state.Import
		if (s.State == "complete") != (want == "") || !strings.Contains(s.Error, want) || s.Incomplete != (want != "") {
			t.Errorf("%d replicas: %+v", replicas, s)
		}
		if want == "" {
			g.to.expectModes("tr0=ERR tr1=RW")
		}
	}
}

// A clone whose target cannot read what was written ends, and says so.
func TestCloneThatCannotBeReadEnds(t *testing.T) {
	g := newCloneRig(t, 1, 1, scrubSize)
	g.to.disk(0).Inject(memdisk.Rule{Op: memdisk.OpRead, Name: "volume-head-*", Err: disk.ErrIO})
	if err := g.begin("b", nil); err != nil {
		t.Fatal(err)
	}
	g.to.ended()
	if s := g.to.state.Import; s.State != "error" || !strings.Contains(s.Error, "cannot be read") || !s.Incomplete {
		t.Errorf("%+v", s)
	}
}
