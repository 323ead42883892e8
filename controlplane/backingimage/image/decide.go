package image

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
)

// placeAgainAfter is when a copy without a place is looked at again even if nothing has changed:
// what is free on disks wakes nobody.
const placeAgainAfter = 30 * time.Second

// seen is what decide looks at besides the image.
type seen struct {
	// Source has the image's name; nil if there is none.
	Source *v1beta2.BackingImageDataSource
	// Managers are those of all disks and all images.
	Managers []v1beta2.BackingImageManager
	// Disks are those of all nodes, by UUID.
	Disks map[string]backingimage.Disk
	// Used are the UUIDs of disks with a replica that stands on the image; "": one has no disk yet.
	Used map[string]bool
	// CleanupWait is how long a copy must be unused to go, RecoveryWait how long all must have failed
	// for the source to begin anew.
	CleanupWait, RecoveryWait time.Duration
	// Replenish is how many copies a node may be making at a time; 0: none are added.
	Replenish int
	// ManagerImage is what managers run.
	ManagerImage string
	Policy       schedule.Policy
	// UUID is a new one, and Random a random number.
	UUID   string
	Random int
	// Owner is the leader's node.
	Owner string
}

// decide is table "image" of docs/design/backing-images.md.
func decide(now time.Time, b *v1beta2.BackingImage, s seen) loop.Decision {
	p := &pass{now: now, b: b, s: s, byDisk: map[string]*v1beta2.BackingImageManager{}}
	for i := range s.Managers {
		if m := &s.Managers[i]; m.Spec.Image == s.ManagerImage {
			p.byDisk[m.Spec.DiskUUID] = m
		}
	}
	if b.DeletionTimestamp != nil {
		return p.end()
	}
	b.Status.OwnerID = s.Owner
	if b.Status.UUID == "" {
		b.Status.UUID = s.UUID
		return loop.Decision{}
	}
	p.observe()
	for _, step := range []func() (loop.Decision, bool){
		p.convert, p.follow, p.evictions, p.withdraw, p.engage, p.begin, p.recover, p.drop, p.replenish,
	} {
		if d, acts := step(); acts {
			return d
		}
	}
	return loop.Decision{After: p.again}
}

// pass is one judgement of an image.
type pass struct {
	now time.Time
	b   *v1beta2.BackingImage
	s   seen
	// byDisk are the managers that run the present image, by the UUID of their disk.
	byDisk map[string]*v1beta2.BackingImageManager
	// again is when to look once more, if nothing else wakes.
	again time.Duration
}

func (p *pass) wakeIn(d time.Duration) {
	if d > 0 && (p.again == 0 || d < p.again) {
		p.again = d
	}
}

func does(c loop.Change) (loop.Decision, bool) { return loop.Decision{Do: c}, true }

func nothing() (loop.Decision, bool) { return loop.Decision{}, false }

// disks are those that are to have a copy, in order.
func (p *pass) disks() []string { return slices.Sorted(maps.Keys(p.b.Spec.DiskFileSpecMap)) }

func (p *pass) evicting(disk string) bool { return p.b.Spec.DiskFileSpecMap[disk].EvictionRequested }

func (p *pass) state(disk string) v1beta2.BackingImageState {
	return p.b.Status.DiskFileStatusMap[disk].State
}

// count is how many copies, those that leave their disk apart, are in a state.
func (p *pass) count(is func(v1beta2.BackingImageState) bool) (n int) {
	for _, disk := range p.disks() {
		if !p.evicting(disk) && is(p.state(disk)) {
			n++
		}
	}
	return n
}

// senders is how many copies others can be made from, those that leave their disk too.
func (p *pass) senders() (n int) {
	for _, disk := range p.disks() {
		if ready(p.state(disk)) {
			n++
		}
	}
	return n
}

func ready(s v1beta2.BackingImageState) bool  { return s == v1beta2.BackingImageStateReady }
func failed(s v1beta2.BackingImageState) bool { return s == v1beta2.BackingImageStateFailed }

// handling is a copy that is to come, or about which nobody can say anything now.
func handling(s v1beta2.BackingImageState) bool { return !ready(s) && !failed(s) }

// end lets a deleted image go when nothing of it is on any disk: first the source, which writes to
// one, then the files.
func (p *pass) end() loop.Decision {
	if len(p.s.Used) > 0 {
		return loop.Decision{} // whoever has deleted it past the webhook waits for its replicas
	}
	if p.s.Source != nil {
		return loop.Decision{Do: loop.Delete{Object: p.s.Source}}
	}
	for i := range p.s.Managers {
		if m := &p.s.Managers[i]; m.Spec.BackingImages[p.b.Name] != "" && m.DeletionTimestamp == nil {
			return loop.Decision{Do: without(m, p.b.Name)}
		}
	}
	for i := range p.s.Managers {
		f, there := p.s.Managers[i].Status.BackingImageFileMap[p.b.Name]
		if there && f.UUID == p.b.Status.UUID {
			return loop.Decision{} // its end wakes
		}
	}
	c := p.b.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}

// convert takes over the older form of the map of disks.
func (p *pass) convert() (loop.Decision, bool) {
	if len(p.b.Spec.Disks) == 0 {
		return nothing()
	}
	c := p.copyWith(slices.Sorted(maps.Keys(p.b.Spec.Disks))...)
	c.Spec.Disks = nil
	return does(loop.Update{Object: c})
}

// follow has the disks of replicas that stand on the image have a copy: they are started then.
func (p *pass) follow() (loop.Decision, bool) {
	for _, disk := range slices.Sorted(maps.Keys(p.s.Used)) {
		_, wanted := p.b.Spec.DiskFileSpecMap[disk]
		if _, known := p.s.Disks[disk]; known && !wanted {
			return does(loop.Update{Object: p.copyWith(disk)})
		}
	}
	return nothing()
}

// evictions marks the copies on disks that are to be emptied.
func (p *pass) evictions() (loop.Decision, bool) {
	for _, disk := range p.disks() {
		d, known := p.s.Disks[disk]
		if !known || d.Leaving == p.evicting(disk) {
			continue
		}
		c := p.b.DeepCopy()
		f := c.Spec.DiskFileSpecMap[disk]
		f.EvictionRequested = d.Leaving
		c.Spec.DiskFileSpecMap[disk] = f
		return does(loop.Update{Object: c})
	}
	return nothing()
}

// withdraw has managers delete copies that are not wanted any more.
func (p *pass) withdraw() (loop.Decision, bool) {
	for i := range p.s.Managers {
		m := &p.s.Managers[i]
		_, wanted := p.b.Spec.DiskFileSpecMap[m.Spec.DiskUUID]
		if m.Spec.BackingImages[p.b.Name] != "" && !wanted && m.DeletionTimestamp == nil {
			return does(without(m, p.b.Name))
		}
	}
	return nothing()
}

// engage tells the managers of disks that are to have a copy, or makes them.
func (p *pass) engage() (loop.Decision, bool) {
	if p.s.ManagerImage == "" {
		return nothing()
	}
	for _, disk := range p.disks() {
		m, d := p.byDisk[disk], p.s.Disks[disk]
		switch {
		case m == nil && d.Node != "":
			return does(loop.Create{Object: p.managerFor(d)})
		case m == nil, m.DeletionTimestamp != nil: // its end wakes
		case m.Spec.BackingImages[p.b.Name] != p.b.Status.UUID:
			c := m.DeepCopy()
			if c.Spec.BackingImages == nil {
				c.Spec.BackingImages = map[string]string{}
			}
			c.Spec.BackingImages[p.b.Name] = p.b.Status.UUID
			return does(loop.Update{Object: c})
		}
	}
	return nothing()
}

// begin makes the data source, and chooses its disk. Where the image has a file already the source
// is only the record of that.
func (p *pass) begin() (loop.Decision, bool) {
	switch {
	case p.s.Source != nil:
		return nothing()
	case p.senders() > 0:
		for _, disk := range p.disks() {
			if d, known := p.s.Disks[disk]; known && ready(p.state(disk)) {
				return does(loop.Create{Object: p.sourceFor(d, true)})
			}
		}
		return nothing()
	case p.elsewhere():
		return nothing()
	}
	for _, disk := range p.disks() {
		if d, known := p.s.Disks[disk]; known && d.Up && !d.Leaving && !p.evicting(disk) {
			return does(loop.Create{Object: p.sourceFor(d, false)})
		}
	}
	if len(p.b.Spec.DiskFileSpecMap) == 0 || p.hopeless() {
		return p.placeFirst()
	}
	p.wakeIn(placeAgainAfter)
	return nothing()
}

// elsewhere says whether a file may be on a disk that cannot be looked at now.
func (p *pass) elsewhere() bool {
	for _, disk := range p.disks() {
		if p.state(disk) == v1beta2.BackingImageStateUnknown {
			return true
		}
	}
	return false
}

// hopeless says whether no disk that is to have a copy can take one.
func (p *pass) hopeless() bool {
	return !slices.ContainsFunc(p.disks(), func(disk string) bool {
		d, known := p.s.Disks[disk]
		return known && !d.Leaving
	})
}

// placeFirst chooses the disk of the first file. That there is none is an error, which an event
// tells, and which is tried again.
func (p *pass) placeFirst() (loop.Decision, bool) {
	disk, found := p.choose(func(backingimage.Disk) bool { return true })
	if found {
		return does(loop.Update{Object: p.copyWith(disk)})
	}
	return loop.Decision{FailureReason: naming.EventFailed, Do: loop.Call{What: "place backing image " + p.b.Name,
		Order: noPlace{}}}, true
}

// noPlace is an order that fails: it tells that no disk takes the image.
type noPlace struct{}

func carry(_ context.Context, b *v1beta2.BackingImage, _ seen, _ any) error {
	return fmt.Errorf("no disk takes backing image %s: one must be schedulable, have free space, and the tags that its "+
		"nodeSelector and diskSelector name", b.Name)
}

// choose picks a disk for a copy at random, on a node without one if there is such a node.
func (p *pass) choose(may func(backingimage.Disk) bool) (string, bool) {
	nodes := map[string]bool{}
	for _, disk := range p.disks() {
		nodes[p.s.Disks[disk].Node] = true
	}
	var alone, beside []string
	for _, uuid := range slices.Sorted(maps.Keys(p.s.Disks)) {
		d := p.s.Disks[uuid]
		_, has := p.b.Spec.DiskFileSpecMap[uuid]
		switch {
		case has || !d.Fits(p.b, p.b.Status.Size, p.s.Policy) || !may(d):
		case nodes[d.Node]:
			beside = append(beside, uuid)
		default:
			alone = append(alone, uuid)
		}
	}
	if len(alone) == 0 {
		alone = beside
	}
	if len(alone) == 0 {
		return "", false
	}
	return alone[p.s.Random%len(alone)], true
}

// recover has the source begin anew when every copy has failed for a while and the source can be
// read again.
func (p *pass) recover() (loop.Decision, bool) {
	src := p.s.Source
	if src == nil || src.DeletionTimestamp != nil || !p.repeatable(src) {
		return nothing()
	}
	var since time.Time
	for _, disk := range p.disks() {
		f := p.b.Status.DiskFileStatusMap[disk]
		if !failed(f.State) || p.s.Used[disk] {
			return nothing()
		}
		if at, err := time.Parse(time.RFC3339, f.LastStateTransitionTime); err == nil && at.After(since) {
			since = at
		}
	}
	if len(p.disks()) == 0 && !src.Spec.FileTransferred {
		return nothing()
	}
	if wait := since.Add(p.s.RecoveryWait).Sub(p.now); wait > 0 {
		p.wakeIn(wait)
		return nothing()
	}
	return does(loop.Delete{Object: src})
}

// repeatable says whether a source can begin anew by itself: a user uploads once, unless the disk
// has gone before he has.
func (p *pass) repeatable(src *v1beta2.BackingImageDataSource) bool {
	switch p.b.Spec.SourceType {
	case v1beta2.BackingImageSourceTypeDownload, v1beta2.BackingImageSourceTypeExportFromVolume,
		v1beta2.BackingImageSourceTypeRestore:
		return true
	case v1beta2.BackingImageSourceTypeClone:
		// What is encrypted once more has another key, and is another image.
		return p.b.Spec.SourceParameters[v1beta2.BackingImageParameterEncryption] !=
			v1beta2.BackingImageEncryptionEncrypt || p.b.Status.Checksum == ""
	case v1beta2.BackingImageSourceTypeUpload:
		return !src.Spec.FileTransferred && p.gone(src.Spec.DiskUUID)
	}
	return false
}

// drop takes one copy away that has to leave its disk, or that nobody needs.
func (p *pass) drop() (loop.Decision, bool) {
	for _, disk := range p.disks() {
		if p.s.Used[disk] || !p.droppable(disk) {
			continue
		}
		c := p.b.DeepCopy()
		delete(c.Spec.DiskFileSpecMap, disk)
		return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventDelete,
			Message: "the copy on disk " + disk + " is removed"}}}, true
	}
	return nothing()
}

// droppable says whether a copy may go: enough others stay without it.
func (p *pass) droppable(disk string) bool {
	src := p.s.Source
	if src != nil && !src.Spec.FileTransferred && src.Spec.DiskUUID == disk {
		return false
	}
	state, healthy := p.state(disk), p.count(ready)
	if p.evicting(disk) {
		return healthy > 0
	}
	wait := p.s.CleanupWait
	if _, known := p.s.Disks[disk]; !known {
		if healthy == 0 {
			return false
		}
		return p.passed(p.b.Status.DiskFileStatusMap[disk].LastStateTransitionTime, p.s.RecoveryWait)
	}
	enough, wanted := 0, p.b.Spec.MinNumberOfCopies
	switch {
	case ready(state):
		enough = healthy
	case failed(state):
		enough = len(p.disks())
	default:
		enough = healthy + p.count(handling)
	}
	return enough > wanted && healthy > 0 && (!ready(state) || healthy > 1) &&
		p.passed(p.b.Status.DiskLastRefAtMap[disk], wait)
}

// passed says whether a time is that long ago; otherwise it is looked at again then.
func (p *pass) passed(stamp string, wait time.Duration) bool {
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return false
	}
	left := at.Add(wait).Sub(p.now)
	p.wakeIn(left)
	return left <= 0
}

// replenish adds one copy where there are too few.
func (p *pass) replenish() (loop.Decision, bool) {
	src := p.s.Source
	have := p.count(ready) + p.count(func(
		s v1beta2.BackingImageState) bool {
		return s == v1beta2.BackingImageStateUnknown
	})
	coming := p.count(handling) - (have - p.count(ready))
	if src == nil || !src.Spec.FileTransferred || src.DeletionTimestamp != nil || p.senders() == 0 || coming > 0 ||
		have >= p.b.Spec.MinNumberOfCopies || p.s.Replenish == 0 {
		return nothing()
	}
	if wait := p.repairing(); wait > 0 {
		p.wakeIn(wait)
		return nothing()
	}
	busy := p.underWay()
	disk, found := p.choose(func(d backingimage.Disk) bool { return busy[d.Node] < p.s.Replenish })
	if !found {
		p.wakeIn(placeAgainAfter)
		return nothing()
	}
	return does(loop.Update{Object: p.copyWith(disk)})
}

// repairing is how long a copy that has failed is still waited for: its manager tries again, and
// another one elsewhere would soon be one too many.
func (p *pass) repairing() (wait time.Duration) {
	for _, disk := range p.disks() {
		f := p.b.Status.DiskFileStatusMap[disk]
		at, err := time.Parse(time.RFC3339, f.LastStateTransitionTime)
		if failed(f.State) && !p.evicting(disk) && !p.gone(disk) && err == nil {
			wait = max(wait, at.Add(p.s.RecoveryWait).Sub(p.now))
		}
	}
	return wait
}

// underWay is how many copies each node is making.
func (p *pass) underWay() map[string]int {
	busy := map[string]int{}
	for i := range p.s.Managers {
		m := &p.s.Managers[i]
		for _, f := range m.Status.BackingImageFileMap {
			switch f.State {
			case v1beta2.BackingImageStatePending, v1beta2.BackingImageStateStarting, v1beta2.BackingImageStateInProgress:
				busy[m.Spec.NodeID]++
			}
		}
	}
	return busy
}
