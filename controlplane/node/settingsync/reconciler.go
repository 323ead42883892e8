package settingsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config is what the reconciler is told.
type Config struct {
	Namespace      string
	ServiceAccount string
	// Fixed are the values known from the manager's flags, by setting.
	Fixed map[string]string
}

// Reconciler looks after Setting objects.
type Reconciler struct {
	cfg    Config
	client client.Client
	events record.EventRecorder
	now    func() time.Time

	mu sync.Mutex
	// told is the version of the ConfigMap of which it was told what is ignored.
	told string
	// refused is since when the API server refuses a value of the ConfigMap, by setting and value.
	refused map[[2]string]time.Time
}

// New returns the reconciler; SetupWithManager puts it to work.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, now: time.Now, refused: map[[2]string]time.Time{}}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	//lint:ignore SA1019 clients of the reference read core/v1 events, which only the old recorder writes
	r.events = mgr.GetEventRecorderFor(naming.EventSource("setting"))
	return loop.Setup(mgr, r.cfg.Namespace, loop.Controller[*v1beta2.Setting, seen]{
		Name:   naming.EventSource("setting"),
		New:    func() *v1beta2.Setting { return &v1beta2.Setting{} },
		Gather: r.gather,
		Decide: decide,
		Watches: []loop.Watch{
			loop.Watching(&corev1.ConfigMap{}, func(cm *corev1.ConfigMap) []string {
				if cm.Name != naming.ConfigMapDefaultSetting {
					return nil
				}
				return allSettings()
			}),
			// An instance manager that took a setting over, or whose Pod or node is gone, which then keeps
			// no setting from being applied; or a node whose own CPU request changed.
			loop.WatchingChanges(&v1beta2.InstanceManager{}, loop.Changed(viewOf),
				func(*v1beta2.InstanceManager) []string { return instancemanager.PodSettingNames() }).Within(lookWithin),
			// The Pod of an instance manager may end after the object, which says nothing of it any more.
			loop.WatchingChanges(&corev1.Pod{}, func(_, _ *corev1.Pod) bool { return false }, settingsOf).Within(lookWithin),
		},
	})
}

// lookWithin is how long it may take until an instance manager that has taken a setting over, or is
// gone, is noticed: each look goes through all Pods of instance managers, of which many change when
// a cluster starts.
const lookWithin = time.Second

// settingsOf are the settings that the coming or going of a Pod may concern.
func settingsOf(pod *corev1.Pod) []string {
	if pod.Labels[naming.LabelComponent] != naming.ComponentInstanceManager {
		return nil
	}
	return instancemanager.PodSettingNames()
}

// view is what of an instance manager tells whether its Pod waits for a setting: what it says of
// the settings its Pod was made with, and whether there is a Pod that anybody could ask.
type view struct {
	synced, pod, node v1beta2.Condition
}

func viewOf(im *v1beta2.InstanceManager) view {
	find := func(kind string) v1beta2.Condition { return v1beta2.FindCondition(im.Status.Conditions, kind) }
	return view{find(v1beta2.InstanceManagerConditionSettingSynced), find(v1beta2.InstanceManagerConditionPodReady),
		find(v1beta2.InstanceManagerConditionNodeReady)}
}

func allSettings() []string {
	var names []string
	for _, d := range setting.Definitions() {
		names = append(names, d.Name)
	}
	return names
}

func (r *Reconciler) gather(ctx context.Context, s *v1beta2.Setting) (seen, error) {
	over, err := readOverrides(ctx, r.client, s.Namespace)
	if err != nil {
		return seen{}, err
	}
	var in seen
	r.tell(s.Namespace, over)
	in.Override, in.HasOverride = over.values[s.Name]
	in.OverrideVersion = over.version
	in.Fixed, in.HasFixed = r.cfg.Fixed[s.Name]
	if err := r.tryOverride(ctx, s, &in); err != nil {
		return seen{}, err
	}
	if in.Nodes, err = r.nodesOf(ctx, s); err != nil {
		return seen{}, err
	}
	if instancemanager.InPod(s.Name) {
		in.Waiting, err = r.waiting(ctx, s)
	}
	return in, err
}

// tell says once for each version of the ConfigMap what of it is ignored: of each setting, also of
// one that does not exist, and of the ConfigMap where it cannot be read.
func (r *Reconciler) tell(namespace string, over overrides) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == over.version {
		return
	}
	r.told = over.version
	for _, name := range slices.Sorted(maps.Keys(over.ignored)) {
		on := corev1.ObjectReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "Setting", Namespace: namespace,
			Name: name}
		if name == "" {
			on.APIVersion, on.Kind, on.Name = "v1", "ConfigMap", naming.ConfigMapDefaultSetting
		}
		r.events.Eventf(&on, corev1.EventTypeWarning, naming.EventDefaultIgnored, "ConfigMap %s: %v",
			naming.ConfigMapDefaultSetting, over.ignored[name])
	}
}

// tryOverride asks, where the ConfigMap's value is to be taken over, whether the API server would
// take it.
func (r *Reconciler) tryOverride(ctx context.Context, s *v1beta2.Setting, in *seen) error {
	u := overridden(s, *in)
	if u == nil || u.Value == s.Value {
		return nil
	}
	err := r.client.Update(ctx, u, client.DryRunAll)
	key := [2]string{s.Name, in.Override}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
		delete(r.refused, key)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // the change itself finds out
		}
		return err
	}
	if r.refused[key].IsZero() {
		r.refused[key] = r.now()
	}
	in.Refused, in.RefusedFor = err.Error(), r.now().Sub(r.refused[key])
	return nil
}

// waiting tells whether some instance manager's Pod still has another value of the setting.
func (r *Reconciler) waiting(ctx context.Context, s *v1beta2.Setting) (bool, error) {
	values, err := stored.Read(ctx, r.client, s.Namespace)
	if err != nil {
		return false, err
	}
	values[s.Name] = s.Value
	var pods corev1.PodList
	err = r.client.List(ctx, &pods, client.InNamespace(s.Namespace),
		client.MatchingLabels{naming.LabelComponent: naming.ComponentInstanceManager}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("list Pods of instance managers: %w", err)
	}
	settings := instancemanager.SettingsFrom(values, r.cfg.ServiceAccount)
	for i := range pods.Items {
		pod := &pods.Items[i]
		differs, err := instancemanager.Differs(ctx, r.client, pod, settings, s.Name)
		if err != nil || differs {
			return differs, err
		}
	}
	return false, nil
}
