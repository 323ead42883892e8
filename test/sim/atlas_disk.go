package sim

import (
	"math/rand/v2"
	"time"
)

// mostSick bounds how many disks give errors at a time: the last copy has to be readable.
func (r *run) mostSick() int { return max(1, len(r.v.Replicas)-1) }

// sick chooses a replica whose disk fails.
func (r *run) sick(rnd *rand.Rand) *Replica {
	if r.sickDisks >= r.mostSick() {
		return nil
	}
	x := pick(rnd, r.v.Replicas...)
	if x.Node.off {
		return nil
	}
	return x
}

// disturb makes operations on one disk fail by rules.
func (r *run) disturb(rnd *rand.Rand, rules ...string) (func(), bool) {
	x := r.sick(rnd)
	if x == nil {
		return nil, false
	}
	return r.spoil(rnd, x, rules...), true
}

// spoil makes operations on the disk of a replica fail by one of some rules.
func (r *run) spoil(rnd *rand.Rand, x *Replica, rules ...string) (undo func()) {
	rule := pick(rnd, rules...)
	stop, err := x.Disk.FS.InjectText(rule)
	if err != nil {
		panic(err)
	}
	r.v.log("on %s: %s", x.Name, rule)
	r.sickDisks++
	return func() {
		r.sickDisks--
		stop()
	}
}

func diskReads(r *run, rnd *rand.Rand) (func(), bool) {
	return r.disturb(rnd, "read *.img eio", "read *.img eio times 1", "read,open,list,stat,extents * eio chance 3",
		"read * eio chance 2")
}

func diskWrites(r *run, rnd *rand.Rand) (func(), bool) {
	return r.disturb(rnd, "write *.img eio", "write *.img eio times 1", "write *.img partial",
		"write *.img partial times 1", "write * eio chance 3", "write,create,rename,remove,link,syncdir * eio chance 3",
		"punch,truncate,preallocate * eio", "write ankole* eio times 1")
}

func diskSyncs(r *run, rnd *rand.Rand) (func(), bool) {
	return r.disturb(rnd, "sync *.img eio times 1", "sync * eio times 1", "sync,syncdir * eio", "syncdir * eio times 1")
}

func diskFull(r *run, rnd *rand.Rand) (func(), bool) {
	if rnd.IntN(3) == 0 { // data has room, a new file has not: only a change of the chain shows it
		return r.disturb(rnd, "create volume-head-* enospc", "create volume-head-* enospc skip 1", "create *.img enospc")
	}
	full := r.v.Replicas
	if rnd.IntN(3) > 0 {
		full = []*Replica{pick(rnd, full...)}
	}
	left := rnd.Int64N(64 << 10)
	for _, x := range full {
		x.Disk.FS.SetCapacity(x.Disk.FS.Used() + left)
		r.v.log("%s has %d bytes left", x.Name, left)
	}
	return func() {
		for _, x := range full {
			x.Disk.FS.SetCapacity(0)
		}
	}, true
}

func diskSlow(r *run, rnd *rand.Rand) (func(), bool) {
	x := pick(rnd, r.v.Replicas...)
	slow := time.Duration(1<<rnd.IntN(11)) * time.Millisecond
	x.Disk.slow += slow
	r.v.log("%s takes %s longer", x.Name, slow)
	return func() { x.Disk.slow -= slow }, true
}
