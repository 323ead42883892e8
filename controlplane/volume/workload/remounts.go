package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

const (
	// remountDelay is how long a recovery is left alone, so that all who wait for it have seen it.
	remountDelay = 5 * time.Second
	// remountGrace is the grace period of a Pod that has to mount again, in seconds.
	remountGrace = 30
)

// remounts deletes Pods that still have a volume mounted which was lost under them.
type remounts struct {
	namespace string
	client    client.Client
	live      client.Reader

	// requested is when this process has first seen a recovery.
	requested *firstseen.Stamps
	now       func() time.Time

	mu sync.Mutex
	// concerned are the Pods that were there when this process first saw the recovery: whoever comes
	// later mounts what is there now.
	concerned map[string]recovery
	// done is the recovery after which no Pod was left to delete, by volume. It is not stored: a
	// manager that takes over looks once.
	done map[string]string
}

// recovery is one of a volume, with the UIDs of the Pods that it concerns. Witnessed: this process
// has seen it begin.
type recovery struct {
	mark      string
	witnessed bool
	pods      map[types.UID]bool
}

func (r *remounts) controller() loop.Controller[*v1beta2.Volume, remountSeen] {
	return loop.Controller[*v1beta2.Volume, remountSeen]{
		Name:   naming.EventSource("kubernetes-pod-remount"),
		Source: naming.EventSource("kubernetes-pod"), // clients know one controller for all that concerns Pods
		New:    func() *v1beta2.Volume { return &v1beta2.Volume{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decideRemount,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.done, key.Name)
			delete(r.concerned, key.Name)
			r.requested.At(r.now(), key.Name, "")
		},
	}
}

// remountSeen is what decide looks at besides the volume.
type remountSeen struct {
	// Enabled is the setting; Exempt are controllers, as apiVersion/Kind, whose Pods stay.
	Enabled bool
	Exempt  []string
	// Done: for this recovery no Pod is left. Pods are those that use the volume, only set if not.
	Done bool
	Pods []*corev1.Pod
	// RequestedAt is when this process has first seen the recovery, Recovery what it knows of it.
	RequestedAt time.Time
	Recovery    recovery
}

// settleOrder notes that no Pod is left.
type settleOrder struct{}

func (r *remounts) carry(ctx context.Context, v *v1beta2.Volume, _ remountSeen, order any) error {
	if o, ok := order.(deletion); ok {
		return o.carry(ctx, r.client)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[v.Name] = v.Status.RemountRequestedAt
	return nil
}

func (r *remounts) gather(ctx context.Context, v *v1beta2.Volume) (remountSeen, error) {
	var g remountSeen
	mark := v.Status.RemountRequestedAt
	g.RequestedAt = r.requested.At(r.now(), v.Name, mark)
	r.mu.Lock()
	g.Done = mark == "" || r.done[v.Name] == mark
	before, known := r.concerned[v.Name]
	fresh := known && before.mark != mark
	if !known || fresh {
		r.concerned[v.Name] = recovery{mark: mark}
	}
	r.mu.Unlock()
	if g.Done || v.DeletionTimestamp != nil || v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
		return g, nil
	}
	values, err := stored.Read(ctx, r.client, r.namespace)
	if err != nil {
		return g, err
	}
	g.Enabled = values.Bool(setting.AutoDeletePodWhenVolumeDetachedUnexpectedly)
	if !g.Enabled {
		return g, nil
	}
	exempt := values.String(setting.BlacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly)
	for _, kind := range strings.Split(exempt, ";") {
		g.Exempt = append(g.Exempt, strings.TrimSpace(kind))
	}
	bound, err := claims(ctx, r.live, v.Name)
	if err != nil {
		return g, err
	}
	for c := range bound {
		pods, err := podsWith(ctx, r.live, bound, client.InNamespace(c.Namespace))
		if err != nil {
			return g, err
		}
		g.Pods = append(g.Pods, pods...)
	}
	g.Recovery = r.concern(v.Name, g.Pods, fresh)
	return g, nil
}

// concern returns the recovery of a volume, and takes down the Pods that it concerns the first time
// that they are known.
func (r *remounts) concern(volume string, pods []*corev1.Pod, fresh bool) recovery {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.concerned[volume]
	if have.pods == nil {
		have.witnessed, have.pods = fresh, map[types.UID]bool{}
		for _, p := range pods {
			if p.Status.StartTime != nil { // else it has mounted nothing yet
				have.pods[p.UID] = true
			}
		}
		r.concerned[volume] = have
	}
	return have
}

// before says whether a Pod was there when its volume was lost. Where this process has not seen
// that happen, two clocks have to say it.
func (c recovery) before(p *corev1.Pod, mark time.Time) bool {
	return c.pods[p.UID] && (c.witnessed || p.Status.StartTime.Time.Before(mark))
}

func decideRemount(now time.Time, v *v1beta2.Volume, g remountSeen) loop.Decision {
	if g.Done || !g.Enabled || v.DeletionTimestamp != nil || v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
		return loop.Decision{}
	}
	mark, err := time.Parse(time.RFC3339, v.Status.RemountRequestedAt)
	if err != nil {
		return loop.Decision{} // not one of ours
	}
	if wait := g.RequestedAt.Add(remountDelay).Sub(now); wait > 0 {
		return loop.Decision{After: wait}
	}
	for _, p := range g.Pods {
		c := metav1.GetControllerOf(p)
		if p.DeletionTimestamp != nil || !g.Recovery.before(p, mark) ||
			p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
			c == nil || slices.Contains(g.Exempt, c.APIVersion+"/"+c.Kind) {
			continue
		}
		grace := int64(remountGrace)
		return loop.Decision{After: time.Second, FailureReason: naming.EventRemount,
			Do: loop.Call{What: fmt.Sprintf("delete Pod %s/%s", p.Namespace, p.Name), Order: deletion{p, &grace}},
			Events: []loop.Event{{Warning: true, Reason: naming.EventRemount, Message: fmt.Sprintf(
				"Deleted Pod %s/%s of %s %s, which was there when volume %s was lost, so that it mounts the volume again",
				p.Namespace, p.Name, c.Kind, c.Name, v.Name)}}}
	}
	return loop.Decision{Do: loop.Call{What: "note that no Pod has to mount again",
		Order: settleOrder{}}}
}
