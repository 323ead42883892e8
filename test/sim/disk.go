package sim

import (
	"errors"
	"io"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/test/sim/register"
)

// Disk is a node's disk. It outlives the processes that use it; Crash is a loss of power.
type Disk struct {
	w  *World
	FS *memdisk.FS
	// lies: syncs of data do nothing, see bugLyingDisks.
	lies bool
	// slow is added to every operation.
	slow time.Duration
	// closing is how long a blocking call waits for a removed file to be closed, whose space comes
	// back then.
	closing time.Duration
}

func newFS() *memdisk.FS { return memdisk.New() }

// Slow adds by to every operation that begins from now on.
func (d *Disk) Slow(by time.Duration) { d.slow = by }

// SlowClose makes blocking calls wait so long for each file that they close and that has no name
// any more: giving the space of a large one back takes a file system long.
func (d *Disk) SlowClose(by time.Duration) { d.closing = by }

// Crash loses whatever was not synced, at random.
func (d *Disk) Crash() { d.FS = d.FS.Crash(d.w.Rand.Uint64()) }

// diskOp is an operation that the kernel has accepted.
type diskOp struct {
	loop.Op
	// sync is what a sync was submitted as: what is written from then on is not covered.
	sync *memdisk.Syncing
	over bool
}

func (d *Disk) submit(p *Process, o loop.Op) {
	fs, x := d.FS, &diskOp{Op: o}
	p.disk = append(p.disk, x)
	lo, hi := 10*time.Microsecond, 200*time.Microsecond
	if o.Kind == loop.FileSync {
		lo, hi = 50*time.Microsecond, time.Millisecond
		x.sync, _ = fs.BeginSync(int32(o.Handle))
	}
	d.w.After(d.w.Between(lo, hi)+d.slow, func() {
		if x.over {
			return
		}
		x.over = true
		if d.lies && x.sync != nil {
			x.sync.Abandon()
			p.done(loop.Done{Kind: x.Kind, Handle: x.Handle, Tag: x.Tag})
			return
		}
		done := loop.Done{Kind: x.Kind, Handle: x.Handle, Tag: x.Tag}
		n, err := perform(fs, p.arena, x)
		done.N, done.Errno = n, errno(err)
		p.done(done)
		p.forget()
	})
}

// forget drops operations that are over from the list.
func (p *Process) forget() {
	for len(p.disk) > 0 && p.disk[0].over {
		p.disk = p.disk[1:]
	}
}

// settle ends what is in flight when the process dies: the kernel may have carried it out or not.
// The process's files and locks are given back afterwards, so nothing of it comes later.
func (p *Process) settle() {
	for _, x := range p.disk {
		switch happens := p.w.Rand.IntN(2) == 0; {
		case x.over:
		case happens:
			_, _ = perform(p.node.Disk.FS, p.arena, x) // nobody is left to be told
		case x.sync != nil:
			x.sync.Abandon()
		}
		x.over = true
	}
	p.disk = nil
}

func perform(fs *memdisk.FS, arena *loop.Arena, o *diskOp) (n int, err error) {
	if o.sync != nil {
		return 0, o.sync.Complete()
	}
	f, ok := fs.File(int32(o.Handle))
	if !ok || o.Kind == loop.FileSync {
		return 0, errors.New("bad handle")
	}
	if o.Kind == loop.FilePunch {
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

// Image is a backing image below a volume: a raw file that each node has. To the checker it is what
// the sectors hold that nobody has written. The zero value is none.
type Image struct {
	// Size in bytes, a multiple of a sector's and not of a block's.
	Size int64
	// Seed decides which parts of it are holes.
	Seed uint64
}

// imageFile is where a node has it.
const imageFile = "/images/base"

// imageWrite is the number that its sectors carry, and no write does.
const imageWrite = 1 << 62

// imagePart is how much of it is a hole, or is not: less than a piece that is checked at once.
const imagePart = 20 << 10

// Value is what a sector holds: imageWrite, or 0 for zeroes.
func (i Image) Value(sector int64) uint64 {
	at := sector * block.SectorSize
	if at >= i.Size {
		return 0
	}
	if (i.Seed>>(uint64(at/imagePart)%64))&1 == 0 {
		return 0
	}
	return imageWrite
}

// path is what replicas are given, "" for no image.
func (i Image) path() string {
	if i.Size == 0 {
		return ""
	}
	return imageFile
}

// store puts the image on a node's disk, for good.
func (i Image) store(fs *memdisk.FS) {
	if i.Size == 0 {
		return
	}
	must(fs.Mkdir("/images"))
	f, err := fs.Create(imageFile, 0)
	must(err)
	must(f.Truncate(i.Size))
	p := make([]byte, block.SectorSize)
	for s := range i.Size / block.SectorSize {
		if n := i.Value(s); n != 0 {
			register.Stamp(p, n, s)
			_, err := f.WriteAt(p, s*block.SectorSize)
			must(err)
		}
	}
	must(f.Sync())
	must(f.Close())
	must(fs.SyncDir("/images"))
	must(fs.SyncDir("/"))
}

func must(err error) {
	if err != nil {
		panic("sim: " + err.Error())
	}
}
