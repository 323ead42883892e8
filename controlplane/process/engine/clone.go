package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/replica"
	"ankole.storage/controlplane/volume/clone"
)

const (
	// sourceAgainAfter is when an engine that is to be filled looks again for the engine of its
	// source, whose changes do not wake it.
	sourceAgainAfter = 5 * time.Second
	// refusedFor is how long an engine refuses for its state, or its source's, before that counts as
	// its answer: one that starts serves a moment before it takes orders.
	refusedFor = 20 * time.Second
)

// cloneSeen is what decide looks at for the filling of a volume from another one.
type cloneSeen struct {
	// Snapshot of the source volume that spec.requestedDataSource names; empty if none is wanted.
	Snapshot string
	// Source is the engine of the source volume; zero while none runs. Own: the snapshot is one that
	// is taken for the copy.
	Source engineclient.Target
	Own    bool
	// Refused is why the engine has refused; it is asked once in a run.
	Refused string
}

// gatherClone looks for the source of the volume's content.
func (r *Reconciler) gatherClone(ctx context.Context, e *v1beta2.Engine) (c cloneSeen, err error) {
	volume, snapshot, ok := naming.ParseCloneSource(e.Spec.RequestedDataSource)
	if !ok || snapshot == "" {
		return c, nil
	}
	c.Snapshot, c.Refused = snapshot, r.monitor.notFilled(e.Name, e.Spec.RequestedDataSource)
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, client.InNamespace(e.Namespace), index.OfVolume(volume),
		client.UnsafeDisableDeepCopy); err != nil {
		return c, fmt.Errorf("list engines of volume %s: %w", volume, err)
	}
	for i := range engines.Items {
		source := &engines.Items[i]
		if t, runs := Target(source); runs && source.Spec.Active && source.DeletionTimestamp == nil {
			c.Source, c.Own = t, snapshot == clone.SnapshotName(replica.VolumeUID(source), replica.VolumeUID(e))
		}
	}
	return c, nil
}

// beginClone orders a copy. A snapshot of the copy's own is taken first, again if it is gone: what
// an earlier attempt has copied is compared with it.
//
// Crash window: the answer may be lost; the state of the engine tells, and ordering again changes
// nothing.
func (r *Reconciler) beginClone(ctx context.Context, e *v1beta2.Engine, c cloneSeen) error {
	err := r.engines.SnapshotClone(ctx, target(e), c.Source, c.Snapshot)
	if c.Own && errors.Is(err, engineclient.ErrNotFound) {
		_, err = r.engines.SnapshotCreate(ctx, c.Source, engineclient.SnapshotRequest{Name: c.Snapshot, UserCreated: true,
			Labels: map[string]string{naming.LabelForCloningVolume: e.Spec.VolumeName}})
		if err == nil {
			err = r.engines.SnapshotClone(ctx, target(e), c.Source, c.Snapshot)
		}
	}
	r.monitor.noteClone(e.Name, e.Spec.RequestedDataSource, err)
	return err
}

// fill has the engine fill its volume, once in a run.
func fill(e *v1beta2.Engine, s seen) loop.Decision {
	c := &s.Clone
	have := &s.State.Clone
	begun := have.Snapshot == c.Snapshot && have.State != "" && !have.Interrupted
	switch {
	case c.Snapshot == "" || c.Refused != "" || begun:
		return loop.Decision{}
	case c.Source == engineclient.Target{}:
		return loop.Decision{After: sourceAgainAfter}
	}
	return loop.Decision{Do: loop.Call{What: "clone " + e.Spec.RequestedDataSource + " into engine " + e.Name,
		Order: orderClone}}
}

// cloneStatus is the progress of the copy that is wanted, by replica, each of which says the same;
// nil if none is wanted, or none was begun in this run of the engine.
func cloneStatus(e *v1beta2.Engine, s seen) map[string]v1beta2.SnapshotCloneStatus {
	_, snapshot, _ := naming.ParseCloneSource(e.Spec.RequestedDataSource)
	have := &s.State.Clone
	status := v1beta2.SnapshotCloneStatus{SnapshotName: snapshot}
	switch {
	case snapshot == "":
		return nil
	case have.Snapshot == snapshot && have.State != "" && !have.Interrupted:
		status.Error, status.IsCloning, status.Progress, status.State = have.Error, have.Running, have.Percent, have.State
		if have.From != "" {
			status.FromReplicaAddress = scheme + have.From
		}
	case s.Clone.Refused != "":
		status.State, status.Error = v1beta2.ProcessStateError, s.Clone.Refused
	default:
		return nil
	}
	out := map[string]v1beta2.SnapshotCloneStatus{}
	for _, r := range s.State.Replicas {
		if r.Mode != engineclient.ModeERR {
			out[scheme+r.Address] = status
		}
	}
	return out
}

// refusal is the answer of an engine that is not filled.
type refusal struct {
	source, why string
	since       time.Time
	lasting     bool
}

// noteClone remembers, for as long as the engine's process runs, that it refuses to be filled from
// a source.
func (m *Monitor) noteClone(engine, source string, err error) {
	state := errors.Is(err, engineclient.ErrPrecondition)
	lasting := errors.Is(err, engineclient.ErrInvalid) || errors.Is(err, engineclient.ErrNotFound)
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.watches[engine]
	switch {
	case w == nil:
	case !state && !lasting:
		w.notFilled = refusal{}
	default:
		if w.notFilled.source != source || w.notFilled.since.IsZero() {
			w.notFilled.since = time.Now()
		}
		w.notFilled.source, w.notFilled.why = source, err.Error()
		w.notFilled.lasting = lasting || time.Since(w.notFilled.since) >= refusedFor
	}
}

// notFilled is why the engine refuses to be filled from a source; empty if it does not, or may
// still take the order.
func (m *Monitor) notFilled(engine, source string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.watches[engine]; w != nil && w.notFilled.source == source && w.notFilled.lasting {
		return w.notFilled.why
	}
	return ""
}
