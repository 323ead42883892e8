package volume

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/volume/copies"
	"ankole.storage/controlplane/volume/restore"
)

// pass is one judgement of a volume.
type pass struct {
	now time.Time
	// v is the volume; only its status may be edited.
	v      *v1beta2.Volume
	s      seen
	engine *v1beta2.Engine
	// replicas are the volume's, in order of names; deleted ones too.
	replicas []*v1beta2.Replica
	nodes    *nodes
	image    string
	// copies says which replicas the volume cannot do without.
	copies copies.Set
	// events tell what the status edits of this pass mean; after is when to look again.
	events []loop.Event
	after  time.Duration
	// changeEvents belong to the change that is returned.
	changeEvents []loop.Event
	// noPlace says why a replica found no place in this pass (empty: none did not), unplaced by
	// which categories, refused what each node and disk says; unplacedLocal: one that had to go to a
	// certain node.
	noPlace       string
	refused       string
	unplaced      schedule.Failure
	unplacedLocal bool
	// noRoom names a disk without room for the wanted size (empty: the volume may grow).
	noRoom string
	// slots are the nodes on which the volume wants to rebuild, and whether it may now; slotsAsked:
	// the pass has come to that question.
	slots      map[string]bool
	slotsAsked bool
	// upgradeSlots is the node on which the volume waits for its upgrade, and whether it may begin
	// now.
	upgradeSlots map[string]bool
	// workWaits: the volume has work for an engine that nobody else attaches it for; lacksRoom: there
	// is no place for what that would rebuild.
	workWaits, lacksRoom bool
	// noRepair says why there is no place for what is to be rebuilt; empty if there is one.
	noRepair string
}

// judge runs a pass over a volume. The steps run in order; the first that wants a change ends the
// pass, and the next pass sees its effect. Steps before it have brought their part of the status up
// to date.
func judge(now time.Time, v *v1beta2.Volume, s seen) (*pass, loop.Decision) {
	p := newPass(now, v, s)
	return p, p.run()
}

func (p *pass) run() loop.Decision {
	v := p.v
	if v.DeletionTimestamp != nil {
		return p.decision(p.delete())
	}
	v.Status.OwnerID = p.owner()
	v.Status.IsStandby = v.Spec.Standby || restore.Activating(v) && v.Status.RestoreRequired
	expanding{p}.noteExpansion()
	v.Status.FrontendDisabled = v.Spec.DisableFrontend
	p.noteSnapshots()
	p.noteFilesLost()
	p.noteNoSpace()
	restoring{p}.noteBackups()
	p.noteBackingImage()
	for _, step := range []func() loop.Change{
		creating{p}.ensureObjects, // finalizer, attachment object, secret, engine, first replicas
		accepting{p}.endDecision,  // a person's, about lost data, that was for an earlier start
		restoring{p}.endDamage,    // a person's, about a backup that the store has not whole
		upgrading{p}.upgradeDetached,
		upgrading{p}.upgrade,
		following{p}.follow,     // what the engine says of the replicas
		following{p}.robustness, // and what that means for the volume
		cloning{p}.clone,        // its content, if it comes from another volume
		restoring{p}.restore,    // or from a backup
		placing{p}.place,        // replicas without a place
		expanding{p}.grow,       // sizes, as the wanted one
		salvaging{p}.salvage,
		p.limits,                  // of snapshots and rebuilds, as the wanted ones
		maintaining{p}.maintain,   // detached: attach for work that needs an engine
		advancing{p}.advance,      // the state machine: open, close
		replenishing{p}.replenish, // attached: failed replicas back, missing ones anew
		cleaning{p}.cleanup,       // attached: what is not needed any more
		upgrading{p}.upgradeItself,
	} {
		if change := step(); change != nil {
			return p.decision(change)
		}
	}
	placing{p}.noteScheduled()
	return p.decision(nil)
}

func newPass(now time.Time, v *v1beta2.Volume, s seen) *pass {
	p := &pass{now: now, v: v, s: s, engine: s.Engine, nodes: newNodes(&s), image: imageOf(v, s.Settings),
		copies: copies.Of(v, s.Engines, s.Replicas, s.Nodes)}
	for i := range s.Replicas {
		p.replicas = append(p.replicas, &s.Replicas[i])
	}
	return p
}

// decision packs the pass. Events about the status go out with the status; the change then waits
// for the next pass.
func (p *pass) decision(change loop.Change) loop.Decision {
	if len(p.events) > 0 {
		return loop.Decision{Events: p.events}
	}
	return loop.Decision{Do: change, Events: p.changeEvents, After: p.after}
}

// wakeIn asks for another look after d at the latest.
func (p *pass) wakeIn(d time.Duration) {
	if d <= 0 {
		d = time.Millisecond
	}
	if p.after == 0 || d < p.after {
		p.after = d
	}
}

func (p *pass) stamp() string { return p.now.UTC().Format(time.RFC3339) }

// editReplica returns the change of one replica's spec.
func editReplica(rep *v1beta2.Replica, edit func(*v1beta2.ReplicaSpec)) loop.Change {
	c := rep.DeepCopy()
	edit(&c.Spec)
	return loop.Update{Object: c}
}

// editEngine returns the change of the engine's spec.
func (p *pass) editEngine(edit func(*v1beta2.EngineSpec)) loop.Change {
	c := p.engine.DeepCopy()
	edit(&c.Spec)
	return loop.Update{Object: c}
}

func addFinalizer(o client.Object) bool { return controllerutil.AddFinalizer(o, v1beta2.Finalizer) }

// live are the replicas in use that are not deleted, and deleted ones that the volume cannot do
// without yet: those serve on until another copy has their place.
func (p *pass) live() []*v1beta2.Replica {
	return slices.DeleteFunc(slices.Clone(p.replicas), func(r *v1beta2.Replica) bool {
		return !r.Spec.Active || r.DeletionTimestamp != nil && p.copies.Serves(r) == ""
	})
}

// undeleted are the live replicas that nobody has deleted.
func (p *pass) undeleted() []*v1beta2.Replica {
	return slices.DeleteFunc(p.live(), func(r *v1beta2.Replica) bool { return r.DeletionTimestamp != nil })
}

// hasData says whether a replica ever held a full copy. Whether that copy is up to date only the
// engine knows.
func hasData(r *v1beta2.Replica) bool { return r.Spec.LastHealthyAt != "" || r.Spec.HealthyAt != "" }

func (p *pass) anyData() bool { return slices.ContainsFunc(p.live(), hasData) }

// usable replicas count towards numberOfReplicas. A replica for one node only that has no place yet
// may never get one, and is made beside the number: it does not count.
func usable(r *v1beta2.Replica) bool {
	return r.Spec.FailedAt == "" && !r.Spec.EvictionRequested && r.Spec.Active && r.DeletionTimestamp == nil &&
		(r.Spec.NodeID != "" || r.Spec.HardNodeAffinity == "")
}

// healthy replicas, of the live ones, are in sync as far as the control plane was told.
func healthy(r *v1beta2.Replica) bool {
	return r.Spec.FailedAt == "" && r.Spec.HealthyAt != "" && r.Spec.Active
}

func count(rs []*v1beta2.Replica, ok func(*v1beta2.Replica) bool) int {
	n := 0
	for _, r := range rs {
		if ok(r) {
			n++
		}
	}
	return n
}

// members are the data directories of the recorded member set; recorded is false until an engine
// has founded the volume with its copies. Its first epoch is granted before that.
func (p *pass) members() (members []string, recorded bool) {
	if p.engine == nil || !p.engine.Status.Membership.Founded(p.v.UID) {
		return nil, false
	}
	return p.engine.Status.Membership.Members, true
}

func (p *pass) isMember(r *v1beta2.Replica) bool {
	members, _ := p.members()
	return r.Spec.DataDirectoryName != "" && slices.Contains(members, r.Spec.DataDirectoryName)
}

// engineReports says whether the engine runs and has reported its replicas.
func (p *pass) engineReports() bool {
	return p.engine != nil && p.engine.Status.CurrentState == v1beta2.InstanceStateRunning &&
		p.engine.Status.ReplicaModeMap != nil &&
		p.engine.Spec.DesireState == v1beta2.InstanceStateRunning
}

func (p *pass) mode(r *v1beta2.Replica) v1beta2.ReplicaMode {
	return p.engine.Status.ReplicaModeMap[r.Name]
}

// inSyncNow counts the replicas that the engine reads from.
func (p *pass) inSyncNow() int {
	return count(p.live(), func(r *v1beta2.Replica) bool { return r.Spec.Active && p.mode(r) == v1beta2.ReplicaModeRW })
}

func (p *pass) nodeDown(name string) bool { return condition.NodeDown(p.nodes.named(name)) }

// owner is the node status.ownerID names: the attached node, else a stable choice among ready
// nodes.
func (p *pass) owner() string {
	for _, n := range []string{p.v.Status.CurrentNodeID, p.v.Spec.NodeID} {
		if n != "" && !p.nodeDown(n) {
			return n
		}
	}
	if have := p.v.Status.OwnerID; have != "" && !p.nodeDown(have) {
		return have
	}
	var up []string
	for name, n := range p.nodes.all() {
		if !condition.NodeDown(n) {
			up = append(up, name)
		}
	}
	if len(up) == 0 {
		return p.s.Owner
	}
	slices.Sort(up)
	sum := 0
	for _, b := range []byte(p.v.Name) {
		sum = sum*31 + int(b)
	}
	return up[uint(sum)%uint(len(up))]
}

// request prepares a question to the scheduler about this volume. Whether a replica is made, where
// it goes and which one is rebuilt is asked with the same limits: what is made for a place finds
// it.
func (p *pass) request(rep schedule.Replica) schedule.Request {
	if node := p.boundTo(); node != "" {
		rep.HardNode = node
	}
	shown := scheduling{p}
	req := schedule.Request{
		Policy: shown.policy(), Volume: shown.scheduleVolume(), Replica: rep, Nodes: shown.scheduleNodes(),
	}
	for _, r := range p.replicas {
		if r.Name != rep.Name && r.Spec.Active {
			req.Existing = append(req.Existing, shown.scheduleReplica(r))
		}
	}
	return req
}
