package backingimage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const sum = "5"

// inState is a file in a state, as it comes to be there.
func inState(t testing.TB, s State) File {
	t.Helper()
	f := File{Source: s == ReadyForTransfer}
	events := map[State][]Event{
		"": nil, Pending: {Ordered{}}, Starting: {Ordered{}, Begun{}}, InProgress: {Ordered{}, Begun{}, Received{1, 2}},
		ReadyForTransfer: {Ordered{}, Made{sum}}, Ready: {Ordered{}, Made{sum}}, Failed: {Ordered{}, Broken{"full"}},
	}[s]
	for _, e := range events {
		var err error
		if f, _, err = f.On(e); err != nil {
			t.Fatal(err)
		}
	}
	if f.State != s {
		t.Fatalf("%q instead of %q", f.State, s)
	}
	return f
}

// TestTable is the table of docs/design/backing-images.md: for each event what follows in each
// state. "!" is an error, "." nothing; actions follow a colon.
func TestTable(t *testing.T) {
	t.Parallel()
	states := States() // "", pending, starting, in-progress, ready-for-transfer, ready, failed
	for _, row := range []struct {
		name string
		e    Event
		want []string
	}{
		{"found with its record", Found{sum}, []string{"ready", "!", "!", "!", "!", "!", "!"}},
		{"found without", Found{}, []string{"starting:verify", "!", "!", "!", "!", "!", "!"}},
		{"ordered", Ordered{}, []string{"pending:make", ".", ".", ".", ".", ".", "pending:make"}},
		{"begun", Begun{}, []string{".", "starting", ".", ".", ".", ".", "."}},
		{"received", Received{1, 2}, []string{".", ".", "in-progress", ".", ".", ".", "."}},
		{"made", Made{sum}, []string{"!", "ready", "ready", "ready", "!", "!", "!"}},
		{"broken", Broken{"cut"}, []string{"!", "failed", "failed", "failed", "!", "!", "!"}},
		{"damaged", Damaged{"rot"}, []string{".", ".", ".", ".", "failed", "failed", "."}},
		{"send begun", SendBegun{}, []string{"!", "!", "!", "!", "ready-for-transfer", "ready", "!"}},
		{"send ended", SendEnded{}, []string{"!", "!", "!", "!", "!", "!", "!"}},
		{"removed", Removed{}, []string{"!", ".:cancel", ".:cancel", ".:cancel", ".:erase", ".:erase", ".:erase"}},
		{"removed from memory", Removed{Keep: true}, []string{"!", ".:cancel", ".:cancel", ".:cancel", ":forget", ":forget",
			":forget"}},
		{"erased", Erased{}, []string{"!", "!", "!", "!", "!", "!", "!"}},
	} {
		for i, s := range states {
			before := inState(t, s)
			after, actions, err := before.On(row.e)
			state, want, _ := strings.Cut(row.want[i], ":")
			if (err != nil) != (state == "!") {
				t.Errorf("%s in %q: %v, want %s", row.name, s, err, row.want[i])
			}
			if err != nil && after != before {
				t.Errorf("%s in %q: the error has changed %+v to %+v", row.name, s, before, after)
			}
			if state == "." || state == "!" {
				state = string(s)
			}
			got := ""
			if len(actions) > 0 {
				got = string(actions[0])
			}
			if string(after.State) != state || got != want || len(actions) > 1 {
				t.Errorf("%s in %q: %q and %v, want %s", row.name, s, after.State, actions, row.want[i])
			}
		}
	}
}

// TestRemovalWaits: nothing is erased under a run or a transfer, and the end of the last one
// erases.
func TestRemovalWaits(t *testing.T) {
	t.Parallel()
	f := inState(t, Ready)
	step := func(e Event, want ...Action) {
		t.Helper()
		var actions []Action
		var err error
		if f, actions, err = f.On(e); err != nil || !slices.Equal(actions, want) {
			t.Fatalf("%T: %v, %v, want %v", e, actions, err, want)
		}
	}
	step(SendBegun{})
	step(SendBegun{})
	step(Removed{}, CancelSends)
	if _, _, err := f.On(SendBegun{}); !errors.Is(err, ErrRemoving) {
		t.Errorf("a file that goes is sent: %v", err)
	}
	if _, _, err := f.On(Ordered{}); !errors.Is(err, ErrRemoving) {
		t.Errorf("a file that goes is made: %v", err)
	}
	step(SendEnded{})
	step(SendEnded{}, Erase)
	step(Erased{Reason: "read-only"})
	if f.State != Failed || f.Message != "read-only" {
		t.Errorf("%+v after a removal that failed", f)
	}
	step(Removed{}, Erase)
	step(Erased{})
	if f.Known() {
		t.Errorf("%+v is still known", f)
	}
}

// TestDamagedFileIsNotMadeAgain before it is deleted: replicas may have it open.
func TestDamagedFileIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	for _, f := range []File{after(t, inState(t, Ready), Damaged{"rot"}), after(t, File{}, Found{}, Broken{"rot"})} {
		if _, actions, err := f.On(Ordered{}); !errors.Is(err, ErrNotReady) || len(actions) > 0 {
			t.Errorf("%v, %v", actions, err)
		}
		f = after(t, f, Removed{}, Erased{}, Ordered{})
		if f.State != Pending {
			t.Errorf("%+v after its deletion", f)
		}
	}
}

func after(t *testing.T, f File, events ...Event) File {
	t.Helper()
	for _, e := range events {
		var err error
		if f, _, err = f.On(e); err != nil {
			t.Fatalf("%T: %v", e, err)
		}
	}
	return f
}

// world does what the actions say, as slowly as rapid wants.
type world struct {
	f       File
	run     bool
	sends   int
	erasing bool
	file    bool // a complete file lies on the disk
}

// TestAnyOrderOfEvents: whatever happens in whatever order, no two runs are under way, nothing is
// erased under a reader or a writer, only a complete file is ready, and a removal comes to its end.
func TestAnyOrderOfEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{f: File{Source: rapid.Bool().Draw(rt, "source")}}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step(rt)
		}
		if w.f.Removing {
			w.settle(rt)
		}
	})
}

func (w *world) step(rt *rapid.T) {
	cut := rapid.Bool().Draw(rt, "fails")
	var e Event
	switch rapid.IntRange(0, 9).Draw(rt, "event") {
	case 0:
		e = Ordered{}
	case 1:
		if w.file = w.file || !w.f.Known(); !w.file {
			return
		}
		e = Found{}
	case 2:
		e = Begun{}
	case 3:
		e = Received{1, 2}
	case 4, 5:
		if !w.run {
			return
		}
		w.run, e = false, Event(Made{sum})
		if w.file = w.file || !cut; cut {
			e = Broken{"cut"}
		}
	case 6:
		e = Damaged{"rot"}
	case 7:
		if e = (SendBegun{}); w.sends > 0 && cut {
			w.sends, e = w.sends-1, SendEnded{}
		}
	case 8:
		e = Removed{Keep: cut}
	default:
		if !w.erasing {
			return
		}
		w.erasing = false
		if e = (Erased{}); cut {
			e = Erased{"busy"}
		} else {
			w.file = false
		}
	}
	w.tell(rt, e)
}

func (w *world) tell(rt *rapid.T, e Event) {
	before := w.f
	f, actions, err := before.On(e)
	if err != nil && (f != before || len(actions) > 0) {
		rt.Fatalf("%T failed, and changed %+v to %+v", e, before, f)
	}
	if _, send := e.(SendBegun); send && err == nil {
		if w.sends++; !before.Complete() {
			rt.Fatalf("%+v is sent", before)
		}
	}
	w.f = f
	for _, a := range actions {
		switch a {
		case Make, Verify:
			if w.run || w.sends > 0 || w.erasing || a == Make && w.file {
				rt.Fatalf("%s of %+v beside %+v", a, f, w)
			}
			w.run = true
		case Erase, Forget:
			if w.run || w.sends > 0 || w.erasing {
				rt.Fatalf("%s of %+v beside %+v", a, f, w)
			}
			if w.erasing = a == Erase; !w.erasing {
				w.file = false // another process has it
			}
		}
	}
	if f.Running != w.run || f.Sending != w.sends {
		rt.Fatalf("after %T %+v, but %+v", e, f, w)
	}
	if f.Complete() && (f.Running || f.Checksum == "" || !w.file) {
		rt.Fatalf("after %T ready: %+v", e, f)
	}
	if f.State == Failed && f.Message == "" {
		rt.Fatalf("after %T failed without a reason: %+v", e, f)
	}
}

// settle tells the ends of all that is under way: a removal needs nothing else.
func (w *world) settle(rt *rapid.T) {
	if w.run {
		w.run = false
		w.tell(rt, Broken{"canceled"})
	}
	for w.sends > 0 {
		w.sends--
		w.tell(rt, SendEnded{})
	}
	if w.erasing {
		w.erasing, w.file = false, false
		w.tell(rt, Erased{})
	}
	if w.f.Known() {
		rt.Fatalf("%+v stays", w.f)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    File
		want int
	}{
		{File{State: Pending}, 0}, {File{State: InProgress, Done: 5}, 0}, {File{State: InProgress, Done: 5, Total: 10}, 50},
		{File{State: InProgress, Done: 10, Total: 10}, 99}, {File{State: Ready}, 100},
		{File{State: Failed, Done: 1, Total: 4}, 25},
	} {
		if got := tt.f.Progress(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.f, got, tt.want)
		}
	}
}
