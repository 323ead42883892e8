package sim

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/device/kept"
	"ankole.storage/dataplane/engine"
)

// device is the block device of an engine as the kernel of its node has it. It outlives the engine
// if that is killed: the instance manager keeps it, requests wait, and the next engine on the node
// goes on with it or ends it.
type device struct {
	kept.Owners
	// owner serves it, or is to; waiting is what users have asked for and nobody has answered, until
	// an engine serves it.
	owner   *EngineProcess
	waiting []*Call
}

// keep makes a device of an engine that offers the volume anew.
func (v *Volume) keep(e *EngineProcess) {
	if v.Keeps {
		v.devices[e.node] = &device{kept.Owners{VolumeUUID: v.UUID, Epochs: []uint64{e.state.Epoch}}, e, nil}
	}
}

// deviceOf returns the device that an engine serves, or is to, nil for none.
func (v *Volume) deviceOf(e *EngineProcess) *device {
	if d := v.devices[e.node]; d != nil && d.owner == e {
		return d
	}
	return nil
}

// endDevice fails what an engine's users have asked for. Those who wait are not told: nobody knows
// yet whether what they have asked for has happened.
func (v *Volume) endDevice(e *EngineProcess) {
	if v.deviceOf(e) != nil {
		delete(v.devices, e.node)
	}
}

// orphan leaves the device of an engine that has died to the instance manager.
func (v *Volume) orphan(e *EngineProcess) {
	d := v.deviceOf(e)
	switch {
	case d == nil:
		return
	case e.node.off:
		v.endDevice(e)
		return
	}
	d.owner = nil
	if e.front != nil {
		d.waiting = append(d.waiting, e.front.unanswered()...)
	}
	v.log("the device of %s is kept, %d requests wait", e.Name, len(d.waiting))
}

// unanswered is what users have asked for, in the order of their requests.
func (f *Front) unanswered() []*Call {
	var calls []*Call
	for id := uint64(1); id <= f.nextID; id++ {
		if c := f.open[id]; c != nil {
			calls = append(calls, c)
		}
	}
	return append(calls, f.queue...)
}

// follow is what an engine's process does about a device that is kept, when it knows whom the
// engine follows.
func (v *Volume) follow(e *EngineProcess, follows, epoch uint64) (continues bool) {
	d := v.devices[e.node]
	if d == nil || d.owner != nil {
		return false
	}
	if err := d.ContinuedBy(v.UUID, follows); err != nil {
		v.log("the device kept on %s ends: %v", e.node.Name, err)
		delete(v.devices, e.node)
		v.Ended++
		return false
	}
	d.Add(epoch)
	d.owner = e
	v.log("%s goes on with the device kept on %s", e.Name, e.node.Name)
	return true
}

// offer gives the users of a volume an engine that has begun to serve.
func (v *Volume) offer(e *EngineProcess) {
	if d := v.deviceOf(e); d != nil {
		v.goOn(d)
	} else {
		v.keep(e)
	}
	e.attach()
	e.Post(engine.FrontendKept{Kept: true})
}

// goOn has an engine that serves a kept device carry out what nobody has answered, in any order. An
// engine that has taken the device over and never serves, since another one follows it elsewhere,
// carries out nothing.
func (v *Volume) goOn(d *device) {
	v.Adopted += len(d.waiting)
	v.W.Rand.Shuffle(len(d.waiting), func(i, j int) { d.waiting[i], d.waiting[j] = d.waiting[j], d.waiting[i] })
	for _, c := range d.waiting {
		if c.Again != nil {
			c.Again(d.owner)
		}
	}
	d.owner.front.queue = append(d.waiting, d.owner.front.queue...)
	d.waiting = nil
}

// again makes a request that the kernel has sent before part of the history of another engine. What
// the first one did of it stays as unsure as it is.
func (r *run) again(k int, e *EngineProcess) {
	q := &r.history[k]
	if q.Write == 0 {
		if q.Engine = e; q.Kind == block.Read {
			r.reads = append(r.reads, k)
		}
		return
	}
	next := *q
	r.writes++
	next.Write, next.Engine, next.Began, next.Ended = r.writes, e, r.w.Now(), clock.Never
	from, to := q.wrote()
	r.check.Again(r.w.Now(), next.Write, q.Write, from, to-from)
	r.history = append(r.history, next)
}
