package mountinfo

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEach: lines of real kernels, and what is none.
func TestEach(t *testing.T) {
	table := strings.Join([]string{
		"30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a rw,errors=remount-ro",
		`31 30 7:1 /a\040b /my\040mount ro master:2 shared:1 - xfs /dev/b\040c ro,attr2`,
		"nonsense", `35 1 7:0 / /half\04 rw - ext4 /dev/a rw`, "36 1 7 / /mnt rw - ext4 /dev/a rw", "32 1 7:0 / /mnt rw - ext4", "", "x 1 7:0 / /mnt rw - ext4 /dev/a rw",
		"33 1 7:2 / /long rw - overlay overlay rw,lowerdir=" + strings.Repeat("/layer:", maxLine/7),
		"34 1 7:2 / /last rw - ext4 /dev/c rw,emergency_ro",
	}, "\n")
	var got []Mount
	if err := Each(strings.NewReader(table), func(m *Mount) { got = append(got, *m) }); err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{30, "7:0", "/", "/mnt", "/dev/longhorn/a", "ext4", []string{"rw", "relatime"}, []string{"rw", "errors=remount-ro"}},
		{31, "7:1", "/a b", "/my mount", "/dev/b c", "xfs", []string{"ro"}, []string{"ro", "attr2"}},
		{34, "7:2", "/", "/last", "/dev/c", "ext4", []string{"rw"}, []string{"rw", "emergency_ro"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestLongLines: the layers of a container are options of its file system, and the kernel bounds
// their number, not the line's length. Such a line is of no volume, and hides none of the others.
func TestLongLines(t *testing.T) {
	const volume = "30 1 7:%d / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/% ro,errors=remount-ro\n"
	line := func(minor, name string) string {
		return strings.NewReplacer("%d", minor, "%", name).Replace(volume)
	}
	layers := "31 1 0:50 / /merged rw,relatime - overlay overlay ro,lowerdir=" +
		strings.Repeat("/var/lib/containerd/layer:", 8000) + "/last\n"
	var got []string
	err := Each(strings.NewReader(line("0", "a")+layers+line("1", "b")+strings.TrimSuffix(layers, "\n")),
		func(m *Mount) { got = append(got, m.Device+m.Source) })
	if err != nil {
		t.Fatal(err)
	}
	if want := "7:0/dev/longhorn/a 7:1/dev/longhorn/b"; strings.Join(got, " ") != want {
		t.Errorf("mounts: %q, want %q", got, want)
	}
}

// TestTable: a line that one reading lacks, as older kernels give it, is not missing; a table that
// never comes to rest is an error.
func TestTable(t *testing.T) {
	const line = "30 1 7:0 / /mnt rw - ext4 /dev/longhorn/a rw\n"
	other := func(i int) string { return fmt.Sprintf("%d 1 7:1 / /other rw - ext4 /dev/b rw\n", i) }
	for name, tt := range map[string]struct {
		read func(i int) string
		want int
		fail bool
	}{
		"at rest":       {func(int) string { return line }, 1, false},
		"empty":         {func(int) string { return "" }, 0, false},
		"left out once": {func(i int) string { return strings.Repeat(line, min(i, 1)) }, 1, false},
		"left out while another goes": {func(i int) string {
			if i%2 == 0 && i < 6 {
				return other(i)
			}
			return line
		}, 1, false},
		"changes all the time": {other, 0, true},
	} {
		i := -1
		all, err := Table(func() ([]byte, error) { i++; return []byte(tt.read(i)), nil })
		if len(all) != tt.want || (err != nil) != tt.fail || len(all) > 0 && all[0].Target != "/mnt" {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// TestRefuses: which options of a file system say that it takes no writes.
func TestRefuses(t *testing.T) {
	for options, want := range map[string]string{
		"rw,errors=remount-ro": "", "rw,rootcontext=x,roundrobin": "", "ro,attr2": "ro", "rw,emergency_ro": "emergency_ro",
		"rw,abort,emergency_ro": "emergency_ro", "rw,shutdown": "shutdown",
	} {
		m := Mount{Super: strings.Split(options, ",")}
		if got := m.Refuses(); got != want {
			t.Errorf("%s: %q, want %q", options, got, want)
		}
	}
}

// TestOwn: the table of this process has the root directory.
func TestOwn(t *testing.T) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := false
	if err := Each(f, func(m *Mount) { found = found || m.Target == "/" }); err != nil || !found {
		t.Errorf("the root directory is mounted: %v, %v", found, err)
	}
}

func FuzzEach(f *testing.F) {
	f.Add("30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a ro,errors=remount-ro\n")
	f.Add("30 1 7:0 / /a\\04 rw - ext4 /dev/a\\999 ro")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		err := Each(strings.NewReader(text), func(m *Mount) {
			n++
			if len(m.Options) == 0 || len(m.Super) == 0 {
				t.Errorf("%+v", m)
			}
		})
		if err != nil || n > strings.Count(text, "\n")+1 {
			t.Errorf("%d mounts, %v", n, err)
		}
	})
}
