package crash

import (
	"strings"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
)

// cutReplica cuts the network between a replica and the engine.
func cutReplica(r *run) {
	x := r.pick()
	x.Host.Cut(r.t, false, r.v.Engine().Host)
	r.awaitDropped(x)
	r.progress(20)
}

// cutOneWay cuts one direction of it.
func cutOneWay(r *run) {
	x, e := r.pick(), r.v.Engine()
	if r.rng.IntN(2) == 0 {
		x.Host.Cut(r.t, true, e.Host)
	} else {
		e.Host.Cut(r.t, true, x.Host)
	}
	r.awaitDropped(x)
	r.progress(20)
}

// awaitDropped waits until the engine has given a replica up.
func (r *run) awaitDropped(x *rig.Replica) {
	r.t.Helper()
	r.v.Await("replica dropped", func(s *enginev1.State) bool { return x.Mode(s) == enginev1.Mode_MODE_ERR })
}

// cutShortly is below every timeout on an idle machine.
func cutShortly(r *run) {
	r.pick().Host.Cut(r.t, false, r.v.Engine().Host)
	r.rest(20*time.Millisecond, 500*time.Millisecond)
	r.v.Heal()
	r.progress(20)
}

// cutEngine cuts an engine off from everything, and starts another one elsewhere. The first one is
// alive and has requests: they must not be acknowledged, unless they had happened before.
func cutEngine(r *run) {
	r.j.Tolerate(rig.AnyError)
	old := r.v.Engine()
	old.Host.Cut(r.t, false, old.Host.Others()...)
	old.Host.Witness.SetOffline(true)
	r.replace(old)
	r.progress(50)
	r.mend(old)
}

// replace starts an engine on the other node and lets the writer go on there; those of its workers
// that hang stay where they are.
func (r *run) replace(old *rig.Engine) {
	r.t.Helper()
	r.j.Abandon()
	r.v.NewEngine(r.other(old.Host)).AwaitUp()
	r.conn = nil // still in use by those who were abandoned
	r.use(r.v.Engine())
}

// mend ends a cut and waits until the engine that was replaced has noticed.
func (r *run) mend(old *rig.Engine) {
	r.t.Helper()
	r.v.Heal()
	r.v.Witness().SetOffline(false)
	r.progress(50)
	r.awaitReplaced(old)
}

// awaitReplaced waits for the end of an engine that was replaced: it has to say so, and to let its
// clients go first.
func (r *run) awaitReplaced(old *rig.Engine) {
	r.t.Helper()
	if code := old.Exit(); code == 0 || strings.Contains(old.Log(), "did not stop in time") {
		r.t.Fatalf("round %d: engine %s was replaced and ended with %d\n%s", r.round, old.Name, code, old.Log())
	}
}

// split leaves the engine with one replica, and starts another engine with the others. The writer
// is still at first, so that the old engine notices nothing by itself.
func split(r *run) {
	r.j.Tolerate(rig.AnyError)
	old, own := r.v.Engine(), r.pick()
	r.j.Pause(r.t)
	for _, x := range r.v.Replicas {
		if x != own {
			x.Host.Cut(r.t, false, old.Host)
		}
	}
	own.Host.Cut(r.t, false, r.other(old.Host))
	old.Host.Witness.SetOffline(true)
	r.replace(old)
	r.progress(200)
	r.probe(old)
	r.mend(old)
}

// probeTime bounds how long answers of an engine that should give none are waited for.
const probeTime = time.Second

// probe reads from an engine that was replaced. It may answer nothing, or errors, or what is still
// true.
func (r *run) probe(old *rig.Engine) {
	r.t.Helper()
	r.j.Pause(r.t)
	c, err := old.Target()
	if err != nil {
		r.j.Resume()
		return // it offers nothing any more
	}
	answered, stale := r.j.Probe(c, probeTime)
	r.answered += answered
	r.stale += stale
	if stale > 0 {
		r.t.Fatalf("round %d: engine %s was replaced and answered %d reads, %d of them with what is no longer true\n%s",
			r.round, old.Name, answered, stale, old.Log())
	}
	r.j.Mark("engine %s answered %d reads, %d of them with what is no longer true", old.Name, answered, stale)
	r.j.Resume()
}

// fillOne takes all space of one replica: it is dropped, or nothing needed space; the others go on.
func fillOne(r *run) {
	x := r.pick()
	r.fill(x)
	r.progress(200)
	if r.rng.IntN(2) == 0 { // it has to start on a full disk
		x.Kill()
		x.Start()
		r.progress(20)
	}
}

func (r *run) fill(x *rig.Replica) {
	r.t.Helper()
	if err := x.Disk.Fill(0); err != nil {
		r.t.Fatal(err)
	}
	r.v.Hit()
}

// fillAll takes all space of all replicas. Writes that need some fail, everything else goes on.
// Where a write failed the replicas may differ until the next start, so there is one.
func fillAll(r *run) {
	r.j.Tolerate(rig.NoSpace)
	for _, x := range r.v.Replicas {
		r.fill(x)
	}
	r.progress(200)
	r.j.Tolerate(rig.AnyError)
	if r.rng.IntN(2) == 0 {
		r.v.KillAll()
		for _, x := range r.v.Replicas {
			x.Start() // on a full disk
		}
		return
	}
	r.v.Engine().Kill()
}

// fillTarget takes the space that a rebuild needs: it fails, and the volume goes on.
func fillTarget(r *run) {
	x := r.pick()
	x.Kill()
	r.progress(20)
	x.Start()
	if err := x.Disk.Fill(int64(r.rng.IntN(4 * mib))); err != nil {
		r.t.Fatal(err)
	}
	if err := r.add(x); err != nil {
		r.j.Mark("add: %v", err)
	}
	r.progress(200)
}
