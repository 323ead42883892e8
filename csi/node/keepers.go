package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/csi/helper"
	"ankole.storage/host/mountinfo"
	"ankole.storage/rest/resource"
)

// A container that mounts / or the kubelet's directory of its node, and does not follow what is
// unmounted there (mountPropagation None, the default), has the file systems of all volumes that
// were mounted when it was started, for as long as it runs. Nothing of that is seen in the mount
// namespace of this process.

// keeper is a process in whose mount namespace the file system of a device is mounted.
type keeper struct {
	resource.DeviceKeeper
	mount mountinfo.Mount
	// host: it is the mount namespace of the node itself.
	host bool
}

func (k keeper) String() string {
	if k.host {
		return "on the node itself at " + k.Path
	}
	pod := ""
	if k.PodUID != "" {
		pod = " of the Pod with UID " + k.PodUID
	}
	return fmt.Sprintf("by process %s (%d)%s at %s", k.Program, k.PID, pod, k.Path)
}

// podUID finds the UID of a Pod in the names of its control groups.
var podUID = regexp.MustCompile(`pod([0-9a-f]{8}([-_])[0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)

// keepers are those of a device in other mount namespaces than this one, the oldest of each.
// There are none where the node's processes cannot be seen, and processes come and go meanwhile.
func (n *Server) keepers(number uint64) (found []keeper) {
	space := func(proc, pid string) string {
		name, _ := os.Readlink(filepath.Join(proc, pid, "ns/mnt"))
		return name
	}
	seen := map[string]bool{"": true, space("/proc", "self"): true}
	host := space(n.proc, "1")
	entries, _ := os.ReadDir(n.proc)
	var processes []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			processes = append(processes, pid)
		}
	}
	slices.Sort(processes) // the first of a container is the one that stays
	for _, pid := range processes {
		dir := filepath.Join(n.proc, strconv.Itoa(pid))
		at := space(n.proc, strconv.Itoa(pid))
		if seen[at] {
			continue
		}
		f, err := os.Open(filepath.Join(dir, "mountinfo"))
		if err != nil {
			continue // it has ended
		}
		seen[at] = true
		k := keeper{host: at == host}
		k.PID = pid
		err = mountinfo.Each(f, func(m *mountinfo.Mount) {
			if m.Device == deviceText(number) {
				k.mount, k.Path = *m, m.Target
			}
		})
		f.Close()
		if err != nil || k.Path == "" {
			continue
		}
		program, _ := os.ReadFile(filepath.Join(dir, "comm")) // what cannot be read is not named
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		k.Program = strings.TrimSpace(string(program))
		if m := podUID.FindSubmatch(groups); m != nil {
			k.PodUID = strings.ReplaceAll(string(m[1]), "_", "-")
		}
		found = append(found, k)
	}
	return found
}

// heldError is that others on the node have the file system of a volume mounted.
type heldError struct {
	device string
	by     []keeper
	// why the volume cannot go all the same.
	why string
}

func (e *heldError) Error() string {
	var all []string
	for _, k := range e.by {
		all = append(all, k.String())
	}
	return fmt.Sprintf("device %s is in use: its file system is still mounted %s, and %s; end what has it, or start it anew "+
		"with mountPropagation HostToContainer", e.device, strings.Join(all, ", "), e.why)
}

// letGo has a volume leave the node although containers that were started before still see its file
// system: it is made read-only for all of them, by which all of it is written, and which the kernel
// refuses while anybody has a file of it open for writing. What is mounted on the node itself, or
// where this process sees it, stays a reason to wait.
func (n *Server) letGo(d device) (gone bool, err error) {
	used, err := d.inUse()
	if err != nil || !used {
		return false, err
	}
	others, err := d.others()
	if err != nil || len(others) > 0 {
		return false, err
	}
	above, err := n.holders(d.number)
	if err != nil || len(above) > 0 {
		return false, err
	}
	by := n.keepers(d.number)
	switch {
	case len(by) == 0:
		return false, nil
	case slices.ContainsFunc(by, func(k keeper) bool { return k.host }):
		return false, &heldError{d.shown(), by, "that may be wanted"}
	}
	if by[0].mount.Refuses() == "" {
		if err := n.endWrites(d, by[0].mount.Type); err != nil {
			return false, &heldError{d.shown(), by, "it cannot be made read-only, as when files are open for writing: " +
				strings.Join(strings.Fields(err.Error()), " ")}
		}
	}
	n.log.Warn("a volume leaves the node while others have its file system mounted, which is written and read-only now",
		"device", d.shown(), "mounted", by[0].String())
	return true, nil
}

// endWrites makes the file system of a device read-only, wherever it is mounted.
func (n *Server) endWrites(d device, kind string) (err error) {
	dir, err := os.MkdirTemp("", "ankole-leaves-")
	if err != nil {
		return err
	}
	if err = n.mounts.Mount(d.path, dir, kind, nil); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	err = n.mounts.Mount(d.path, dir, kind, []string{"remount", "ro"})
	return errors.Join(err, helper.Unmount(dir, unix.UMOUNT_NOFOLLOW), os.Remove(dir))
}

// tellPatience bounds how long a call waits for the manager to hear who has a volume.
const tellPatience = 5 * time.Second

// tell has the manager know who keeps a volume on the node, and when nobody does any more, each
// once. It is tried again with the next call, of which the kubelet makes one after the other. There
// is one call about a volume at a time.
func (n *Server) tell(volume string, problem error) {
	held := &heldError{}
	errors.As(problem, &held)
	text := ""
	for _, k := range held.by {
		text += k.String() + "\n"
	}
	if before, _ := n.told.Load(volume); n.place.manager == nil || before == text || before == nil && text == "" {
		return
	}
	in := resource.DeviceKeepersInput{NodeID: n.id, Keepers: []resource.DeviceKeeper{}}
	for _, k := range held.by {
		in.Keepers = append(in.Keepers, k.DeviceKeeper)
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
	defer cancel()
	if err := n.place.manager.TellDeviceKeepers(ctx, volume, in); err != nil {
		n.log.Warn("cannot tell the manager who keeps a volume on this node", "volume", volume, "err", err)
		return
	}
	if n.told.Store(volume, text); text == "" {
		n.told.Delete(volume)
	}
}
