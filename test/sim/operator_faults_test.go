package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/test/sim/register"
)

// What goes wrong while the operator does something, and what may become of writes then.

// fault lets something die.
func (o *operator) fault() {
	switch o.rnd.IntN(7) {
	case 0:
		o.v.Replicas[o.rnd.IntN(len(o.v.Replicas))].Kill()
	case 1:
		o.v.KillEngine(o.v.Current)
		for _, r := range o.v.Replicas {
			r.Kill()
		}
	case 2:
		o.power(o.v.Nodes...)
	case 3:
		o.v.KillEngine(o.v.Current)
		o.power(o.v.Nodes[o.rnd.IntN(len(o.v.Nodes))])
	default:
		o.v.KillEngine(o.v.Current)
	}
}

// power lets nodes lose their power for a moment, but for that of a replica that is away.
func (o *operator) power(nodes ...*Node) {
	o.unsure = true
	for _, n := range nodes {
		if !n.off {
			o.v.PowerOff(n)
			defer n.PowerOn()
		}
	}
}

// trouble lets a replica be away while something is done, or has no room for a new head on one.
func (o *operator) trouble() error {
	r := o.v.Replicas[o.rnd.IntN(len(o.v.Replicas))]
	switch k := o.rnd.IntN(6); {
	case k == 0 && len(o.v.Replicas) == 3 && o.v.Current.node != r.Node:
		o.v.log("operator: %s is away", r.Name)
		o.v.PowerOff(r.Node)
		o.away, o.down = r, true
		return o.write() // waits until the others have agreed
	case k < 3:
		o.v.log("operator: no room for a head on %s", r.Name)
		stop, err := r.Disk.FS.InjectText(fmt.Sprintf("create volume-head-* enospc skip %d times 1", o.rnd.IntN(2)))
		o.room, o.down = stop, len(o.v.Replicas) == 1
		return err
	}
	return nil
}

// calm ends it, once the engine has answered or died.
func (o *operator) calm() {
	if o.room != nil {
		o.room()
		o.room = nil
	}
	if r := o.away; r != nil {
		o.away = nil
		o.w.After(between(o.rnd, 0, 50*time.Millisecond), r.Node.PowerOn)
	}
}

// write makes a write and waits for it.
func (o *operator) write() error {
	code, answered := block.OK, false
	o.begin(func(c block.Code) { code, answered = c, true })
	if !o.w.Until(healTime, func() bool { return answered }) || code != block.OK {
		return fmt.Errorf("write of a healthy volume: answered %t, %s", answered, code)
	}
	return nil
}

// begin begins a write of a few blocks in a row. Until it is answered, and as long as it is not
// stable, it may have had no effect.
func (o *operator) begin(done func(code block.Code)) {
	o.made++
	made, at, n := o.made, o.rnd.IntN(len(o.head)), 1
	for most := 1 + o.rnd.IntN(4); n < most && at+n < len(o.head) && place(at+n) == place(at+n-1)+block.Size; n++ {
	}
	call := &Call{Kind: block.Write, FUA: o.rnd.IntN(2) == 0, Off: place(at), Len: int64(n) * block.Size,
		Fill: func(p []byte) { register.Stamp(p, made, place(at)/block.SectorSize) }}
	for i := at; i < at+n; i++ {
		o.loose[i] = append(o.loose[i], o.head[i])
		o.head[i] = made
	}
	call.Done = func(code block.Code, _ []byte) {
		for i := at; i < at+n && code == block.OK && call.FUA; i++ {
			if o.head[i] == made {
				delete(o.loose, i)
			}
		}
		done(code)
	}
	o.v.Current.front.Submit(call)
}

// writes begins some writes, most of them when the fault that may come is near.
func (o *operator) writes() error {
	e, open := o.v.Current, 0
	for n := 1 + o.rnd.IntN(4); n > 0; n-- {
		wait, over := between(o.rnd, 0, 2*time.Millisecond), false
		o.w.After(wait, func() { over = true })
		o.w.Until(wait, func() bool { return over })
		if !e.Alive() || e != o.v.Current {
			break
		}
		open++
		o.begin(func(code block.Code) {
			if open--; code != block.OK {
				o.unsure = true
			}
		})
	}
	o.w.Until(healTime, func() bool { return open == 0 || !e.Alive() })
	if open > 0 {
		o.unsure = true
	}
	_, violation := o.outcome(nil)
	return violation
}

// stable notes that the head was made durable, and with it all that was written.
func (o *operator) stable() { clear(o.loose) }

// blockAt returns the number of the write that a block holds, and those of its sectors. For one
// that holds sectors of several writes, as a loss of power leaves it, the number stands for all of
// its content.
func blockAt(read func(p []byte, off int64) (int, error), i int) (n uint64, sectors []uint64, err error) {
	p := make([]byte, block.Size)
	if _, err := read(p, place(i)); err != nil {
		return 0, nil, err
	}
	for at := int64(0); at < block.Size; at += block.SectorSize {
		w, ok := register.Unstamp(p[at:], (place(i)+at)/block.SectorSize)
		if !ok {
			return 0, nil, fmt.Errorf("the sector at %d is of no write", place(i)+at)
		}
		if !slices.Contains(sectors, w) {
			sectors = append(sectors, w)
		}
	}
	if len(sectors) > 1 {
		h := fnv.New64a()
		_, _ = h.Write(p) // cannot fail
		return h.Sum64(), sectors, nil
	}
	return sectors[0], sectors, nil
}

// decide takes over from one replica what has become of the writes that are not certain. All others
// must hold the same.
func (o *operator) decide() error {
	c := o.v.Replicas[0].Chain()
	if !o.unsure || c == nil || c.Size() < o.head.size() {
		return nil
	}
	for i, may := range o.loose {
		got, sectors, err := blockAt(c.ReadAt, i)
		if err != nil {
			return err
		}
		may = append(slices.Clone(may), o.head[i])
		for _, w := range may {
			may = append(may, o.mixed[w]...)
		}
		if slices.ContainsFunc(sectors, func(w uint64) bool { return !slices.Contains(may, w) }) {
			continue // check tells
		}
		if o.head[i] = got; len(sectors) > 1 {
			o.mixed[got] = sectors
		}
	}
	o.unsure = false
	return nil
}
