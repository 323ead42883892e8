package volume

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// maxKeepers bounds how many of those who keep a volume on its node are named.
const maxKeepers = 10

// podsPerPage bounds the Pods that are read at once.
const podsPerPage = 500

// noteDeviceKeepers writes down who keeps a volume on a node, and tells it on the volume and on the
// Pods. The same again changes nothing.
func (a *API) noteDeviceKeepers(q *serve.Request) (any, error) {
	var in resource.DeviceKeepersInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	in.Keepers = in.Keepers[:min(len(in.Keepers), maxKeepers)]
	pods, err := podsOf(q.Context(), q.Objects, in.Keepers)
	if err != nil {
		return nil, err
	}
	v, changed, err := a.noteKeepers(q.Context(), q.Objects, q.Params["name"], in, pods)
	if err != nil || !changed {
		return nil, err
	}
	c := lh.FindCondition(v.Status.Conditions, lh.VolumeConditionDeviceKept)
	if c.Status != lh.ConditionTrue {
		return nil, nil
	}
	about := corev1.ObjectReference{APIVersion: lh.GroupVersion.String(), Kind: "Volume", Namespace: v.Namespace,
		Name: v.Name, UID: v.UID}
	if err := a.warn(q.Context(), q.Objects, about, "Volume "+v.Name+" cannot leave its node: "+c.Message); err != nil {
		return nil, err
	}
	for _, k := range in.Keepers {
		p, found := pods[types.UID(k.PodUID)]
		if !found {
			continue
		}
		if err := a.warn(q.Context(), q.Objects, p, fmt.Sprintf("Volume %s cannot leave node %s: process %s (%d) of this Pod "+
			"still has its file system mounted at %s; %s", v.Name, in.NodeID, k.Program, k.PID, k.Path, endKeeper)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// endKeeper is what helps.
const endKeeper = "end it, or start it anew with mountPropagation HostToContainer where it mounts a directory of the host"

// noteKeepers writes the condition. Who is found gone, of a volume that never had any, is no news.
func (a *API) noteKeepers(ctx context.Context, o *serve.Objects, volume string, in resource.DeviceKeepersInput,
	pods map[types.UID]corev1.ObjectReference) (v *lh.Volume, changed bool, err error) {
	c := lh.Condition{Type: lh.VolumeConditionDeviceKept, Status: lh.ConditionFalse}
	if len(in.Keepers) > 0 {
		c.Status, c.Message = lh.ConditionTrue, keptBy(in, pods)
	}
	err = conflict.Retry(func() error {
		v = &lh.Volume{}
		if err := o.Get(ctx, volume, v); err != nil {
			return fmt.Errorf("failed to get volume %s: %w", volume, err)
		}
		have := lh.FindCondition(v.Status.Conditions, c.Type)
		stale := c.Status == lh.ConditionTrue && v.Status.CurrentNodeID != in.NodeID
		none := c.Status == lh.ConditionFalse && have.Status != lh.ConditionTrue
		if changed = !stale && !none && (have.Status != c.Status || have.Message != c.Message); !changed {
			return nil
		}
		v.Status.Conditions, _ = lh.SetCondition(v.Status.Conditions, c, a.Now())
		return o.Client.Status().Update(ctx, v)
	})
	return v, changed, err
}

// keptBy is the condition's message.
func keptBy(in resource.DeviceKeepersInput, pods map[types.UID]corev1.ObjectReference) string {
	var all []string
	for _, k := range in.Keepers {
		whose := ""
		if p, found := pods[types.UID(k.PodUID)]; found {
			whose = " of Pod " + p.Namespace + "/" + p.Name
		}
		all = append(all, fmt.Sprintf("process %s (%d)%s at %s", k.Program, k.PID, whose, k.Path))
	}
	return "its file system is still mounted on node " + in.NodeID + " by " + strings.Join(all, ", ") + "; " + endKeeper
}

// podsOf finds the Pods of keepers.
func podsOf(ctx context.Context, o *serve.Objects,
	keepers []resource.DeviceKeeper) (map[types.UID]corev1.ObjectReference, error) {
	found := map[types.UID]corev1.ObjectReference{}
	wanted := map[types.UID]bool{}
	for _, k := range keepers {
		if k.PodUID != "" {
			wanted[types.UID(k.PodUID)] = true
		}
	}
	if len(wanted) == 0 {
		return found, nil
	}
	for next := ""; ; {
		var page corev1.PodList
		if err := o.Live.List(ctx, &page, client.Limit(podsPerPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing Pods: %w", err)
		}
		for i := range page.Items {
			if p := &page.Items[i]; wanted[p.UID] {
				found[p.UID] = corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name,
					UID: p.UID}
			}
		}
		if next = page.Continue; next == "" || len(found) == len(wanted) {
			return found, nil
		}
	}
}

// warn records a warning about an object.
func (a *API) warn(ctx context.Context, o *serve.Objects, about corev1.ObjectReference, message string) error {
	now := metav1.NewTime(a.Now())
	return o.Client.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, GenerateName: about.Name + "."},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: naming.EventWaiting, Message: message,
		Source: corev1.EventSource{Component: naming.EventSource("volume")}, Count: 1, FirstTimestamp: now,
		LastTimestamp: now,
	})
}
