package filesystem

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ankole.storage/host/mountinfo"
)

// Remount makes the mounted file system of a volume writable. It blocks as long as the volume's I/O
// does; meanwhile there is none other for that volume (ErrBusy). One that is writable already stays
// as it is.
//
// A file system that cannot write for a while, because its volume had no replica left or no space,
// makes itself read-only and stays so after the volume has recovered. Mounting it writable again
// spares its users a restart. Two things can be read-only, a mount and the file system below it,
// which has many mounts. Those that are read-only because a Pod wants it so stay.
func (n *Node) Remount(volume string) error {
	_, err := n.remounts.do(task{Do: workRemount, Volume: volume})
	return err
}

// remountVolume is Remount, in the process that waits for the volume.
func remountVolume(volume string) error {
	process := host()
	list, change, err := look(process, volume)
	if err != nil || !change {
		return err
	}
	err = inNamespaceOf(process, func() error {
		_, err := through(list, func(m *mountinfo.Mount, fd int) error { return writable(volume, m, fd) })
		return err
	})
	if err != nil {
		return err
	}
	// The kernel may have agreed and changed nothing.
	if list, change, err = look(process, volume); err == nil && change {
		err = refused(volume, &list[0], errors.New("it stays read-only"))
	}
	return err
}

// look finds the mounts through which the volume's file system can be made writable, and tells
// whether it has to be.
func look(process, volume string) (list []mountinfo.Mount, change bool, err error) {
	if list, err = mounts(process, volume); err == nil {
		list, err = best(volume, list)
	}
	return list, err == nil && isReadOnly(&list[0]), err
}

func isReadOnly(m *mountinfo.Mount) bool { return m.ReadOnly() || m.Refuses() != "" }

// kept are the options, of a mount and of a file system, that mounting again would take away. A
// file system mounted with sync has answered a write when it is on stable storage, and the users
// of the volume may rely on that.
var kept = map[string]uintptr{"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"nosymfollow": unix.MS_NOSYMFOLLOW, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	"mand": unix.MS_MANDLOCK, "lazytime": unix.MS_LAZYTIME}

// writable mounts again, with the other options of the mount and of the file system. The file
// system keeps options of its own kind, which are not flags of the system call. fd is the mount's
// directory, by which it is found whatever is mounted on its path meanwhile.
func writable(volume string, m *mountinfo.Mount, fd int) error {
	flags := uintptr(unix.MS_REMOUNT)
	for _, o := range slices.Concat(m.Options, m.Super) {
		flags |= kept[o]
	}
	if err := unix.Mount("", fmt.Sprintf("/proc/thread-self/fd/%d", fd), "", flags, ""); err != nil {
		return refused(volume, m, err)
	}
	return nil
}

func refused(volume string, m *mountinfo.Mount, err error) error {
	return fmt.Errorf("volume %s: its file system at %s cannot be made writable, %w: %w; if it has found errors, stop its "+
		"users, check it and mount it again", volume, m.Target, ErrRefused, err)
}
