package node

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
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

// TestADiskThatIsPulledLeavesOthersAlone: whatever is left where a disk was, and whatever the disks
// are called, the others stay ready, and a new one gets its configuration. One of the others is on
// the file system that the directory of the disk is on when nothing is mounted there: of two such
// disks only one is what it says, and not the one whose name comes first.
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
				d := decideAgent(now, n, agentSeen{Facts: facts})
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
				if o := d.Do.(loop.Call).Order.(prepareOrder); !slices.Equal(o.Disks, []string{"d"}) {
					t.Errorf("prepares %q", o.Disks)
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
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := NewAgent(AgentConfig{Host: Host{Resolve: func(p string) string {
		switch rel, err := filepath.Rel(naming.InHostMount("/"), p); {
		case err != nil || !filepath.IsLocal(rel):
			return p // the kernel's tables
		case rel == "a":
			return filepath.Join(root, "file", rel)
		default:
			return filepath.Join(root, rel)
		}
	}}})
	d := decideAgent(now, n, agentSeen{Facts: all})
	if err := a.carry(t.Context(), n, agentSeen{}, d.Do.(loop.Call).Order); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("its failure is %v", err)
	}
	for _, disk := range []string{"b", "c"} {
		if f := a.cfg.Host.Look("/"+disk, false); !f.HasConfig || f.DiskName != disk {
			t.Errorf("disk %s: %+v", disk, f)
		}
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

// TestACopyLeavesTheOriginalInService (F20): a copy of a disk beside it, in a file system of its
// own with the identity of the original's, or in a directory of the original's file system. The
// original stays, whatever the copy is called, also after the node was away.
func TestACopyLeavesTheOriginalInService(t *testing.T) {
	for name, c := range map[string]struct {
		device uint64
		reason string // of the copy
	}{
		"restored image":   {2, ""},
		"copied directory": {1, v1beta2.DiskReasonDiskFilesystemChanged},
	} {
		for original, twin := range map[string]string{"a": "b", "b": "a"} {
			n := readyNode()
			n.Status.DiskStatus = map[string]v1beta2.DiskStatus{original: {DiskUUID: "u"}, twin: {}}
			of := func(device uint64) DiskFacts {
				f := facts("u", "same")
				f.Device = device
				return f
			}
			look := map[string]DiskFacts{original: of(1), twin: of(c.device)}
			for _, ready := range []v1beta2.ConditionStatus{"True", "True", "False", "True"} {
				n.Status.Conditions[0].Status = ready
				if ready == "False" {
					for disk, d := range n.Status.DiskStatus {
						d.Conditions = nil
						n.Status.DiskStatus[disk] = d
					}
				}
				decideAgent(now, n, agentSeen{Facts: look})
			}
			if r := diskCondition(n, original, v1beta2.DiskConditionReady); r.Status != v1beta2.ConditionTrue {
				t.Errorf("%s: the original %s: %+v", name, original, r)
			}
			r := diskCondition(n, twin, v1beta2.DiskConditionReady)
			if (r.Status == v1beta2.ConditionTrue) != (c.reason == "") || r.Reason != c.reason {
				t.Errorf("%s: the copy %s: %+v", name, twin, r)
			}
		}
	}
}

// TestACopyOfAFileSystemHasItsIdentity: what the kernel says of an ext4 and of its copy, both
// mounted.
func TestACopyOfAFileSystemHasItsIdentity(t *testing.T) {
	if os.Geteuid() != 0 {
		lack.Skip(t, "disks are mounted by root only")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	image := filepath.Join(dir, "image")
	run("truncate", "-s", "16M", image)
	run("mkfs.ext4", "-q", image)
	var looks []DiskFacts
	for i, copied := range []string{"original", "copy"} {
		at, file := filepath.Join(dir, "at-"+copied), filepath.Join(dir, copied)
		run("cp", image, file)
		run("mkdir", at)
		run("mount", "-o", "loop", file, at)
		t.Cleanup(func() { run("umount", at) })
		host := Host{Resolve: func(path string) string {
			if rel, err := filepath.Rel(naming.InHostMount("/"), path); err == nil && filepath.IsLocal(rel) {
				return filepath.Join(dir, rel)
			}
			return path // the kernel's tables
		}}
		looks = append(looks, host.Look("/at-"+copied, false))
		if looks[i].Problem != "" {
			t.Fatal(looks[i].Problem)
		}
	}
	if looks[0].FilesystemID != looks[1].FilesystemID || looks[0].Device == looks[1].Device {
		t.Errorf("the original is %+v, the copy %+v; want one ID and two devices", looks[0], looks[1])
	}
}
