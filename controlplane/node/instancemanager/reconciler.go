package instancemanager

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config is what the reconciler is told.
type Config struct {
	Namespace string
	// NodeName is the node this manager runs on.
	NodeName string
	// ServiceAccount runs the Pods.
	ServiceAccount string
	// Follower follows the processes in Pods, of which Heard tells.
	Follower Follower
	Heard    *heard.Lists
	// Close asks the instance manager at the address of a Pod for its processes, and to start no
	// other one if none runs; refuses tells whether that is so (Callers.CloseIdle).
	Close func(ctx context.Context, podIP string) (list map[string]*imrpc.ProcessResponse, refuses bool, err error)
	// Proxies holds the connections to the proxies of running instance managers.
	Proxies *engineclient.Proxies
	// Certificates, unless nil, says why the certificates for talking to instance managers cannot
	// be used.
	Certificates func() error
	// CertificatesChanged has a notice when what Certificates says has changed.
	CertificatesChanged <-chan struct{}
	// Plaintext says what managers and a new instance manager have to do without certificates; nil:
	// nothing.
	Plaintext func(context.Context) (Plaintext, error)
	// Budgets releases the disruption budgets of nodes that are drained.
	Budgets *allocator.Budgets
}

// Reconciler looks after InstanceManager objects; see the package comment.
type Reconciler struct {
	cfg    Config
	client client.Client
	live   client.Reader
	starts *starts
	drains *drains
	// closings are the answers of Pods that are about to be removed.
	closings *closings
	// certificates wakes instance managers when certificates become unusable, or usable again.
	certificates chan event.GenericEvent
}

// Follower hears what processes Pods report (package heard).
type Follower interface {
	// Follow makes sure the Pod of an instance manager is being watched.
	Follow(manager string, pod types.UID, ip string)
	// Drop ends that for an instance manager that has no running Pod.
	Drop(manager string)
}

// New returns the reconciler; SetupWithManager puts it to work.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, starts: newStarts(time.Now), closings: newClosings(time.Now), drains: newDrains(),
		certificates: make(chan event.GenericEvent)}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	if err := mgr.Add(ctrlmanager.RunnableFunc(r.watchCertificates)); err != nil {
		return fmt.Errorf("register the look at certificates: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Namespace, r.controller())
}

// controller describes the loop.
func (r *Reconciler) controller() loop.Controller[*v1beta2.InstanceManager, seen] {
	return loop.Controller[*v1beta2.InstanceManager, seen]{
		Name:       naming.EventSource("instance-manager"),
		New:        func() *v1beta2.InstanceManager { return &v1beta2.InstanceManager{} },
		Gather:     r.gather,
		Decide:     decide,
		Carry:      r.carry,
		Reserve:    r.reserve,
		Conditions: conditions,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.cfg.Follower.Drop(key.Name)
			r.cfg.Proxies.Drop(key.Name)
			r.starts.forget(key)
			r.closings.forget(key)
			r.drains.note(key.Name, "")
		},
		Wakeups: append(loop.By(r.cfg.Heard.Managers()), loop.By(r.certificates)...),
		Watches: append(r.drainWatches(),
			loop.Watching(&corev1.Pod{}, loop.ByOwner[*corev1.Pod]("InstanceManager")),
			// A Pod that goes makes room for one of the same node.
			loop.WatchingChanges(&corev1.Pod{}, func(*corev1.Pod, *corev1.Pod) bool { return false }, r.onPodGone),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(nodeView), r.onNode),
			loop.WatchingChanges(&corev1.Node{}, condition.KubeNodeChanged,
				func(n *corev1.Node) []string { return r.managersOn(n.Name) }),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
			loop.WatchingChanges(&v1beta2.BackupTarget{}, loop.Changed(roleOf), r.onTarget),
			// An object that goes may leave its process behind; what else happens to it is no news.
			loop.WatchingChanges(&v1beta2.Engine{}, func(*v1beta2.Engine, *v1beta2.Engine) bool { return false },
				func(e *v1beta2.Engine) []string { return heldBy(&e.Status.InstanceStatus) }),
			loop.WatchingChanges(&v1beta2.Replica{}, func(*v1beta2.Replica, *v1beta2.Replica) bool { return false },
				func(r *v1beta2.Replica) []string { return heldBy(&r.Status.InstanceStatus) }),
		),
	}
}

// watchCertificates has all instance managers looked at when certificates become unusable, or
// usable again.
func (r *Reconciler) watchCertificates(ctx context.Context) error {
	if r.cfg.Certificates == nil {
		return nil
	}
	for bad := r.cfg.Certificates() != nil; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-r.cfg.CertificatesChanged:
		}
		if now := r.cfg.Certificates() != nil; now != bad {
			bad = now
			for _, name := range r.managersOn("") {
				im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: name}}
				select {
				case r.certificates <- event.GenericEvent{Object: im}:
				case <-ctx.Done():
				}
			}
		}
	}
}

func conditions(im *v1beta2.InstanceManager) []loop.Condition {
	all := loop.Expect(loop.Conditions(im.Status.Conditions), v1beta2.InstanceManagerConditionPodReady,
		v1beta2.InstanceManagerReasonPodNotFound, v1beta2.InstanceManagerReasonPodStarting)
	return loop.Expect(all, v1beta2.InstanceManagerConditionCertificateUsable, v1beta2.InstanceManagerReasonNoCertificate)
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	switch s.Name {
	case setting.DefaultInstanceManagerImage, setting.NodeDrainPolicy, setting.KubernetesClusterAutoscalerEnabled:
		return r.managersOn("")
	}
	if InPod(s.Name) {
		return r.managersOn("")
	}
	return nil
}

// onTarget names all instance managers when their Pods are to have another role.
func (r *Reconciler) onTarget(t *v1beta2.BackupTarget) []string {
	if t.Name != naming.BackupTarget {
		return nil
	}
	return r.managersOn("")
}

// roleOf is the role of AWS that a backup target's Secret names, which its controller notes.
func roleOf(t *v1beta2.BackupTarget) string { return t.GetAnnotations()[naming.AnnotationAWSRole] }

func (r *Reconciler) onNode(n *v1beta2.Node) []string { return r.managersOn(n.Name) }

// onPodGone names the instance managers on the node of another one's Pod.
func (r *Reconciler) onPodGone(pod *corev1.Pod) []string {
	node := pod.Spec.NodeName
	if node == "" || pod.Labels[naming.LabelComponent] != naming.ComponentInstanceManager {
		return nil
	}
	return r.managersOn(node)
}

// startNotBefore returns the end of the pause before the next Pod.
func (r *Reconciler) startNotBefore(ctx context.Context, im *v1beta2.InstanceManager, pod *corev1.Pod,
) (time.Time, error) {
	key := client.ObjectKeyFromObject(im)
	if pod != nil && pod.DeletionTimestamp == nil && string(pod.UID) == im.Status.ClosedPod {
		r.starts.removed(key)
	}
	until := r.starts.observe(key, pod)
	if pod == nil || !noRoom(pod) {
		return until, nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(im.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{naming.LabelComponent: naming.ComponentInstanceManager,
			naming.LabelOnNode: naming.NodeLabel(im.Spec.NodeID)}); err != nil {
		return time.Time{}, fmt.Errorf("list Pods of instance managers: %w", err)
	}
	others := 0
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Name != im.Name && !ended(p) {
			others++
		}
	}
	if r.starts.room(key, others) {
		return time.Time{}, nil
	}
	return until, nil
}

// viewed is what of its node an instance manager looks at.
type viewed struct {
	down       bool
	cpuRequest int
	legacy     v1beta2.LegacyNodeSpec
}

func nodeView(n *v1beta2.Node) viewed {
	return viewed{condition.NodeDown(n), n.Spec.InstanceManagerCPURequest, n.Spec.LegacyNodeSpec}
}

// heldBy names the instance manager of an engine or replica, if it has one.
func heldBy(status *v1beta2.InstanceStatus) []string {
	if status.InstanceManagerName == "" {
		return nil
	}
	return []string{status.InstanceManagerName}
}

// managersOn names the instance managers of a node ("" for all), from the cache.
func (r *Reconciler) managersOn(node string) []string {
	var list v1beta2.InstanceManagerList
	which := []client.ListOption{client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy}
	if node != "" {
		which = append(which, index.OnNode(node))
	}
	if err := r.client.List(context.Background(), &list, which...); err != nil {
		return nil // the cache is stopping
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

func (r *Reconciler) gather(ctx context.Context, im *v1beta2.InstanceManager) (seen, error) {
	s := seen{Owner: r.cfg.NodeName}
	var err error
	if s.Node, err = read(ctx, r.client, im.Namespace, im.Spec.NodeID, &v1beta2.Node{}); err != nil {
		return seen{}, err
	}
	if s.KubeNode, err = read(ctx, r.client, "", im.Spec.NodeID, &corev1.Node{}); err != nil {
		return seen{}, err
	}
	if s.Pod, err = read(ctx, r.client, im.Namespace, im.Name, &corev1.Pod{}); err != nil {
		return seen{}, err
	}
	budget := naming.PodDisruptionBudgetName(im.Name)
	if s.PDB, err = read(ctx, r.client, im.Namespace, budget, &policyv1.PodDisruptionBudget{}); err != nil {
		return seen{}, err
	}
	if r.cfg.Certificates != nil {
		s.CertificateProblem = r.cfg.Certificates()
	}
	switch {
	case s.Pod == nil || !mayRun(s.Pod):
		r.cfg.Follower.Drop(im.Name)
		r.cfg.Proxies.Drop(im.Name)
	case s.Pod.Status.PodIP != "":
		r.cfg.Follower.Follow(im.Name, s.Pod.UID, s.Pod.Status.PodIP)
		s.Processes, s.UnconfirmedSince = r.cfg.Heard.Of(im.Name)
	}
	s.ProxyDown = s.Processes != nil && !r.proxyAlive(ctx, im.Name, s.Pod, s.Processes.ProxyAPIVersion)
	if s.StartNotBefore, err = r.startNotBefore(ctx, im, s.Pod); err != nil {
		return seen{}, err
	}
	values, err := stored.Read(ctx, r.client, im.Namespace)
	if err != nil {
		return seen{}, err
	}
	r.gatherSettings(&s, values)
	target, err := read(ctx, r.client, im.Namespace, naming.BackupTarget, &v1beta2.BackupTarget{})
	if err != nil {
		return seen{}, err
	}
	if target != nil {
		s.Role = roleOf(target)
	}
	if err := r.gatherRemoval(ctx, im, &s); err != nil {
		return seen{}, err
	}
	if s.Pod == nil && r.cfg.Plaintext != nil {
		if s.Plaintext, err = r.cfg.Plaintext(ctx); err != nil {
			return seen{}, err
		}
	}
	if s.Refused, err = r.tryNext(ctx, im, s); err != nil {
		return seen{}, err
	}
	if err := r.gatherOrphans(ctx, im, &s); err != nil {
		return seen{}, err
	}
	return s, r.gatherDrain(ctx, im, &s)
}

// proxyAlive keeps the connection to the proxy of a running Pod, if it has one. A dead proxy costs
// calls to engines and nothing else, so it does not stop the look at the instance manager.
func (r *Reconciler) proxyAlive(ctx context.Context, name string, pod *corev1.Pod, version int) bool {
	err := r.cfg.Proxies.Ensure(ctx, engineclient.Manager{
		Name: name, Pod: string(pod.UID), IP: pod.Status.PodIP, Node: pod.Spec.NodeName, ProxyAPIVersion: version,
	})
	if err != nil {
		slog.Warn("no engine can be reached through this instance manager, trying again", "instanceManager", name, "err", err)
	}
	return err == nil
}

// read gets an object, or nil if there is none of that name.
func read[T client.Object](ctx context.Context, r client.Reader, namespace, name string, into T) (T, error) {
	var none T
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %T %s: %w", into, name, err)
	}
	return into, nil
}
