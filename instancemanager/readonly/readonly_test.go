package readonly

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/process"
)

func TestMain(m *testing.M) {
	instancetest.Main()
	os.Exit(m.Run())
}

// TestTable is the table of mounts and of what they say. The lines are those of real kernels.
func TestTable(t *testing.T) {
	for _, row := range []struct{ name, line, want string }{
		{"healthy", "30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a rw,errors=remount-ro", ""},
		{"remounted by ext4", "30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a ro,errors=remount-ro",
			"/dev/longhorn/a 7:0"},
		{"newer ext4", "30 1 7:0 / /mnt rw,relatime - ext4 /dev/longhorn/a rw,emergency_ro,errors=remount-ro",
			"/dev/longhorn/a 7:0"},
		{"shut down", "30 1 7:0 / /mnt rw,relatime - ext4 /dev/longhorn/a rw,shutdown", "/dev/longhorn/a 7:0"},
		{"mounted read-only by somebody", "30 1 7:0 / /mnt ro,relatime - ext4 /dev/longhorn/a ro", ""},
		{"bound read-only", "30 1 7:0 / /mnt ro,relatime - ext4 /dev/longhorn/a rw", ""},
		{"several optional fields", "30 1 7:0 / /mnt rw shared:1 master:2 - xfs /dev/longhorn/a ro,attr2",
			"/dev/longhorn/a 7:0"},
		{"a word that begins alike", "30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a rw,rootcontext=x,roundrobin", ""},
		{"blanks in a path", `30 1 7:0 / /my\040mount rw - ext4 /dev/longhorn/a ro`, "/dev/longhorn/a 7:0"},
		{"nonsense", "nonsense", ""},
		{"cut short", "30 1 7:0 / /mnt rw - ext4", ""},
		{"empty", "", ""},
	} {
		got, err := goneReadOnly(strings.NewReader(row.line + "\n"))
		if keys := strings.Join(slices.Sorted(maps.Keys(got)), " "); err != nil || keys != row.want {
			t.Errorf("%s: %q %v, want %q", row.name, keys, err, row.want)
		}
	}
}

// TestLook: engines are told apart, and a condition comes, stays and goes with what the table says;
// replicas have none.
func TestLook(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
		instancetest.Eventually(t, name+" runs", func() bool {
			p, err := m.Get(name)
			return err == nil && p.State == process.Running
		})
	}
	c := &Checker{Manager: m, Log: slog.New(slog.DiscardHandler), Resolve: func(path string) string {
		if path == hostTable {
			return table
		}
		return path
	}}
	const healthy, broken = "30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a rw\n",
		"30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a ro\n"
	events := m.Watch()
	defer events.Cancel()
	for i, step := range []struct {
		table string
		want  map[string]bool
		news  int
	}{{healthy, nil, 0}, {broken, map[string]bool{Condition: true}, 1}, {broken, map[string]bool{Condition: true}, 0},
		{healthy, map[string]bool{Condition: false}, 1}, {"", map[string]bool{Condition: false}, 0}} {
		write(step.table)
		if err := c.Look(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]map[string]bool{"a-e-0": step.want, "b-e-0": nil, "a-r-12345678": nil} {
			if p, err := m.Get(name); err != nil || !maps.Equal(p.Conditions, want) {
				t.Errorf("step %d, %s: %v %v, want %v", i, name, p.Conditions, err, want)
			}
		}
		if len(events.C) != step.news {
			t.Errorf("step %d: %d changes, want %d", i, len(events.C), step.news)
		}
		for range step.news {
			<-events.C
		}
	}
}
