package sim

import (
	"errors"
	"io"
	"time"

	"ankole.storage/dataplane/loop"
	"ankole.storage/disk"
	"ankole.storage/disk/memdisk"
)

// Disk is a node's disk. It outlives the processes that use it; Crash is a loss of power.
type Disk struct {
	w  *World
	FS *memdisk.FS
}

// NewDisk returns an empty disk.
func (w *World) NewDisk() *Disk { return &Disk{w: w, FS: memdisk.New()} }

// Crash loses whatever was not synced, at random.
func (d *Disk) Crash() { d.FS = d.FS.Crash(d.w.Rand.Uint64()) }

func (d *Disk) submit(p *Process, o loop.Op) {
	fs := d.FS
	lo, hi := 10*time.Microsecond, 200*time.Microsecond
	if o.Kind == loop.FileSync {
		lo, hi = 50*time.Microsecond, time.Millisecond
	}
	d.w.After(d.w.Between(lo, hi), func() {
		// An operation that the kernel has accepted is carried out even if its process dies meanwhile, unless the
		// node lost power: then its file system is another one by now.
		if d.FS != fs || (!p.alive && d.w.Rand.IntN(2) == 0) {
			return
		}
		done := loop.Done{Kind: o.Kind, Handle: o.Handle, Tag: o.Tag}
		n, err := perform(fs, p.arena, &o)
		done.N, done.Errno = n, errno(err)
		p.done(done)
	})
}

func perform(fs *memdisk.FS, arena *loop.Arena, o *loop.Op) (n int, err error) {
	f, ok := fs.File(int32(o.Handle))
	if !ok {
		return 0, errors.New("bad handle")
	}
	switch o.Kind {
	case loop.FileSync:
		return 0, f.Sync()
	case loop.FilePunch:
		return 0, f.Punch(o.Off, o.Len)
	}
	off := o.Off
	for _, s := range o.Vec[:o.Segs] {
		p := arena.Seg(s)
		var k int
		if o.Kind == loop.FileRead {
			k, err = f.ReadAt(p, off)
		} else {
			k, err = f.WriteAt(p, off)
		}
		n += k
		off += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func errno(err error) loop.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, disk.ErrNoSpace):
		return loop.ENOSPC
	}
	return loop.EIO
}
