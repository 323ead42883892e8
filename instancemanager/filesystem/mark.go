package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ankole.storage/host/hostpath"
)

// mark is the file that says that a volume's file systems may be frozen. Who has frozen them, or is
// about to thaw them, has it locked; the kernel ends the lock with the process. It counts from the
// moment at which it holds the identity of the machine's boot, and until the next boot: before that
// nothing is frozen, and nothing stays frozen over a boot.
type mark struct{ f *os.File }

// Errors of marks.
var (
	// errAtIt: another process has the volume's file systems frozen, or is thawing them.
	errAtIt = errors.New("another instance manager has frozen it for a snapshot, or is thawing it")
	// errMarked: so it is, or one that was killed has left frozen what is not mounted now.
	errMarked = errors.New("it is marked already, as frozen by another instance manager or one before")
)

// bootID tells one boot of the machine from others.
const bootID = "/proc/sys/kernel/random/boot_id"

// markTries bounds the attempts to lock a mark that others remove meanwhile.
const markTries = 10

func (q *Quiescer) markOf(volume string) string {
	return filepath.Join(hostpath.Resolve(q.Marks), volume)
}

// makeMark makes the mark of a volume and locks it. errAtIt; errMarked: a mark that is there says
// what this process does not know, so whoever freezes next neither uses nor removes it.
func (q *Quiescer) makeMark(volume string) (*mark, error) {
	if err := os.MkdirAll(hostpath.Resolve(q.Marks), 0o700); err != nil {
		return nil, err
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, err
	}
	m, err := q.lockMark(volume, os.O_CREATE|os.O_EXCL)
	if errors.Is(err, os.ErrExist) {
		err = errMarked
	}
	if err != nil {
		return nil, err
	}
	if _, err = m.f.WriteAt(boot, 0); err != nil {
		q.leave(volume, m, true) // what is left on a full disk would say nothing
		return nil, err
	}
	return m, nil
}

// lockMark opens the mark of a volume and locks it. errAtIt; os.ErrNotExist; os.ErrExist.
func (q *Quiescer) lockMark(volume string, flags int) (*mark, error) {
	path := q.markOf(volume)
	for range markTries {
		f, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
		if err != nil {
			return nil, err
		}
		here, herr := f.Stat()
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			now, serr := os.Stat(path)
			if herr == nil && serr == nil && os.SameFile(here, now) {
				return &mark{f}, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		} else if err != nil {
			break
		} // else it was removed by the one who had it locked
	}
	return nil, errAtIt
}

// leave ends the lock, which a helper that is about to end has too; the mark goes if nothing is
// frozen any more.
func (q *Quiescer) leave(volume string, m *mark, thawed bool) {
	if thawed {
		if err := os.Remove(q.markOf(volume)); err != nil {
			q.Log.Warn("the mark of a file system that was frozen stays", "volume", volume, "err", err)
		}
	}
	_ = unix.Flock(int(m.f.Fd()), unix.LOCK_UN) // nothing can fail here
	m.f.Close()
}

// void tells that a mark of nobody who is alive says nothing: the machine was started anew since it
// was made, or who made it was killed before it counted.
func (m *mark) void() bool {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return false
	}
	made, err := io.ReadAll(io.NewSectionReader(m.f, 0, int64(len(boot))))
	return err == nil && !bytes.Equal(made, boot)
}
