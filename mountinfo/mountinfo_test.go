package mountinfo

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEach: lines of real kernels, and what is none.
func TestEach(t *testing.T) {
	table := strings.Join([]string{
		"30 1 7:0 / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/a rw,errors=remount-ro",
		`31 30 7:1 / /my\040mount ro master:2 shared:1 - xfs /dev/b\040c ro,attr2`,
		"nonsense", "32 1 7:0 / /mnt rw - ext4", "", "x 1 7:0 / /mnt rw - ext4 /dev/a rw",
		"33 1 7:2 / /long rw - overlay overlay rw,lowerdir=" + strings.Repeat("/layer:", maxLine/7),
		"34 1 7:2 / /last rw - ext4 /dev/c rw,emergency_ro",
	}, "\n")
	var got []Mount
	if err := Each(strings.NewReader(table), func(m *Mount) { got = append(got, *m) }); err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{30, "7:0", "/mnt", "/dev/longhorn/a", []string{"rw", "relatime"}, []string{"rw", "errors=remount-ro"}},
		{31, "7:1", "/my mount", "/dev/b c", []string{"ro"}, []string{"ro", "attr2"}},
		{34, "7:2", "/last", "/dev/c", []string{"rw"}, []string{"rw", "emergency_ro"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
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
