package engine

import (
	"testing"

	"ankole.storage/dataplane/wire"
)

// What a start finds of an import that reached some replicas only is made the same everywhere.
func TestRepairsOfImports(t *testing.T) {
	mark := importMark{Kind: "clone", Volume: "v", VolumeUUID: "u", Snapshot: "s", Name: "copy"}.text()
	fresh := view{size: 1, headEmpty: true, known: map[string]bool{}}
	marked := view{size: 1, mark: mark, known: map[string]bool{}}
	done := view{size: 1, headEmpty: true, known: map[string]bool{"copy": false}, live: []string{"copy"}, below: "copy",
		label: mark,
		last:  wire.Layer{Name: "copy", Created: "then", Labels: map[string]string{importLabel: mark}}}
	// A restore that goes on from an earlier one has the snapshot of that below it.
	earlier := importMark{Kind: "restore", Volume: "v", VolumeUUID: "u", Snapshot: "one", Name: "before"}.text()
	held := view{size: 1, headEmpty: true, known: map[string]bool{"before": true}, below: "before", label: earlier}
	step := view{size: 1, mark: mark, known: map[string]bool{"before": true}, below: "before", label: earlier}
	stepped := done
	stepped.known = map[string]bool{"before": true, "copy": false}
	for name, c := range map[string]struct {
		views []view
		// want is what each has to do: "", "mark" or "end".
		want []string
	}{
		"begun everywhere":          {[]view{marked, marked}, nil},
		"ended everywhere":          {[]view{done, done}, nil},
		"begun at one":              {[]view{fresh, marked, fresh}, []string{"mark", "", "mark"}},
		"ended at one":              {[]view{marked, done, marked}, []string{"end", "", "end"}},
		"ended at all but one":      {[]view{done, done, marked}, []string{"", "", "end"}},
		"step begun at one":         {[]view{held, step}, []string{"mark", ""}},
		"step begun everywhere":     {[]view{step, step}, nil},
		"step ended at one":         {[]view{step, stepped}, []string{"end", ""}},
		"step ended everywhere":     {[]view{stepped, stepped}, nil},
		"nothing to do with either": {[]view{fresh, fresh}, nil},
	} {
		got := repairs(c.views)
		if (got == nil) != (c.want == nil) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i := range c.want {
			r := ""
			switch q := got[i].request; {
			case got[i].drop != "":
				r = "drop: " + got[i].drop
			case q == nil:
			case q.ImportMark != nil && q.ImportMark.What == mark:
				r = "mark"
			case q.Snapshot != nil && q.Snapshot.Name == "copy" && q.Snapshot.Created == "then" &&
				q.Snapshot.Labels[importLabel] == mark:
				r = "end"
			default:
				r = "something else"
			}
			if r != c.want[i] {
				t.Errorf("%s: replica %d has to do %q, want %q", name, i, r, c.want[i])
			}
		}
	}
}

// Marks survive being written down, and unknown ones are somebody else's.
func TestImportMarks(t *testing.T) {
	m := importMark{Kind: "clone", Volume: "v", VolumeUUID: "u", Snapshot: "s", Name: "n"}
	if got := parseMark(m.text()); got != m || !m.same(got) {
		t.Errorf("%+v", got)
	}
	if got := parseMark("volume-backup-7"); got.same(m) || got.Snapshot != "volume-backup-7" {
		t.Errorf("%+v", got)
	}
	for _, o := range []importMark{{Kind: "restore", VolumeUUID: "u", Snapshot: "s"},
		{Kind: "clone", VolumeUUID: "x", Snapshot: "s"}, {Kind: "clone", VolumeUUID: "u", Snapshot: "t"}} {
		if m.same(o) {
			t.Errorf("%s is taken for %s", o, m)
		}
	}
}
