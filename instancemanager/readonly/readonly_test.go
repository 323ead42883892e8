package readonly

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"ankole.storage/host/mountinfo"
	"ankole.storage/instancemanager/filesystem"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/process"
	"ankole.storage/test/wait"
)

func TestMain(m *testing.M) {
	instancetest.Main()
	os.Exit(m.Run())
}

// lines returns the mounts of a table.
func lines(t *testing.T, table string) (all []mountinfo.Mount) {
	t.Helper()
	err := mountinfo.Each(strings.NewReader(table), func(m *mountinfo.Mount) { all = append(all, *m) })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTable is the table of mounts and of what they say. The lines are those of real kernels.
func TestTable(t *testing.T) {
	for _, row := range []struct {
		name, line string
		want       state
	}{
		{"healthy", "30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a rw,errors=remount-ro", sound},
		{"remounted by ext4", "30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a ro,errors=remount-ro", refuses},
		{"newer ext4", "30 1 7:0 / /mnt rw,relatime - ext4 /dev/longhorn/a rw,emergency_ro,errors=remount-ro", refuses},
		{"shut down", "30 1 7:0 / /mnt rw,relatime - ext4 /dev/longhorn/a rw,shutdown", refuses},
		{"mounted read-only by somebody", "30 1 7:0 / /mnt ro,relatime - ext4 /dev/longhorn/a ro", sound},
		{"bound read-only", "30 1 7:0 / /mnt ro,relatime - ext4 /dev/longhorn/a rw", sound},
		{"several optional fields", "30 1 7:0 / /mnt rw shared:1 master:2 - xfs /dev/longhorn/a ro,attr2", refuses},
		{"a word that begins alike", "30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a rw,rootcontext=x,roundrobin", sound},
		{"blanks in a path", `30 1 7:0 / /my\040mount rw - ext4 /dev/longhorn/a ro`, refuses},
		{"nonsense", "nonsense", sound},
		{"cut short", "30 1 7:0 / /mnt rw - ext4", sound},
		{"empty", "", sound},
	} {
		if got := stateOf(lines(t, row.line+"\n")); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestWantedReadOnly: where one of a file system's mounts is read-only by itself, as after "mount
// -o remount,ro" of one of them, it may be wanted so, and is told and not changed. Another file
// system of the same volume says nothing of it.
func TestWantedReadOnly(t *testing.T) {
	const line, other = "30 1 7:0 / /mnt%d %s - ext4 /dev/longhorn/a %s\n",
		"40 1 253:0 / /other %s - ext4 /dev/mapper/a %s\n"
	for _, row := range []struct {
		own   []string
		file  string
		other []any
		want  state
	}{
		{[]string{"rw", "rw"}, "rw", nil, sound}, {[]string{"rw", "ro"}, "rw", nil, sound},
		{[]string{"ro", "ro"}, "ro", nil, sound}, {[]string{"rw", "rw"}, "ro", nil, refuses},
		{[]string{"ro", "rw"}, "ro", nil, notToBeMended}, {[]string{"rw", "ro"}, "ro", nil, notToBeMended},
		{[]string{"rw", "rw"}, "ro", []any{"ro", "ro"}, refuses}, {[]string{"rw", "ro"}, "ro", []any{"rw", "ro"}, refuses},
		{[]string{"ro", "ro"}, "ro", []any{"rw", "ro"}, refuses},
		{[]string{"rw", "ro"}, "ro", []any{"rw", "rw"}, notToBeMended},
	} {
		var table strings.Builder
		for i, own := range row.own {
			fmt.Fprintf(&table, line, i, own, row.file)
		}
		if row.other != nil {
			fmt.Fprintf(&table, other, row.other...)
		}
		if got := stateOf(lines(t, table.String())); got != row.want {
			t.Errorf("mounts %q, file system %s, the other one %q: %v, want %v", row.own, row.file, row.other, got, row.want)
		}
	}
}

// TestLook: engines are told apart, and a condition comes, stays and goes with what the table says;
// replicas have none.
func TestLook(t *testing.T) {
	m, err := process.New(process.Config{LogsDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"a-e-0", "b-e-0", "a-r-12345678"} {
		s := instancetest.Spec(t, name, instancetest.NeverListens, "", 0)
		if _, err := m.Create(process.Spec{Name: name, Binary: s.Binary, Args: s.Args,
			Environment: s.Environment}); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, name+" runs", func() bool {
			p, err := m.Get(name)
			return err == nil && p.State == process.Running
		})
	}
	remounted := make(chan string, 100)
	var table []mountinfo.Mount
	looks := 0
	c := &Checker{Manager: m, Log: slog.New(slog.DiscardHandler),
		Remount: func(volume string) error { remounted <- volume; return errors.New("refused") },
		Mounts: func() (filesystem.Of, error) {
			looks++
			return func(volume string) (own, former []mountinfo.Mount) {
				for _, m := range table {
					switch m.Source {
					case "/dev/longhorn/" + volume:
						own = append(own, m)
					case "/former/" + volume:
						former = append(former, m)
					}
				}
				return own, former
			}, nil
		}}
	const healthy, broken, ended = "30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a rw\n",
		"30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a ro\n", "30 1 7:0 / /mnt rw - ext4 /former/a rw,shutdown\n"
	events := m.Watch()
	defer events.Cancel()
	for i, step := range []struct {
		table string
		want  map[string]bool
		news  int
	}{{healthy, nil, 0}, {ended, map[string]bool{Condition: true}, 1},
		{healthy + ended, map[string]bool{Condition: true}, 0},
		{healthy, map[string]bool{Condition: false}, 1},
		{broken, map[string]bool{Condition: true}, 1}, {broken, map[string]bool{Condition: true}, 0},
		{healthy, map[string]bool{Condition: false}, 1}, {"", map[string]bool{Condition: false}, 0}} {
		table = lines(t, step.table)
		if err := c.Look(); err != nil || looks != i+1 {
			t.Fatalf("step %d: %d looks at the table, %v", i, looks, err)
		}
		for name, want := range map[string]map[string]bool{"a-e-0": step.want, "b-e-0": nil, "a-r-12345678": nil} {
			if p, err := m.Get(name); err != nil || !maps.Equal(p.Conditions, want) {
				t.Errorf("step %d, %s: %v %v, want %v", i, name, p.Conditions, err, want)
			}
		}
		if strings.Contains(step.table, ended) && len(remounted)+len(c.tries) > 0 {
			t.Error("what a device that has ended is under is made writable")
		}
		if len(events.C) != step.news {
			t.Errorf("step %d: %d changes, want %d", i, len(events.C), step.news)
		}
		for range step.news {
			<-events.C
		}
	}
	none := errors.New("no table")
	c.Mounts = func() (filesystem.Of, error) { return nil, none }
	if err := c.Look(); !errors.Is(err, none) {
		t.Errorf("without a table: %v", err)
	}
	if volume := <-remounted; volume != "a" {
		t.Errorf("made writable: %s", volume)
	}
}

// TestMend: a file system that has gone read-only is made writable at once, and again after ever
// more looks while it is refused; one attempt at a time, and from the beginning the next time.
func TestMend(t *testing.T) {
	answers, asked := make(chan error), make(chan string, 1000)
	c := &Checker{Log: slog.New(slog.DiscardHandler), Remount: func(volume string) error {
		asked <- volume
		return <-answers
	}}
	idle := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.tries["a"] == nil || !c.tries["a"].running
	}
	var at []int
	for look := range 200 {
		c.mend("a", true)
		if !idle() {
			c.mend("a", true) // it waits for the kernel
			<-asked
			answers <- errors.New("refused")
			wait.Until(t, "the attempt is over", idle)
			at = append(at, look)
		}
	}
	if want := []int{0, 1, 3, 7, 15, 31, 63, 127, 191}; !slices.Equal(at, want) {
		t.Errorf("attempts at looks %v, want %v", at, want)
	}
	if len(asked) > 0 {
		t.Errorf("%d more attempts at the same time", len(asked))
	}
	c.mend("a", true)
	c.mend("a", false)
	c.mend("a", true)
	if <-asked; len(c.tries) != 1 {
		t.Errorf("%d volumes are remembered", len(c.tries))
	}
	answers <- nil
	wait.Until(t, "the attempt is over", idle)
	if c.forget(nil); len(c.tries) > 0 {
		t.Error("a volume without an engine is remembered")
	}
}
