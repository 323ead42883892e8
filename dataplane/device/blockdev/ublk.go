package blockdev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend/ublk"
	"ankole.storage/dataplane/loop"
	"ankole.storage/host/barethread"
)

// Ublk is a block device of the driver ublk_drv. The order is:
//
//	OpenUblk   lock the volume, remove what a dead predecessor left, write the record, make the
//	           device; or AdoptUblk, which takes that of a dead server
//	           (now the frontend is started on Handle and Queues)
//	Expose     the device begins, or goes on; node
//	Resize     after the frontend has a new size
//	Withdraw   node and device, while the frontend still serves
//	           (now the frontend is stopped)
//	Close      whatever Withdraw could not do, record and lock
//
// The kernel keeps the device when its server dies, whoever has a descriptor. What tells that one
// that nobody serves still waits for its next server is the lock on the record, which is held by
// the server and by whoever keeps a duplicate of that descriptor (Duplicate).
type Ublk struct {
	*Device
	info   ublkInfo
	char   int // the character device; belongs to the frontend from the moment it starts
	record int // the record's descriptor, which has the lock
	// queues are the descriptions of requests; before Expose the memory is empty.
	queues [][]byte
	// adopted: the device goes on instead of beginning.
	adopted bool
	resizes bool
	stopped bool
	asked   chan struct{}
	once    sync.Once
}

const (
	// ublkMaxQueues bounds the queues: more than the processors that drive one volume at once gain
	// nothing, since one thread serves all.
	ublkMaxQueues = 4
	// ublkRetry is how often the kernel is asked whether it has noticed the end of a server, and
	// ublkPatience how long: some kernels notice one that had all places in hand by a timeout only.
	ublkRetry    = 20 * time.Millisecond
	ublkPatience = time.Minute
	// ublkTimeout is that timeout, in milliseconds, of a request that a living server has it restarts.
	ublkTimeout = "1000"
	// ublkQueueStride is the distance of queues in the device's memory: 4096 descriptions.
	ublkQueueStride = 4096 * ublk.DescriptorSize
)

// UblkAvailable says whether this process can make ublk devices here that a successor can take
// over; the error says what is missing. resizes: their size can change while they are used.
func UblkAvailable() (resizes bool, err error) {
	if os.Geteuid() != 0 {
		return false, errors.New("ublk devices need root: the driver is refused to others")
	}
	if err := mayMount(); err != nil {
		return false, err
	}
	if _, err := os.Stat(ublkClass); err != nil {
		return false, errors.New("ublk devices need the kernel module ublk_drv, which is not loaded")
	}
	have, err := ublkFeatures()
	if err != nil {
		return false, fmt.Errorf("ublk devices need a driver that tells its features (Linux 6.5): %w", err)
	}
	if have&ublkNeeded != ublkNeeded {
		return false, fmt.Errorf("ublk devices that outlive their server need features %#x of the driver, which has %#x",
			ublkNeeded, have)
	}
	return have&ublkSizes != 0, nil
}

// Possible says whether this process can make block devices of any kind here.
func Possible() bool {
	if Available() == nil {
		return true
	}
	_, err := UblkAvailable()
	return err == nil
}

// OpenUblk makes the volume's device, of size bytes. Start the frontend on Handle and Queues next.
func OpenUblk(ctx context.Context, cfg Config, size int64) (*Ublk, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	have, err := ublkFeatures()
	if err != nil {
		return nil, fmt.Errorf("block device %s: %w", cfg.Volume, err)
	}
	d, err := lockAndRecover(ctx, cfg, lockPatience)
	if err != nil {
		return nil, err
	}
	d.id = rand.Text()
	u := &Ublk{Device: d, info: ublkInfo{number: ublkNone}, char: -1, record: -1, resizes: have&ublkSizes != 0,
		asked: make(chan struct{})}
	if err := u.make(ctx, size, have); err != nil {
		return nil, fmt.Errorf("block device %s: %w", cfg.Volume, errors.Join(err, u.Close(ctx, false)))
	}
	return u, nil
}

func (u *Ublk) make(ctx context.Context, size int64, have uint64) (err error) {
	if err := os.MkdirAll(u.cfg.DeviceDir, 0o755); err != nil {
		return err
	}
	queues := min(ublkMaxQueues, runtime.NumCPU())
	u.info = ublkInfo{queues: uint16(queues), depth: uint16(ublk.MaxInFlight / queues), maxTransfer: block.MaxTransfer,
		number: ublkNone, flags: ublkNeeded | have&ublkNoPartScan, mark: newMark()}
	if u.record, err = u.writeRecord(record{Mark: u.info.mark}); err != nil {
		return err
	}
	p := u.info.encode()
	if err := ublkCommand(ublkAdd, ublkNone, 0, p); err != nil {
		u.info.number = ublkNone
		return fmt.Errorf("add a ublk device: %w", err)
	}
	if u.info = decodeUblkInfo(p); u.info.flags&ublkNeeded != ublkNeeded {
		return fmt.Errorf("the kernel made a ublk device of features %#x", u.info.flags)
	}
	if err := ublkCommand(ublkSetParams, u.info.number, 0, ublkParams(size, u.cfg.BlockSize)); err != nil {
		return fmt.Errorf("parameters of ublk device %d: %w", u.info.number, err)
	}
	return u.openChar(ctx)
}

// openChar opens the character device, which one process at a time can, and sets memory aside for
// the queues. A server that is about to end is waited for.
func (u *Ublk) openChar(ctx context.Context) (err error) {
	queues, depth := int(u.info.queues), int(u.info.depth)
	if !ublk.Fits(queues, depth) {
		return fmt.Errorf("ublk device %d has %d queues of %d requests, which is out of range", u.info.number, queues, depth)
	}
	name := ublkName("c", u.info.number)
	late := time.After(ublkPatience)
	for {
		u.char, err = openNumbered("/dev/"+name, ublkClass+"/"+name+"/dev", unix.S_IFCHR)
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		select {
		case <-time.After(ublkRetry):
			continue
		case <-late:
		case <-ctx.Done():
		}
		return fmt.Errorf("ublk device %d: %w", u.info.number, ErrInUse)
	}
	if err != nil {
		return err
	}
	all, err := unix.Mmap(-1, 0, queues*u.queueBytes(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := range queues {
		u.queues = append(u.queues, all[i*u.queueBytes():(i+1)*u.queueBytes()])
	}
	return nil
}

// queueBytes is the memory of one queue: whole pages.
func (u *Ublk) queueBytes() int {
	page := os.Getpagesize()
	return (int(u.info.depth)*ublk.DescriptorSize + page - 1) / page * page
}

// mapQueues puts the kernel's descriptions in the place of the empty memory.
func (u *Ublk) mapQueues() error {
	for i, q := range u.queues {
		if _, err := unix.MmapPtr(u.char, int64(i)*ublkQueueStride, unsafe.Pointer(&q[0]), uintptr(len(q)), unix.PROT_READ,
			unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE); err != nil {
			return fmt.Errorf("memory of queue %d of ublk device %d: %w", i, u.info.number, err)
		}
	}
	return nil
}

// emptyQueues puts empty memory there again: it keeps the device open, and a frontend that has not
// stopped in time may look at it still. The memory stays.
func (u *Ublk) emptyQueues() {
	for _, q := range u.queues {
		_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&q[0]), uintptr(len(q)), unix.PROT_READ,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
	}
}

// Handle is the character device, for the frontend.
func (u *Ublk) Handle() loop.Handle { return loop.Handle(u.char) }

// Queues is the memory with descriptions of requests, for the frontend; empty before Expose.
func (u *Ublk) Queues() [][]byte { return u.queues }

// Depth is the number of requests of each queue, for the frontend.
func (u *Ublk) Depth() int { return int(u.info.depth) }

// Asked has to be called when the frontend has asked for requests: ublk.Config.Asked.
func (u *Ublk) Asked() { u.once.Do(func() { close(u.asked) }) }

// Expose starts the device, or has it go on, and creates the node; the frontend must be serving.
func (u *Ublk) Expose(ctx context.Context) error {
	// Not before the frontend has asked for requests: a server that is killed before that leaves a
	// device without memory of its own, and the next one can go on from there.
	select {
	case <-u.asked:
	case <-time.After(u.cfg.Timeout):
		return fmt.Errorf("block device %s: requests were not asked for within %v: %w", u.cfg.Volume, u.cfg.Timeout,
			context.DeadlineExceeded)
	case <-ctx.Done():
		return fmt.Errorf("block device %s: %w", u.cfg.Volume, ctx.Err())
	}
	if err := u.mapQueues(); err != nil {
		return fmt.Errorf("block device %s: %w", u.cfg.Volume, err)
	}
	what, command := "start the ublk device", uint64(ublkStart)
	if u.adopted {
		what, command = "take over the ublk device", ublkEndRecovery
	}
	number := u.info.number
	if err := u.bounded(ctx, what, func() error {
		return ublkDo(command, number, uint64(unix.Getpid()), nil)
	}); err != nil {
		return err
	}
	// Kernels before 6.16 may notice the end of a server by this alone.
	_ = os.WriteFile(ublkDisk(number)+"/queue/io_timeout", []byte(ublkTimeout), 0)
	var err error
	if u.rdev, err = numberIn(ublkDisk(number) + "/dev"); err != nil {
		return fmt.Errorf("block device %s: %w", u.cfg.Volume, err)
	}
	if u.adopted {
		return u.bounded(ctx, "create the device node", u.restoreNode)
	}
	return u.bounded(ctx, "create the device node", u.makeNode)
}

// Resize gives the device the frontend's size, in bytes.
func (u *Ublk) Resize(ctx context.Context, size int64) error {
	if !u.resizes {
		return fmt.Errorf("block device %s: this kernel cannot change the size of a ublk device in use (Linux 6.16 can): "+
			"detach the volume and attach it again", u.cfg.Volume)
	}
	number := u.info.number
	return u.bounded(ctx, "resize", func() error {
		return ublkDo(ublkUpdateSize, number, uint64(size)/block.SectorSize, nil)
	})
}

// Fit is Resize if the device has not the size in bytes that the frontend has.
func (u *Ublk) Fit(ctx context.Context, size int64) error {
	if n, err := diskSize(ublkDisk(u.info.number)); err == nil && n == size {
		return nil
	}
	return u.Resize(ctx, size)
}

// Withdraw removes the node and ends the device, while the frontend still serves: what is cached is
// written back first, and what is under way is answered.
func (u *Ublk) Withdraw(ctx context.Context) error {
	var err error
	if number := u.info.number; u.rdev != 0 && !u.stopped {
		err = u.bounded(ctx, "write back what is cached", func() error { return ublkSync(number) })
	}
	return errors.Join(err, u.end(ctx))
}

// end removes the node and ends the device: whoever has it open gets errors from now on.
func (u *Ublk) end(ctx context.Context) error {
	var errs []error
	if u.node != 0 {
		errs = append(errs, u.bounded(ctx, "remove the device node", u.removeOwnNode))
	}
	if number := u.info.number; number != ublkNone && !u.stopped {
		err := u.bounded(ctx, "stop the ublk device", func() error { return ublkDo(ublkStop, number, 0, nil) })
		u.stopped = err == nil || errors.Is(err, unix.ENODEV)
		if !u.stopped {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ublkSync writes back what is cached of a device.
func ublkSync(number uint32) error {
	fd, err := openNumbered("/dev/"+ublkName("b", number), ublkDisk(number)+"/dev", unix.S_IFBLK)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) {
		return nil // it was never started
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// Close finishes what Withdraw could not and removes the device, its record, and the lock; the
// frontend must have stopped. started says that one was ever started on Handle, and so has closed
// it.
func (u *Ublk) Close(ctx context.Context, started bool) error {
	defer func() { _ = u.unlock() }()
	u.emptyQueues()
	if !started && u.char >= 0 {
		unix.Close(u.char)
	}
	if err := u.awaitLate(ctx); err != nil {
		return err
	}
	if err := u.end(ctx); err != nil {
		return err // record and lock file stay and say that something may be left
	}
	if u.info.number != ublkNone {
		if err := ublkRemove(ctx, u.cfg.Timeout, u.info.number); err != nil {
			return fmt.Errorf("block device %s: %w", u.cfg.Volume, err)
		}
	}
	return errors.Join(ignoreMissing(os.Remove(u.recordPath())), ignoreMissing(os.Remove(u.lockPath())))
}

// Leave leaves the device to its next server, which waits until the frontend has stopped or this
// process has ended. The device must not be used any more.
func (u *Ublk) Leave() error { return u.unlock() }

func (u *Ublk) unlock() (err error) {
	for _, fd := range []*int{&u.lock, &u.record} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
			*fd = -1
		}
	}
	return err
}

// ublkRemove removes a device, whether or not somebody has it open: whoever has gets errors.
func ublkRemove(ctx context.Context, most time.Duration, number uint32) error {
	ended := make(chan error, 1)
	go func() {
		err := ublkCommand(ublkDeleteAsync, number, 0, nil)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			err = ublkCommand(ublkDelete, number, 0, nil) // waits for the last user
		}
		ended <- err
	}()
	late := time.After(most)
	for {
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, unix.ENODEV) {
				return nil
			}
			return fmt.Errorf("remove ublk device %d: %w", number, err)
		case <-time.After(ublkRetry):
			if !exists(ublkClass + "/" + ublkName("c", number)) {
				return nil
			}
		case <-late:
			return fmt.Errorf("remove ublk device %d: the kernel did not finish within %v: %w", number, most,
				context.DeadlineExceeded)
		case <-ctx.Done():
			return fmt.Errorf("remove ublk device %d: %w", number, ctx.Err())
		}
	}
}

// Kept returns what a successor has to know.
func (u *Ublk) Kept() Kept {
	number := u.info.number
	return Kept{Loop: -1, ID: u.id, Ublk: &number}
}

// Duplicate returns a second descriptor of the record. As long as any is open the device waits for
// its next server when this one has died. The caller closes it.
func (u *Ublk) Duplicate() (int, error) {
	fd, err := unix.FcntlInt(uintptr(u.record), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("block device %s: duplicate its descriptor: %w", u.cfg.Volume, err)
	}
	return fd, nil
}

// AdoptUblk takes over the device of a server that was killed. record is the descriptor that was
// kept, which belongs to the device from then on, in case of an error too. Start the frontend on
// Handle and Queues next, then Expose.
//
// If it is not what it was, the error says so: then OpenUblk or Open removes what is left and
// begins anew.
func AdoptUblk(ctx context.Context, cfg Config, kept Kept, record int) (*Ublk, error) {
	if err := cfg.validate(); err != nil {
		unix.Close(record)
		return nil, err
	}
	u := &Ublk{Device: &Device{cfg: cfg, id: kept.ID, fuse: -1, loop: -1, lock: -1}, info: ublkInfo{number: ublkNone},
		char: -1, record: record, adopted: true, asked: make(chan struct{})}
	err := u.lockFolder(ctx, lockPatience)
	if err == nil {
		err = u.adopt(ctx, kept)
	}
	if err != nil {
		if u.char >= 0 {
			unix.Close(u.char)
		}
		u.emptyQueues()
		return nil, errors.Join(fmt.Errorf("block device %s: cannot be taken over: %w", cfg.Volume, err), u.Leave())
	}
	return u, nil
}

func (u *Ublk) adopt(ctx context.Context, kept Kept) error {
	if kept.Ublk == nil || !current(u.record, u.recordPath()) {
		return fmt.Errorf("what was kept is not %s", u.recordPath())
	}
	r, ok := readRecord(u.record)
	info, err := ublkInfoOf(*kept.Ublk)
	switch {
	case err != nil:
		return fmt.Errorf("ublk device %d: %w", *kept.Ublk, err)
	case !ok || info.mark != r.Mark || info.flags&ublkNeeded != ublkNeeded:
		return fmt.Errorf("ublk device %d is not the one of the record", *kept.Ublk)
	}
	u.info = info
	have, err := ublkFeatures()
	if err != nil {
		return err
	}
	u.resizes = have&ublkSizes != 0
	if err := ublkBegin(ctx, info.number); err != nil {
		return err
	}
	if u.rdev, err = numberIn(ublkDisk(info.number) + "/dev"); err != nil {
		return err
	}
	return u.openChar(ctx)
}

// ublkBegin begins a recovery as soon as the kernel has noticed the end of the server.
func ublkBegin(ctx context.Context, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, ublkPatience)
	defer cancel()
	for {
		err := barethread.Run(func() error { return ublkDo(ublkStartRecovery, number, 0, nil) })
		if errors.Is(err, unix.EINVAL) {
			// A server was killed between beginning its recovery and asking for requests. Nothing of it
			// is there, and the device is as that one has found it.
			if info, ierr := ublkInfoOf(number); ierr == nil && info.state == ublkQuiesced {
				return nil
			}
		}
		if !errors.Is(err, unix.EBUSY) {
			if err != nil {
				err = fmt.Errorf("begin the recovery of ublk device %d: %w", number, err)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server before still has ublk device %d: %w", number, ctx.Err())
		case <-time.After(ublkRetry):
		}
	}
}
