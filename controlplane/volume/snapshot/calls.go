package snapshot

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
)

// Engines is what is asked of engines about snapshots.
type Engines interface {
	// Get returns the present state.
	Get(ctx context.Context, t engineclient.Target) (engineclient.State, error)
	// SnapshotCreate takes a snapshot and returns its name.
	SnapshotCreate(ctx context.Context, t engineclient.Target, s engineclient.SnapshotRequest) (string, error)
	// SnapshotRemove marks a snapshot as removed.
	SnapshotRemove(ctx context.Context, t engineclient.Target, name string) error
	// SnapshotPurge begins to give the space of removed snapshots back.
	SnapshotPurge(ctx context.Context, t engineclient.Target, skipIfInProgress bool) error
	// SnapshotRevert makes the content what it was at a snapshot; the frontend must be down.
	SnapshotRevert(ctx context.Context, t engineclient.Target, name string) error
	// FilesystemTrim has the mounted file system give back what it does not use.
	FilesystemTrim(ctx context.Context, t engineclient.Target) (bytes int64, err error)
}

// Calls has engines that are given as objects work on snapshots. Errors are those of package
// engineclient; an engine that does not run is engineclient.ErrUnavailable.
type Calls struct {
	Engines
	// Events tells of orders that fail on the Engine objects; nil tells nobody.
	Events record.EventRecorder
}

// told tells of an order that has failed.
func (c Calls) told(e *v1beta2.Engine, reason string, err error) error {
	if err != nil && c.Events != nil && e != nil && !errors.Is(err, context.Canceled) {
		c.Events.Event(e, corev1.EventTypeWarning, reason, err.Error())
	}
	return err
}

func (c Calls) target(e *v1beta2.Engine) (engineclient.Target, bool) {
	if e == nil {
		return engineclient.Target{}, false
	}
	return engine.Target(e)
}

func (c Calls) do(e *v1beta2.Engine, call func(t engineclient.Target) error) error {
	t, ok := c.target(e)
	if !ok {
		return fmt.Errorf("%w: the engine is not running", engineclient.ErrUnavailable)
	}
	return call(t)
}

// List returns the snapshots that the engine has now, the head included.
func (c Calls) List(ctx context.Context, e *v1beta2.Engine) (out map[string]v1beta2.SnapshotInfo, err error) {
	err = c.do(e, func(t engineclient.Target) error {
		s, err := c.Get(ctx, t)
		out = engine.Snapshots(s)
		return err
	})
	return out, err
}

// Take takes a snapshot for a user. If the engine has one of that name already nothing is changed:
// an order whose answer was lost is given again. freeze: a mounted file system is frozen meanwhile.
func (c Calls) Take(ctx context.Context, e *v1beta2.Engine, name string, labels map[string]string, freeze bool) error {
	return c.do(e, func(t engineclient.Target) error {
		_, err := c.SnapshotCreate(ctx, t, engineclient.SnapshotRequest{Name: name, Labels: labels, UserCreated: true,
			Freeze: freeze})
		if err == nil {
			return nil
		}
		if s, unknown := c.Get(ctx, t); unknown == nil && s.Snapshots[name].Name == name {
			return nil
		}
		return err
	})
}

// Remove marks a snapshot as removed.
func (c Calls) Remove(ctx context.Context, e *v1beta2.Engine, name string) error {
	return c.do(e, func(t engineclient.Target) error { return c.SnapshotRemove(ctx, t, name) })
}

// Purge begins a purge; one under way is as good.
func (c Calls) Purge(ctx context.Context, e *v1beta2.Engine) error {
	return c.told(e, naming.EventFailedStartingSnapshotPurge,
		c.do(e, func(t engineclient.Target) error { return c.SnapshotPurge(ctx, t, true) }))
}

// Revert makes the content what it was at a snapshot.
func (c Calls) Revert(ctx context.Context, e *v1beta2.Engine, name string) error {
	return c.do(e, func(t engineclient.Target) error { return c.SnapshotRevert(ctx, t, name) })
}

// Trim has the file system that is mounted from the volume discard what it does not use.
func (c Calls) Trim(ctx context.Context, e *v1beta2.Engine) (bytes int64, err error) {
	err = c.do(e, func(t engineclient.Target) (err error) {
		bytes, err = c.FilesystemTrim(ctx, t)
		return err
	})
	return bytes, c.told(e, naming.EventFailedFilesystemTrim, err)
}
