package readonly

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestLongLines: the layers of a container are options of its file system, and the kernel bounds
// their number, not the line's length. Such a line is of no volume, and hides none of the others.
func TestLongLines(t *testing.T) {
	const volume = "30 1 7:%d / /mnt rw,relatime shared:5 - ext4 /dev/longhorn/% ro,errors=remount-ro\n"
	line := func(minor, name string) string {
		return strings.NewReplacer("%d", minor, "%", name).Replace(volume)
	}
	layers := "31 1 0:50 / /merged rw,relatime - overlay overlay ro,lowerdir=" +
		strings.Repeat("/var/lib/containerd/layer:", 8000) + "/last\n"
	got, err := goneReadOnly(strings.NewReader(line("0", "a") + layers + line("1", "b") +
		strings.TrimSuffix(layers, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/dev/longhorn/a", "/dev/longhorn/b", "7:0", "7:1"}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Errorf("gone read-only: %q, want %q", keys, want)
	}
}
