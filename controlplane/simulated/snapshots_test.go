package simulated_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/clone"
)

// line is what a volume has of snapshots: they are one line, from the oldest to the newest, and the
// head stands on the newest.
type line struct {
	names []string
	of    map[string]engineclient.Snapshot
	// frozen are those for which file systems were to be frozen.
	frozen []string
}

// line is that of a volume, by its UID.
func (w *world) line(volumeUID string) *line {
	if w.lines[volumeUID] == nil {
		w.lines[volumeUID] = &line{of: map[string]engineclient.Snapshot{}}
	}
	return w.lines[volumeUID]
}

// lineOf is that of a volume that is there.
func (w *world) lineOf(volume string) *line { return w.line(string(w.volume(volume).UID)) }

func (l *line) add(s engineclient.Snapshot) {
	if _, there := l.of[s.Name]; !there {
		l.names = append(l.names, s.Name)
	}
	l.of[s.Name] = s
}

// tell is how an engine tells them.
func (l *line) tell() map[string]engineclient.Snapshot {
	out, parent := map[string]engineclient.Snapshot{}, ""
	for _, name := range append(slices.Clone(l.names), v1beta2.VolumeHeadName) {
		p := l.of[name]
		p.Name, p.Parent, p.Created, p.SizeBytes = name, parent, "2026-01-02T03:04:05Z", 4096
		out[name] = p
		if below, ok := out[parent]; ok {
			below.Children = []string{name}
			out[parent] = below
		}
		parent = name
	}
	return out
}

// purge takes what is marked away, but for what the head stands on.
func (l *line) purge() {
	var kept []string
	for i, name := range l.names {
		if !l.of[name].Removed || i == len(l.names)-1 {
			kept = append(kept, name)
			continue
		}
		delete(l.of, name)
	}
	l.names = kept
}

func (s *serving) line() *line { return s.w.line(s.p.volumeUID) }

// defaultOptions are those of an engine that was told none.
func defaultOptions() engineclient.Options {
	count, size, pace := 250, int64(0), 1
	return engineclient.Options{SnapshotMaxCount: &count, SnapshotMaxSizeBytes: &size, RebuildConcurrency: &pace,
		RebuildBandwidth: new(int64)}
}

// dies lets an engine that is cruelly treated die after an order, before it answers.
func (s *serving) dies() bool {
	if !s.w.cruel || s.w.rng.IntN(4) != 0 {
		return false
	}
	s.w.end(s.p, "signal: killed")
	return true
}

var errKilled = fmt.Errorf("%w: killed", engineclient.ErrUnavailable)

// changing is ordered for an order that changes snapshots.
func (e *engines) changing(t engineclient.Target, what string) (*serving, error) {
	s, err := e.ordered(t)
	if err == nil && (!s.contact || s.replaced()) {
		err = fmt.Errorf("%w: it starts, or was replaced", engineclient.ErrUnavailable)
	}
	if err == nil {
		e.w.order(t.Volume, what)
	}
	return s, err
}

// SnapshotCreate implements engineclient.Client.
func (e *engines) SnapshotCreate(_ context.Context, t engineclient.Target, r engineclient.SnapshotRequest) (string,
	error) {
	s, err := e.changing(t, "snapshot "+r.Name)
	if err != nil {
		return "", err
	}
	l := s.line()
	if _, there := l.of[r.Name]; there {
		return "", fmt.Errorf("%w: snapshot %s exists", engineclient.ErrPrecondition, r.Name)
	}
	if most := *s.options.SnapshotMaxCount; len(l.names) >= most {
		return "", fmt.Errorf("%w: %d snapshots are the limit", engineclient.ErrPrecondition, most)
	}
	l.add(engineclient.Snapshot{Name: r.Name, Labels: r.Labels, UserCreated: r.UserCreated})
	if r.Freeze {
		l.frozen = append(l.frozen, r.Name)
	}
	if s.dies() {
		return "", errKilled
	}
	s.publish()
	return r.Name, nil
}

// SnapshotRemove implements engineclient.Client.
func (e *engines) SnapshotRemove(_ context.Context, t engineclient.Target, name string) error {
	s, err := e.changing(t, "remove snapshot "+name)
	if err != nil {
		return err
	}
	have, ok := s.line().of[name]
	if !ok {
		return fmt.Errorf("%w: %s", engineclient.ErrNotFound, name)
	}
	for _, v := range all[*v1beta2.Volume](e.w) {
		if clone.Holds(v, t.Volume, name) {
			e.w.failf("snapshot %s of %s is removed while volume %s is copied from it", name, t.Volume, v.Name)
		}
	}
	have.Removed = true
	s.line().add(have)
	if s.dies() {
		return errKilled
	}
	s.publish()
	return nil
}

// SnapshotPurge begins a purge. It takes system snapshots too.
func (e *engines) SnapshotPurge(_ context.Context, t engineclient.Target, _ bool) error {
	s, err := e.changing(t, "purge "+t.Engine)
	if err != nil {
		return err
	}
	l := s.line()
	for _, name := range l.names {
		have := l.of[name]
		have.Removed = have.Removed || !have.UserCreated
		l.of[name] = have
	}
	s.purge = &engineclient.Purge{Running: true, State: "in_progress"}
	s.publish()
	e.w.after(e.w.between(time.Second, 20*time.Second), func() {
		if !s.ended && !s.replaced() {
			l.purge()
			s.purge = &engineclient.Purge{Percent: 100, State: "complete"}
			s.publish()
		}
	})
	return nil
}

// OptionsSet implements engineclient.Client.
func (e *engines) OptionsSet(_ context.Context, t engineclient.Target, o engineclient.Options) error {
	s, err := e.changing(t, "options of "+t.Engine)
	if err != nil {
		return err
	}
	if o.RebuildConcurrency != nil {
		s.options.RebuildConcurrency, s.options.RebuildBandwidth = o.RebuildConcurrency, o.RebuildBandwidth
	} else {
		s.options.SnapshotMaxCount, s.options.SnapshotMaxSizeBytes = o.SnapshotMaxCount, o.SnapshotMaxSizeBytes
	}
	s.publish()
	return nil
}

// SnapshotClone implements engineclient.Client: the replicas hold a part of the snapshot until they
// are made whole in one step (docs/design/clone.md).
func (e *engines) SnapshotClone(_ context.Context, t, source engineclient.Target, snapshot string) error {
	s, err := e.changing(t, "clone into "+t.Engine)
	if err != nil {
		return err
	}
	from, err := e.at(source)
	if err != nil {
		return err
	}
	have, ok := from.line().of[snapshot]
	switch {
	case !ok:
		return fmt.Errorf("%w: %s", engineclient.ErrNotFound, snapshot)
	case have.Removed:
		return fmt.Errorf("%w: %s is removed", engineclient.ErrPrecondition, snapshot)
	case s.source() == "":
		return fmt.Errorf("%w: without a replica", engineclient.ErrUnavailable)
	case slices.Contains(s.p.args, "--frontend"):
		e.w.failf("a volume with a frontend is to be filled")
	}
	for _, dir := range s.has.members {
		d := e.w.copies[dir]
		if d.whole != "" || d.part != "" && d.part != snapshot {
			return fmt.Errorf("%w: it holds %s%s", engineclient.ErrPrecondition, d.whole, d.part)
		}
	}
	for _, dir := range s.has.members {
		e.w.copies[dir].part = snapshot
	}
	s.clone = engineclient.Clone{Running: true, State: "in_progress", Percent: 10, Snapshot: snapshot}
	s.from = source.Volume
	s.publish()
	if !e.w.held {
		e.w.after(e.w.between(5*time.Second, 40*time.Second), s.copied)
	}
	return nil
}

// copied ends a copy that is under way: well if a replica of the source can be read.
func (s *serving) copied() {
	if s.ended || !s.clone.Running || s.replaced() {
		return
	}
	alive, _ := s.w.running()
	s.clone.Running = false
	if slices.ContainsFunc(alive, func(p *proc) bool {
		return isReplica(p) && volumeOf(p.name) == s.from && p.pod.host.reachable()
	}) {
		for _, dir := range s.has.members {
			s.w.copies[dir].part, s.w.copies[dir].whole = "", s.clone.Snapshot
		}
		s.clone.State, s.clone.Percent = "complete", 100
	} else {
		s.clone.State, s.clone.Error = "error", "no replica of volume "+s.from+" can be read"
	}
	s.publish()
}

// findClone is what an engine knows of a clone when it starts. One that holds a part only must not
// be given to a user.
func (s *serving) findClone(fresh []string) {
	switch d := s.w.copies[fresh[0]]; {
	case d.part != "":
		s.clone = engineclient.Clone{State: "error", Error: "interrupted", Snapshot: d.part, Interrupted: true}
	case d.whole != "":
		s.clone = engineclient.Clone{State: "complete", Percent: 100, Snapshot: d.whole}
	}
}

// cloneWhole fails when somebody is given a volume that is not whole, when one is called whole that
// is not, and when a volume has more than one replica before that.
func (w *world) cloneWhole(servings []*serving) {
	for _, v := range all[*v1beta2.Volume](w) {
		if v.Spec.DataSource == "" || v.DeletionTimestamp != nil {
			continue
		}
		for _, s := range servings {
			if s.p.volumeUID != string(v.UID) {
				continue
			}
			for _, dir := range s.has.members {
				whole := w.copies[dir].whole != "" && w.copies[dir].whole == v.Status.CloneStatus.Snapshot
				if slices.Contains(s.p.args, "--frontend") && !whole {
					w.failf("a user was given %s, which is not whole", dir)
				}
				if !clone.Copying(v) && !whole {
					w.failf("the clone is %s, but %s is not whole", v.Status.CloneStatus.State, dir)
				}
			}
		}
		if n := len(w.replicasOf(v.Name)); clone.Copying(v) && n > 1 {
			w.failf("%d replicas before there is anything in the first one", n)
		}
	}
}
