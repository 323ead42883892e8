package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/naming"
)

// threeDisks is a node with disks a, b and c in use, below the directory root, and what its agent
// sees of them. Each is a file system of its own as long as it is what was mounted.
func threeDisks(t *testing.T) (n *v1beta2.Node, root string, look func() map[string]DiskFacts) {
	t.Helper()
	root = t.TempDir()
	host := Host{Resolve: func(path string) string {
		rel, err := filepath.Rel(naming.InHostMount("/"), path)
		if err != nil || !filepath.IsLocal(rel) {
			return path // the kernel's tables
		}
		return filepath.Join(root, rel)
	}}
	n = readyNode()
	n.Spec.Disks, n.Status.DiskStatus = map[string]v1beta2.DiskSpec{}, map[string]v1beta2.DiskStatus{}
	for _, disk := range []string{"a", "b", "c"} {
		n.Spec.Disks[disk] = v1beta2.DiskSpec{Path: "/" + disk}
		if err := host.Prepare("/"+disk, disk); err != nil {
			t.Fatal(err)
		}
		n.Status.DiskStatus[disk] = v1beta2.DiskStatus{DiskUUID: host.Look("/"+disk, false).DiskUUID}
	}
	return n, root, func() map[string]DiskFacts {
		all := map[string]DiskFacts{}
		for disk := range n.Status.DiskStatus {
			f := host.Look("/"+disk, false)
			if f.HasConfig {
				f.FilesystemID = "of " + disk
			}
			all[disk] = f
		}
		return all
	}
}

// TestADiskThatIsPulledLeavesOthersAlone (K93): whatever is left where a disk was, and whatever the
// disks are called, the others stay ready, and a new one gets its configuration. One of the others
// is on the file system that the directory of the disk is on when nothing is mounted there.
func TestADiskThatIsPulledLeavesOthersAlone(t *testing.T) {
	config := func(write func(file string) error) func(string) error {
		return func(dir string) error {
			file := filepath.Join(dir, naming.DiskConfigFile)
			return errors.Join(os.Remove(file), write(file))
		}
	}
	text := func(s string) func(string) error {
		return func(file string) error { return os.WriteFile(file, []byte(s), 0o600) }
	}
	for name, pull := range map[string]func(dir string) error{
		"unmounted":                  config(func(string) error { return nil }),
		"without its directory":      os.RemoveAll,
		"a file is there":            func(dir string) error { return errors.Join(os.RemoveAll(dir), text("")(dir)) },
		"configuration is no file":   config(func(file string) error { return os.Mkdir(file, 0o700) }),
		"configuration is empty":     config(text("")),
		"configuration without UUID": config(text("{}")),
		"another disk":               config(text(`{"diskUUID":"x"}`)),
	} {
		for pulled, below := range map[string]string{"a": "b", "b": "a", "c": "a"} {
			t.Run(name+" "+pulled, func(t *testing.T) {
				n, root, look := threeDisks(t)
				if err := pull(filepath.Join(root, pulled)); err != nil {
					t.Fatal(err)
				}
				facts := look()
				other := facts[below]
				other.FilesystemID = facts[pulled].FilesystemID
				facts[below] = other
				n.Spec.Disks["d"], n.Status.DiskStatus["d"] = v1beta2.DiskSpec{Path: "/d"}, v1beta2.DiskStatus{}
				facts["d"] = DiskFacts{FilesystemID: "of d"}
				var prepared []string
				d := decideAgent(now, n, agentSeen{Facts: facts, Prepare: func(_ context.Context, _, disk string) error {
					prepared = append(prepared, disk)
					return nil
				}})
				for disk := range facts {
					ready := diskCondition(n, disk, v1beta2.DiskConditionReady)
					if want := disk != pulled && disk != "d"; (ready.Status == v1beta2.ConditionTrue) != want {
						t.Errorf("disk %s: %+v", disk, ready)
					}
					if disk == pulled && name == "unmounted" && !strings.Contains(ready.Message,
						"disk "+pulled+" is not mounted at /"+pulled) {
						t.Errorf("disk %s says %q", disk, ready.Message)
					}
				}
				if err := d.Do.(loop.Call).Do(t.Context()); err != nil || strings.Join(prepared, " ") != "d" {
					t.Errorf("prepared %q, %v", prepared, err)
				}
			})
		}
	}
}

// TestADiskThatCannotBePreparedLeavesOthersAlone: the new disks after it get their configuration
// all the same, and its failure is told.
func TestADiskThatCannotBePreparedLeavesOthersAlone(t *testing.T) {
	n := readyNode()
	all := map[string]DiskFacts{}
	for _, disk := range []string{"a", "b", "c"} {
		n.Spec.Disks[disk], n.Status.DiskStatus[disk] = v1beta2.DiskSpec{Path: "/" + disk}, v1beta2.DiskStatus{}
		all[disk] = DiskFacts{FilesystemID: "of " + disk}
	}
	broken := errors.New("input/output error")
	var prepared []string
	d := decideAgent(now, n, agentSeen{Facts: all, Prepare: func(_ context.Context, path, disk string) error {
		if disk == "a" {
			return broken
		}
		prepared = append(prepared, disk+path)
		return nil
	}})
	if err := d.Do.(loop.Call).Do(t.Context()); !errors.Is(err, broken) || strings.Join(prepared, " ") != "b/b c/c" {
		t.Errorf("prepared %q, %v", prepared, err)
	}
}

// TestADiskThatIsNotMountedBeforeAnythingIsKnown: the status of a node is lost, as when its object
// is made anew, and a disk is not mounted. The one whose file is there stays, whatever they are
// called, and no file is made where the other one should be.
func TestADiskThatIsNotMountedBeforeAnythingIsKnown(t *testing.T) {
	for there, away := range map[string]string{"a": "b", "b": "a"} {
		n := readyNode()
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"a": {}, "b": {}}
		d := decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{there: facts("u", "1"), away: facts("", "1")}})
		if c := diskCondition(n, there, v1beta2.DiskConditionReady); c.Status != v1beta2.ConditionTrue {
			t.Errorf("disk %s, whose file is there: %+v", there, c)
		}
		if c := diskCondition(n, away, v1beta2.DiskConditionReady); c.Reason != v1beta2.DiskReasonDiskFilesystemChanged {
			t.Errorf("disk %s, which is not mounted: %+v", away, c)
		}
		if d.Do != nil {
			t.Errorf("does %v", d.Do)
		}
	}
}
