package filesystem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/barethread"
	"ankole.storage/host/mountinfo"
)

// The kernel's FIFREEZE and FITHAW of linux/fs.h.
const (
	fifreeze = 0xc0045877
	fithaw   = 0xc0045878
)

// Quiescer brings what users have written to mounted volumes onto them before a snapshot is taken.
//
// What is written to a file system is in the node's memory at first, and a snapshot of the volume
// does not have it. A sync brings it there; a freeze does that too and lets nobody write until the
// snapshot is taken, so that its file system is clean. A file system that stays frozen is of no use
// to anybody: it is thawed after FreezeLimit, whatever has become of the snapshot. What a killed
// process leaves frozen has a mark, a file with the volume's name in Marks, by which others thaw it
// (recover.go).
type Quiescer struct {
	// Marks is the directory of the marks.
	Marks string
	Log   *slog.Logger
	// SyncLimit bounds how long a snapshot waits for the sync or the freeze; so does half of the time
	// that its caller has. FreezeLimit bounds how long a file system stays frozen.
	SyncLimit, FreezeLimit time.Duration

	busy busyVolumes
}

// Limits of a Quiescer on a node.
const (
	DefaultSyncLimit   = time.Minute
	DefaultFreezeLimit = 10 * time.Second
)

// attempt is one attempt to have a quiet moment of a volume.
type attempt struct {
	ready   chan error    // everything is on the volume
	release chan struct{} // closed when the snapshot is taken, or nobody waits for it any more
	ended   chan struct{} // closed when users can write again
}

// Quiesce brings everything that was written to the volume so far onto it, and freezes its file
// system if freeze is set and there is one. The caller calls resume when the snapshot is taken. A
// volume that cannot be made quiet keeps nobody from a snapshot of what it holds: that is logged.
func (q *Quiescer) Quiesce(ctx context.Context, volume string, freeze bool) (resume func()) {
	log := q.Log.With("volume", volume)
	if err := checkName(volume); err != nil {
		log.Warn("a snapshot is taken without what the node still holds in memory", "err", err)
		return func() {}
	}
	limit := q.SyncLimit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2) // the other half is for the snapshot
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("writing it has not ended after %s", limit))
	defer cancel()
	if err := q.busy.wait(ctx, volume); err != nil {
		log.Warn("a snapshot is taken without what the node still holds in memory", "err", err)
		return func() {}
	}
	p := &attempt{ready: make(chan error, 1), release: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		q.hold(volume, freeze, p)
		q.busy.end(volume)
		close(p.ended)
	}()
	release := sync.OnceFunc(func() { close(p.release) })
	select {
	case err := <-p.ready:
		if err != nil {
			log.Warn("a snapshot is taken without what the node still holds in memory", "err", err)
		}
	case <-ctx.Done():
		log.Warn("a snapshot is taken without what the node still holds in memory", "err", context.Cause(ctx))
		release()
		return func() {} // it ends when the kernel lets it
	}
	return func() {
		release()
		select {
		case <-p.ended: // users can write again, and so can the next snapshot freeze it
		case <-time.After(q.FreezeLimit): // its volume answers nothing
			log.Warn("thawing a file system after a snapshot has not ended", "after", q.FreezeLimit)
		}
	}
}

// hold makes a volume quiet until it is released.
func (q *Quiescer) hold(volume string, freeze bool, p *attempt) {
	if len(devicesOf(volume)) == 0 { // the node holds nothing of it
		p.ready <- nil
		return
	}
	err := q.thawLeft(volume)
	if errors.Is(err, errFormer) { // the snapshot has nothing of it
		q.Log.Error("a file system that was frozen for a snapshot before cannot be thawed", "volume", volume, "err", err)
		err = nil
	}
	var m *mark
	if err == nil && freeze {
		if m, err = q.makeMark(volume); err != nil {
			q.Log.Warn("a file system is not frozen for a snapshot, only synced: it could not be marked as frozen",
				"volume", volume, "err", err)
			freeze, err = false, nil
		}
	}
	var quiet bool
	if err == nil {
		quiet, err = q.have(task{Do: workQuiesce, Volume: volume, Freeze: freeze, Limit: q.FreezeLimit}, m, p)
	}
	if m != nil {
		q.leave(volume, m, !mayBeFrozen(err))
	}
	switch {
	case !quiet:
		p.ready <- err
	case err != nil:
		q.Log.Error("a file system cannot be thawed after a snapshot; it is tried again", "volume", volume, "err", err)
	}
	if m != nil && errors.Is(err, errEndedEarly) {
		q.thawNow(volume) // the helper was killed, perhaps, and users wait
	}
}

// errThaw: the kernel has not thawed what was frozen.
var errThaw = errors.New("it stays frozen")

// mayBeFrozen tells of the end of a freeze whether it may have left something frozen. Without these
// errors everything that was frozen has been thawed, or nothing was.
func mayBeFrozen(err error) bool { return errors.Is(err, errThaw) || errors.Is(err, errEndedEarly) }

// have has a helper make a volume quiet until it is released. quiet: it was.
func (q *Quiescer) have(t task, m *mark, p *attempt) (quiet bool, err error) {
	h, err := startHelper(t, m)
	if err != nil {
		return false, err
	}
	defer h.out.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.release:
		case <-stop:
		}
		h.in.Close()
	}()
	for {
		r, err := h.next()
		switch {
		case err != nil:
			return quiet, err
		case r.Quiet:
			quiet = true
			p.ready <- r.err()
		case r.Late:
			q.Log.Warn("a file system is thawed before its snapshot was taken", "after", q.FreezeLimit)
		default:
			return quiet, r.err()
		}
	}
}

// pause is one quiet moment of a volume, in the process that waits for the volume.
type pause struct {
	ready   func(error)   // everything is on the volume
	release chan struct{} // closed when the snapshot is taken, or nobody waits for it any more
	limit   time.Duration // how long a freeze may last
	late    func()        // it has lasted that long
}

// quiesce makes a volume quiet until it is released.
func quiesce(volume string, freeze bool, p *pause) error {
	process := host()
	list, err := mounts(process, volume)
	if err != nil {
		return err
	}
	systems := bySystem(list)
	if len(systems) == 0 {
		if err := syncDevices(volume); err != nil {
			return err
		}
		p.ready(nil)
		return nil
	}
	return inNamespaceOf(process, func() error { return each(systems, freeze, false, nil, p) })
}

// bySystem puts the mounts of each file system together.
func bySystem(list []mountinfo.Mount) (systems [][]mountinfo.Mount) {
	sorted := slices.SortedStableFunc(slices.Values(list),
		func(a, b mountinfo.Mount) int { return strings.Compare(a.Device, b.Device) })
	for i, m := range sorted {
		if i == 0 || m.Device != sorted[i-1].Device {
			systems = append(systems, nil)
		}
		last := &systems[len(systems)-1]
		*last = append(*last, m)
	}
	return systems
}

// each makes one file system after the other quiet, then waits, and ends it in reverse. The
// descriptors stay open meanwhile: a file system that is unmounted while it is frozen could not be
// thawed any more. frozen: one of those before is. hidden says of which of them no mount can be
// reached, nil for none.
func each(systems [][]mountinfo.Mount, freeze, frozen bool, hidden error, p *pause) error {
	if len(systems) == 0 {
		p.ready(hidden)
		if frozen {
			p.wait()
		}
		return nil
	}
	reached, err := through(systems[0], func(m *mountinfo.Mount, fd int) error {
		if !freeze || unix.IoctlSetInt(fd, fifreeze, 0) != nil { // it is of a kind that cannot be frozen, or frozen
			if err := unix.Syncfs(fd); err != nil {
				return fmt.Errorf("sync %s: %w", m.Target, err)
			}
			return each(systems[1:], freeze, frozen, hidden, p)
		}
		err := each(systems[1:], freeze, true, hidden, p)
		if terr := unix.IoctlSetInt(fd, fithaw, 0); terr != nil && !errors.Is(terr, unix.EINVAL) {
			err = errors.Join(err, fmt.Errorf("thaw %s: %w: %w", m.Target, errThaw, terr))
		}
		return err
	})
	if !reached {
		return each(systems[1:], freeze, frozen, errors.Join(hidden, err), p)
	}
	return err
}

// wait waits for the snapshot, but not for long.
func (p *pause) wait() {
	limit := time.NewTimer(p.limit)
	defer limit.Stop()
	select {
	case <-p.release:
	case <-limit.C:
		p.late()
	}
}

// syncDevices is for a volume without a file system: what was written to its block device through
// the node's memory.
func syncDevices(volume string) error {
	for _, d := range slices.Backward(devicesOf(volume)) { // the upper one writes to the other
		err := barethread.Run(func() error {
			fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
				return nil // it is gone
			}
			if err != nil {
				return fmt.Errorf("open %s: %w", d.path, err)
			}
			defer unix.Close(fd)
			if err := unix.Fsync(fd); err != nil {
				return fmt.Errorf("sync %s: %w", d.path, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
