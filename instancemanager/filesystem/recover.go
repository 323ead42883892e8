package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/hostpath"
	"ankole.storage/host/mountinfo"
)

// Recover thaws what killed processes have left frozen, now and at every tick from then on: of two
// instance managers beside each other one may be killed at any time. It returns when ctx ends.
// Thawing writes, and waits until the volume's engine is there, so each volume is waited for by
// itself.
func (q *Quiescer) Recover(ctx context.Context, tick <-chan time.Time) {
	for {
		if err := q.recover(); err != nil {
			q.Log.Warn("cannot tell whether file systems are still frozen for a snapshot", "err", err)
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// recover thaws what has a mark of nobody who is alive.
func (q *Quiescer) recover() error {
	entries, err := os.ReadDir(hostpath.Resolve(q.Marks))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		volume := e.Name()
		if _, ok := q.busy.begin(volume); !ok {
			continue // this process is at it
		}
		go func() {
			defer q.busy.end(volume)
			q.thawNow(volume)
		}()
	}
	return nil
}

// thawNow is thawLeft where nobody waits for it.
func (q *Quiescer) thawNow(volume string) {
	if err := q.thawLeft(volume); err != nil {
		q.Log.Error("a file system that was frozen for a snapshot cannot be thawed; thaw it with fsfreeze -u",
			"volume", volume, "err", err)
	}
}

// errFormer: a file system on a device that the volume had before cannot be thawed.
var errFormer = errors.New("on a block device that the volume had before")

// thawLeft thaws what somebody has left frozen who was killed, or could not thaw it. The mark goes
// when the file systems were seen not to be frozen. One that is not mounted may be: its next mount
// is frozen too. So may one whose device is not there, until the machine is started anew. Whoever
// writes to one on a former device waits, and cannot be killed, until it is thawed, and gets errors
// then. errFormer: all others are thawed.
func (q *Quiescer) thawLeft(volume string) error {
	m, err := q.lockMark(volume, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errAtIt) {
		return nil // it has not been left
	}
	if err != nil {
		return err
	}
	thawed := m.void()
	if !thawed {
		thawed, err = thawMounted(volume, m)
	}
	q.leave(volume, m, thawed && err == nil)
	return err
}

// thawMounted has a helper thaw the volume's mounted file systems. seen: there are some on the
// device that it has.
func thawMounted(volume string, m *mark) (seen bool, err error) {
	if own, former, err := allMounts(host(), volume); err != nil || len(own)+len(former) == 0 {
		return false, err
	}
	r, err := done(task{Do: workThaw, Volume: volume}, m)
	return r.Seen, err
}

// thaw is thawMounted, in the process that waits for the volume. Former devices come first: they
// have ended, and keep nobody waiting.
func thaw(volume string) (seen bool, err error) {
	process := host()
	own, former, err := allMounts(process, volume)
	if err != nil || len(own)+len(former) == 0 {
		return false, err
	}
	return len(own) > 0, inNamespaceOf(process, func() error {
		ferr := thawSystems(former, true)
		if err := thawSystems(own, false); err != nil {
			return errors.Join(err, ferr)
		}
		if ferr != nil {
			return fmt.Errorf("%w: %w", errFormer, ferr)
		}
		return nil
	})
}

// thawSystems thaws the file systems of a list of mounts. ended: so have their devices.
func thawSystems(list []mountinfo.Mount, ended bool) error {
	var errs error
	for _, system := range bySystem(list) {
		_, err := through(system, func(m *mountinfo.Mount, fd int) error {
			ioctl := func(request uint) error { return unix.IoctlSetInt(fd, request, 0) }
			if err := thawBy(ioctl, ended); err != nil {
				return fmt.Errorf("thaw %s: %w", m.Target, err)
			}
			return nil
		})
		errs = errors.Join(errs, err)
	}
	return errs
}

// errFreezing: a freeze that a killed process has begun is under way.
var errFreezing = errors.New("a freeze of it is under way, by a thread of a process that was killed")

// thawBy thaws a file system that may be frozen, by FITHAW and FIFREEZE on it.
//
// One that a thaw finds not frozen may be about to be: a thread of a killed process that waits for
// the volume goes on with its freeze when that answers, and a thaw says before that moment what it
// says of a file system that is not frozen. A freeze tells the two apart, and later kernels wait in
// it for the one that is under way. On a device that has ended a freeze fails, after it has seen
// that nobody else is at it.
func thawBy(ioctl func(request uint) error, ended bool) error {
	for range 2 {
		if err := ioctl(fithaw); !errors.Is(err, unix.EINVAL) {
			return err
		}
		err := ioctl(fifreeze)
		switch {
		case err == nil:
			if err = ioctl(fithaw); errors.Is(err, unix.EINVAL) { // somebody else has
				err = nil
			}
			return err
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil // nobody can have frozen it
		case errors.Is(err, unix.EBUSY):
		case ended:
			return nil
		default:
			return err
		}
	}
	return errFreezing
}
