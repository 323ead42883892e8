package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting/stored"
)

// handOverAgain is the pause before an order whose outcome is not known is repeated.
const handOverAgain = 2 * time.Second

// handOver is an attempt to replace an engine's process by one of another image.
type handOver struct {
	uid     types.UID // of the Engine object
	attempt int       // spec.upgradeAttempt
	// over: the call has ended, with err.
	over bool
	err  error
}

// handOvers are the attempts under way, one per engine. A call lasts until the volume has passed
// over or stays, half a minute at most; no worker of the controller waits for it. They live in
// memory only: the next leader sends the same order again, which tells how it ended.
type handOvers struct {
	wake func(ctx context.Context, engine string)
	// ctx ends with the leader.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	latest  map[string]handOver
	running sync.WaitGroup
}

func newHandOvers(wake func(ctx context.Context, engine string)) *handOvers {
	h := &handOvers{wake: wake, latest: map[string]handOver{}}
	h.ctx, h.cancel = context.WithCancel(context.Background()) // Start ends it
	return h
}

// Start waits for the end of ctx, and then for the attempts under way, whose callers go away: the
// instance managers carry on. It makes the attempts a Runnable.
func (h *handOvers) Start(ctx context.Context) error {
	<-ctx.Done()
	h.cancel()
	h.running.Wait()
	return nil
}

// of returns the attempt that the Engine object asks for, or one under way; false if there is none.
func (h *handOvers) of(e *v1beta2.Engine) (handOver, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	have, ok := h.latest[e.Name]
	return have, ok && (!have.over || have.uid == e.UID && have.attempt == e.Spec.UpgradeAttempt)
}

// begin makes an attempt, unless one is under way.
func (h *handOvers) begin(e *v1beta2.Engine, call func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if have, ok := h.latest[e.Name]; ok && !have.over {
		return
	}
	mine := handOver{uid: e.UID, attempt: e.Spec.UpgradeAttempt}
	h.latest[e.Name] = mine
	name := e.Name
	h.running.Go(func() {
		mine.err = call(h.ctx) // bounded by the caller of instance managers
		mine.over = true
		if mine.err != nil {
			slog.Info("engine was not handed over", "engine", name, "attempt", mine.attempt, "error", mine.err)
		}
		h.mu.Lock()
		h.latest[name] = mine
		h.mu.Unlock()
		h.wake(h.ctx, name)
	})
}

func (h *handOvers) forget(engine string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.latest, engine)
}

// upgrading says whether an engine is to hand its volume over and has not.
func upgrading(e *v1beta2.Engine) bool {
	return len(e.Spec.UpgradedReplicaAddressMap) > 0 && e.Status.CurrentImage != e.Spec.Image
}

// wantedReplicas are the replicas that the running process should have.
func wantedReplicas(e *v1beta2.Engine) map[string]string {
	if len(e.Spec.UpgradedReplicaAddressMap) > 0 && e.Status.CurrentImage == e.Spec.Image {
		return e.Spec.UpgradedReplicaAddressMap
	}
	return e.Spec.ReplicaAddressMap
}

// upgrade has a running engine hand its volume over to a process of spec.image, once for each
// spec.upgradeAttempt. docs/design/upgrade.md, "Control plane", has the table.
func upgrade(now time.Time, e *v1beta2.Engine, im *v1beta2.InstanceManager, s seen) loop.Decision {
	st := &e.Status
	if st.FailedUpgradeAttempt >= e.Spec.UpgradeAttempt {
		return loop.Decision{} // the volume controller takes the order back
	}
	h, known := s.HandOver, s.HandOverKnown
	switch {
	case known && !h.over:
		return loop.Decision{} // its end wakes us
	case known && h.err == nil:
		return loop.Decision{} // the instance manager's list will show the new process
	case known && !errors.Is(h.err, instance.ErrUnsettled):
		return notHandedOver(now, e, h.err)
	}
	if im.Status.ClosedPod != "" {
		return loop.Decision{} // whoever took over would end with the Pod
	}
	if err := cannotHandOver(im); err != nil {
		return notHandedOver(now, e, err)
	}
	return loop.Decision{
		// Crash window: the order may be carried out and its answer lost; sent again it says that this
		// is done, or waits for what is under way.
		Do:    loop.Call{What: "hand engine " + e.Name + " over to image " + e.Spec.Image, Order: handOrder{im}},
		After: handOverAgain,
	}
}

// handOn begins to replace the engine's process in its instance manager. What the process is
// started with is read here, before the call that goes on by itself.
func (r *Reconciler) handOn(ctx context.Context, im *v1beta2.InstanceManager, e *v1beta2.Engine) error {
	secret, err := r.cfg.Keys.Named(ctx, r.client, e.Spec.VolumeName)
	if err != nil {
		return err
	}
	settings, err := stored.Read(ctx, r.client, r.cfg.Namespace)
	if err != nil {
		return err
	}
	im, next := im.DeepCopy(), successor(e, processIn(im, e, secret, settings))
	r.handOvers.begin(e, func(ctx context.Context) error { return r.processes.Replace(ctx, im, next) })
	return nil
}

// notHandedOver notes why an attempt has failed.
func notHandedOver(now time.Time, e *v1beta2.Engine, why error) loop.Decision {
	st := &e.Status
	st.FailedUpgradeAttempt, st.LastUpgradeError = e.Spec.UpgradeAttempt, why.Error()
	st.LastUpgradeFailedAt = now.UTC().Format(time.RFC3339)
	return loop.Decision{Events: []loop.Event{{Warning: true, Reason: naming.EventUpgrade,
		Message: fmt.Sprintf("Engine %s was not handed over to image %s: %v", e.Name, e.Spec.Image, why)}}}
}

// successor is the process that takes the volume over from the one that serves. Its order is not
// recorded before the instance manager lists it: until then the other is the engine's.
func successor(e *v1beta2.Engine, p instance.Process) instance.Process {
	p.Args = append(p.Args, "--upgrade")
	p.Order = instance.Next(string(e.UID), e.Status.Order)
	return p
}

// imageOf returns the image that a process was started from, empty if nobody can tell.
func imageOf(p *v1beta2.InstanceProcess, images []v1beta2.EngineImage) string {
	if p == nil || p.Spec.Binary == "" {
		return ""
	}
	for i := range images {
		if naming.EngineBinaryInPod(images[i].Spec.Image) == p.Spec.Binary {
			return images[i].Spec.Image
		}
	}
	return ""
}
