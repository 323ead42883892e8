package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// testNow is an hour after the Pods of world have started.
var testNow = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// world is a cluster in which Pod set-0 of a StatefulSet, Pod dep-x of a Deployment and Pod alone
// of nobody, all on node n1, use the claims data and scratch of namespace apps, which are bound to
// volumes v and w.
type world struct {
	t      *testing.T
	client client.Client
	r      *Reconciler
	node   *v1beta2.Node
	volume *v1beta2.Volume
}

func newWorld(t *testing.T, settings map[string]string, edit func(o client.Object)) *world {
	t.Helper()
	w := &world{t: t, node: &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n1"}},
		volume: &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}}
	w.node.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
	w.volume.Status.Robustness = v1beta2.VolumeRobustnessDegraded
	w.volume.Status.RemountRequestedAt = testNow.Add(-time.Minute).Format(time.RFC3339)
	objects := []client.Object{persistent("pv-v", "v", "data"), persistent("pv-w", "w", "scratch"),
		persistent("pv-other", "x", "other"),
		pod("set-0", "StatefulSet", "data"), pod("dep-x", "ReplicaSet", "scratch"), pod("alone", "", "data"),
		pod("stranger", "StatefulSet", "other"), attachment("a-v", "pv-v"), attachment("a-w", "pv-w")}
	objects[2].(*corev1.PersistentVolume).Spec.CSI.Driver = "other.example"
	for name, value := range settings {
		objects = append(objects, &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Value: value})
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	edit(w.node)
	edit(w.volume)
	for _, o := range objects {
		edit(o)
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).Build()
	w.r = New("ns").WithClient(w.client, w.client)
	w.r.nodes.now = func() time.Time { return testNow }
	w.r.remounts.now = func() time.Time { // one clock, and the recovery is seen when it is asked for
		at, _ := time.Parse(time.RFC3339, w.volume.Status.RemountRequestedAt)
		return at
	}
	return w
}

func persistent(name, volume, claim string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: volume}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "apps", Name: claim}
	return pv
}

func pod(name, owner, claim string) *corev1.Pod {
	started := metav1.NewTime(testNow.Add(-time.Hour))
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, UID: types.UID(name)},
		Status: corev1.PodStatus{StartTime: &started, Phase: corev1.PodRunning}}
	p.Spec.NodeName = "n1"
	p.Spec.Volumes = []corev1.Volume{{Name: "vol", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	if owner != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "of-" + name,
			Controller: &yes}}
	}
	return p
}

func attachment(name, pv string) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec.Attacher, a.Spec.NodeName, a.Spec.Source.PersistentVolumeName = "driver.longhorn.io", "n1", &pv
	return a
}

// brief tells a decision.
func brief(d loop.Decision) string {
	var parts []string
	if d.Do != nil {
		parts = append(parts, d.Do.String())
	}
	if d.After != 0 {
		parts = append(parts, "after "+d.After.String())
	}
	return strings.Join(parts, ", ")
}

// steps decides and carries out until nothing more is changed, and tells what was done; after is
// told of each change.
func (w *world) steps(decide func() loop.Decision, after func(what string)) (done []string) {
	t := w.t
	t.Helper()
	for range 20 {
		d := decide()
		call, ok := d.Do.(loop.Call)
		if !ok {
			return done
		}
		if err := w.r.remounts.carry(t.Context(), w.volume, remountSeen{}, call.Order); err != nil {
			t.Fatalf("%s: %v", call.What, err)
		}
		after(call.What)
		done = append(done, call.What)
	}
	t.Fatalf("it does not settle: %v", done)
	return nil
}

func (w *world) ofNode() loop.Decision {
	w.t.Helper()
	g, err := w.r.nodes.gather(context.Background(), w.node)
	if err != nil {
		w.t.Fatal(err)
	}
	return decideNode(testNow, w.node, g)
}

func (w *world) ofVolume() loop.Decision {
	w.t.Helper()
	g, err := w.r.remounts.gather(context.Background(), w.volume)
	if err != nil {
		w.t.Fatal(err)
	}
	return decideRemount(testNow, w.volume, g)
}

func (w *world) pods() (names []string) {
	w.t.Helper()
	var list corev1.PodList
	if err := w.client.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil || len(list.Items[i].Finalizers) == 0 {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestPodsOfALostNode is the first table of docs/design/workload.md. The Pods are being deleted,
// and end when told to do so at once.
func TestPodsOfALostNode(t *testing.T) {
	const set, dep = "delete Pod apps/set-0 by force", "delete Pod apps/dep-x by force"
	const ofV, ofW = "delete VolumeAttachment a-v", "delete VolumeAttachment a-w"
	ended := func(o client.Object) {
		if p, ok := o.(*corev1.Pod); ok {
			at := metav1.NewTime(testNow.Add(-time.Second))
			p.DeletionTimestamp, p.Finalizers = &at, []string{"test/kubelet"}
		}
	}
	for _, tt := range []struct {
		name, policy string
		edit         func(o client.Object)
		want         []string
	}{
		{"StatefulSets", "delete-statefulset-pod", ended, []string{set}},
		{"Deployments", "delete-deployment-pod", ended, []string{dep, ofW}},
		{"both", "delete-both-statefulset-and-deployment-pod", ended, []string{dep, set, ofW}},
		{"nobody else uses it", "delete-both-statefulset-and-deployment-pod", func(o client.Object) {
			ended(o)
			if p, ok := o.(*corev1.Pod); ok && p.Name == "alone" {
				p.Spec.NodeName = "n2"
			}
		}, []string{dep, set, ofV, ofW}},
		{"nothing", "do-nothing", ended, nil},
		{"the node is not down", "delete-both-statefulset-and-deployment-pod", func(o client.Object) {
			ended(o)
			if n, ok := o.(*v1beta2.Node); ok {
				n.Status.Conditions[0].Reason = v1beta2.NodeReasonManagerPodDown
			}
		}, nil},
		{"not to be deleted", "delete-both-statefulset-and-deployment-pod", func(client.Object) {}, nil},
		{"their time is not over", "delete-both-statefulset-and-deployment-pod", func(o client.Object) {
			ended(o)
			if p, ok := o.(*corev1.Pod); ok {
				grace := int64(1)
				p.DeletionGracePeriodSeconds = &grace // whenever the API server says that it began
			}
		}, nil},
		{"on another node", "delete-both-statefulset-and-deployment-pod", func(o client.Object) {
			ended(o)
			switch o := o.(type) {
			case *corev1.Pod:
				o.Spec.NodeName = "n2"
			case *storagev1.VolumeAttachment:
				o.Spec.NodeName = "n2"
			}
		}, nil},
		{"an attachment of another driver", "delete-statefulset-pod", func(o client.Object) {
			ended(o)
			switch o := o.(type) {
			case *corev1.Pod:
				o.Spec.NodeName = "n2"
			case *storagev1.VolumeAttachment:
				o.Spec.Attacher = "other.example"
			}
		}, nil},
		{"a claim that Kubernetes made for the Pod", "delete-statefulset-pod", func(o client.Object) {
			ended(o)
			switch o := o.(type) {
			case *corev1.Pod:
				if o.Name == "set-0" {
					o.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{
						Ephemeral: &corev1.EphemeralVolumeSource{}}}}
				}
			case *corev1.PersistentVolume:
				if o.Name == "pv-v" {
					o.Spec.ClaimRef.Name = "set-0-tmp"
				}
			}
		}, []string{set, ofV}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"node-down-pod-deletion-policy": tt.policy}, tt.edit)
			if got := w.steps(w.ofNode, w.endPod); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// endPod takes away what keeps a Pod that was deleted by force: the fake API server knows no grace
// period.
func (w *world) endPod(what string) {
	w.t.Helper()
	name := ""
	if _, err := fmt.Sscanf(what, "delete Pod apps/%s by force", &name); err != nil {
		return // something else was deleted
	}
	var p corev1.Pod
	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: "apps", Name: name}, &p); err != nil {
		w.t.Fatal(err)
	}
	p.Finalizers = nil
	if err := w.client.Update(context.Background(), &p); err != nil {
		w.t.Fatal(err)
	}
}

// nothing is for changes after which nothing else happens.
func nothing(string) {}

// A node that is down is looked at again, when the grace period of a Pod that was evicted is over,
// and costs nothing while the policy leaves its Pods alone.
func TestLostNodeIsLookedAtAgain(t *testing.T) {
	w := newWorld(t, map[string]string{"node-down-pod-deletion-policy": "delete-statefulset-pod"}, func(client.Object) {})
	if got := brief(w.ofNode()); got != "after 30s" {
		t.Errorf("%q", got)
	}
	w = newWorld(t, map[string]string{"node-down-pod-deletion-policy": "delete-statefulset-pod"}, func(o client.Object) {
		if p, ok := o.(*corev1.Pod); ok {
			at, grace := metav1.NewTime(testNow.Add(-time.Hour)), int64(7)
			p.DeletionTimestamp, p.Finalizers = &at, []string{"test/kubelet"}
			p.DeletionGracePeriodSeconds = &grace
		}
	})
	if got := brief(w.ofNode()); got != "after 7.001s" {
		t.Errorf("%q where Pods were evicted", got)
	}
	for _, tt := range []struct {
		name string
		pod  corev1.Pod
		want []string
	}{
		{"is deleted", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: testNow}},
			Spec: corev1.PodSpec{NodeName: "n1"}}, []string{"n1"}},
		{"is nowhere", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: testNow}}}, nil},
		{"stays", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}, nil},
	} {
		if got := nodeOf(&tt.pod); !slices.Equal(got, tt.want) || evicted(&corev1.Pod{}, &tt.pod) == (tt.name == "stays") {
			t.Errorf("a Pod that %s wakes %v", tt.name, got)
		}
	}
	w = newWorld(t, nil, func(client.Object) {})
	w.r.nodes.live = nil // nothing is read
	if got := brief(w.ofNode()); got != "" {
		t.Errorf("%q with the default policy", got)
	}
}

// TestPodsMountAgain is the second table of docs/design/workload.md.
func TestPodsMountAgain(t *testing.T) {
	const set = "delete Pod apps/set-0"
	volume := func(edit func(v *v1beta2.Volume)) func(client.Object) {
		return func(o client.Object) {
			if v, ok := o.(*v1beta2.Volume); ok {
				edit(v)
			}
		}
	}
	ofSet := func(edit func(p *corev1.Pod)) func(client.Object) {
		return func(o client.Object) {
			if p, ok := o.(*corev1.Pod); ok && p.Name == "set-0" {
				edit(p)
			}
		}
	}
	const settled = "note that no Pod has to mount again"
	for _, tt := range []struct {
		name     string
		settings map[string]string
		edit     func(o client.Object)
		want     []string
	}{
		{"the Pods of the volume that have a controller", nil, func(client.Object) {}, []string{set, settled}},
		{"nobody asks", nil, volume(func(v *v1beta2.Volume) { v.Status.RemountRequestedAt = "" }), nil},
		{"a moment ago", nil, volume(func(v *v1beta2.Volume) {
			v.Status.RemountRequestedAt = testNow.Add(-time.Second).Format(time.RFC3339)
		}), nil},
		{"faulted again", nil, volume(func(v *v1beta2.Volume) {
			v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
		}), nil},
		{"started since", nil, ofSet(func(p *corev1.Pod) {
			at := metav1.NewTime(testNow.Add(-30 * time.Second))
			p.Status.StartTime = &at
		}), []string{settled}},
		{"not started", nil, ofSet(func(p *corev1.Pod) { p.Status.StartTime = nil }), []string{settled}},
		{"ended", nil, ofSet(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), []string{settled}},
		{"switched off", map[string]string{"auto-delete-pod-when-volume-detached-unexpectedly": "false"},
			func(client.Object) {}, nil},
		{"exempt", map[string]string{
			"blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly": "apps/v1/ReplicaSet; apps/v1/StatefulSet"},
			func(client.Object) {}, []string{settled}},
		{"others are exempt", map[string]string{
			"blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly": "apps/v1/ReplicaSet"},
			func(client.Object) {}, []string{set, settled}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.settings, tt.edit)
			if got := w.steps(w.ofVolume, nothing); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			left := []string{"alone", "dep-x", "set-0", "stranger"}
			if slices.Contains(tt.want, set) {
				left = []string{"alone", "dep-x", "stranger"}
			}
			if got := w.pods(); !slices.Equal(got, left) {
				t.Errorf("left are %v, want %v", got, left)
			}
		})
	}
}

// The Pods of one recovery are looked for once.
func TestRecoveryIsOverOnce(t *testing.T) {
	w := newWorld(t, nil, func(client.Object) {})
	w.steps(w.ofVolume, nothing)
	live := w.r.remounts.live
	w.r.remounts.live = nil // nothing is read
	if got := brief(w.ofVolume()); got != "" {
		t.Errorf("%q", got)
	}
	w.r.remounts.live = live
	again := pod("set-1", "StatefulSet", "data")
	if err := w.client.Create(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	w.volume.Status.RemountRequestedAt = testNow.Add(-10 * time.Second).Format(time.RFC3339)
	if got := w.steps(w.ofVolume, nothing); len(got) != 2 || got[0] != "delete Pod apps/set-1" {
		t.Errorf("after the next recovery %q", got)
	}
}

// TestRemountIsTold holds type, reason and source component of the event on the Volume.
func TestRemountIsTold(t *testing.T) {
	w := newWorld(t, nil, func(client.Object) {})
	c := w.r.remounts.controller()
	if c.Source != "longhorn-kubernetes-pod-controller" {
		t.Errorf("events come from %q", c.Source)
	}
	g, err := c.Gather(t.Context(), w.volume)
	if err != nil {
		t.Fatal(err)
	}
	d := c.Decide(testNow, w.volume.DeepCopy(), g)
	if len(d.Events) != 1 || !d.Events[0].Warning || d.Events[0].Reason != "Remount" || d.Events[0].On != nil {
		t.Errorf("tells %+v", d.Events)
	}
}

// TestPodsMountAgainOnce: a Pod that has come since a recovery was asked for is left alone, by
// whatever clock its kubelet says when it has started; the one that was there is not.
func TestPodsMountAgainOnce(t *testing.T) {
	enabled := map[string]string{"auto-delete-pod-when-volume-detached-unexpectedly": "true"}
	for name, kubelet := range map[string]time.Duration{"behind": -3 * time.Hour, "right": 0, "ahead": 3 * time.Hour} {
		w := newWorld(t, enabled, func(o client.Object) {
			if p, ok := o.(*corev1.Pod); ok {
				started := metav1.NewTime(p.Status.StartTime.Add(kubelet))
				p.Status.StartTime = &started
			}
		})
		mark := w.volume.Status.RemountRequestedAt
		w.volume.Status.RemountRequestedAt = ""
		w.ofVolume() // this process has seen the volume before
		w.volume.Status.RemountRequestedAt = mark
		const set = "delete Pod apps/set-0"
		if got := brief(w.ofVolume()); !strings.HasPrefix(got, set) {
			t.Errorf("kubelet %s: %q", name, got)
		}
		var old corev1.Pod
		key := client.ObjectKey{Namespace: "apps", Name: "set-0"}
		if err := w.client.Get(context.Background(), key, &old); err != nil {
			t.Fatal(err)
		}
		next := pod("set-0", "StatefulSet", "data")
		started := metav1.NewTime(testNow.Add(kubelet))
		next.UID, next.Status.StartTime = "set-0-again", &started
		if err := w.client.Delete(context.Background(), &old); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Create(context.Background(), next); err != nil {
			t.Fatal(err)
		}
		if got := w.steps(w.ofVolume, nothing); slices.Contains(got, set) {
			t.Errorf("kubelet %s: the next Pod is deleted too: %q", name, got)
		}
	}
}
