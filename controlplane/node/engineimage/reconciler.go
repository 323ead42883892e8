package engineimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// versionTimeout bounds a run of the binary.
const versionTimeout = 10 * time.Second

// Config is what the reconciler is told.
type Config struct {
	// NodeName is the node this manager runs on.
	Namespace, NodeName, ServiceAccount string
	// Runner runs binaries on the nodes that have them, to ask for their versions.
	Runner engineclient.Runner
}

// Reconciler looks after EngineImage objects.
type Reconciler struct {
	cfg    Config
	client client.Client

	mu sync.Mutex
	// versions remembers what binaries said, by object UID.
	versions map[string]*Versions
	unused   *firstseen.Stamps
}

// New returns the reconciler; SetupWithManager puts it to work.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, versions: map[string]*Versions{}, unused: firstseen.New()}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	return loop.Setup(mgr, r.cfg.Namespace, loop.Controller[*v1beta2.EngineImage, seen]{
		Name:       naming.EventSource("engine-image"),
		New:        func() *v1beta2.EngineImage { return &v1beta2.EngineImage{} },
		Gather:     r.gather,
		Decide:     decide,
		Gone:       func(_ context.Context, key client.ObjectKey) { r.unused.At(time.Time{}, key.Name, "") },
		Conditions: conditions,
		Watches: []loop.Watch{
			loop.Watching(&appsv1.DaemonSet{}, loop.ByOwner[*appsv1.DaemonSet]("EngineImage")),
			loop.WatchingChanges(&corev1.Pod{}, loop.Changed(readyOn), loop.ByLabel[*corev1.Pod](naming.LabelEngineImage)),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(condition.NodeReady),
				func(*v1beta2.Node) []string { return r.all() }),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
			uses(func(v *v1beta2.Volume) images { return images{v.Spec.Image, v.Status.CurrentImage} }, &v1beta2.Volume{}),
			uses(func(e *v1beta2.Engine) images { return images{e.Spec.Image, e.Status.CurrentImage} }, &v1beta2.Engine{}),
			uses(func(p *v1beta2.Replica) images { return images{p.Spec.Image, p.Status.CurrentImage} }, &v1beta2.Replica{}),
		},
	})
}

// conditions lists what events are recorded about.
func conditions(ei *v1beta2.EngineImage) []loop.Condition {
	return loop.Expect(loop.Conditions(ei.Status.Conditions), v1beta2.EngineImageConditionReady,
		v1beta2.EngineImageReasonDaemonSet)
}

// countWithin is how long a new reference to an image may go uncounted: a hundred new volumes are
// five hundred references and one count.
const countWithin = time.Second

// images are the image an object is to have and the one it has.
type images [2]string

// uses watches objects that refer to images.
func uses[O client.Object](of func(O) images, proto O) loop.Watch {
	return loop.WatchingChanges(proto, loop.Changed(of), func(o O) []string { return names(of(o)) }).Within(countWithin)
}

// readyOn is the node on which a Pod is ready.
func readyOn(p *corev1.Pod) string {
	if !condition.PodReady(p) {
		return ""
	}
	return p.Spec.NodeName
}

// names returns the objects of images.
func names(of images) []string {
	var out []string
	for _, image := range of {
		if image != "" {
			out = append(out, naming.EngineImageName(image))
		}
	}
	return out
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	switch s.Name {
	case setting.DefaultEngineImage, setting.TaintToleration, setting.SystemManagedComponentsNodeSelector,
		setting.PriorityClass, setting.RegistrySecret, setting.SystemManagedPodsImagePullPolicy,
		setting.EngineImagePodLivenessProbePeriod, setting.EngineImagePodLivenessProbeTimeout,
		setting.EngineImagePodLivenessProbeFailureThreshold, setting.KubernetesClusterAutoscalerEnabled:
		return r.all()
	}
	return nil
}

func (r *Reconciler) all() []string {
	var list v1beta2.EngineImageList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	var out []string
	for _, ei := range list.Items {
		out = append(out, ei.Name)
	}
	return out
}

func (r *Reconciler) gather(ctx context.Context, ei *v1beta2.EngineImage) (seen, error) {
	values, err := stored.Read(ctx, r.client, ei.Namespace)
	if err != nil {
		return seen{}, err
	}
	s := seen{
		Default:     values.String(setting.DefaultEngineImage) == ei.Spec.Image,
		Settings:    settingsFrom(values, r.cfg.ServiceAccount),
		Owner:       r.cfg.NodeName,
		KubeNodes:   map[string]*corev1.Node{},
		UnusedSince: r.unused.At(time.Now(), ei.Name, ei.Status.NoRefSince),
	}
	ds := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: ei.Namespace, Name: naming.EngineImageDaemonSetName(ei.Name)}
	switch err := r.client.Get(ctx, key, ds); {
	case err == nil:
		s.DaemonSet = ds
	case !apierrors.IsNotFound(err):
		return seen{}, fmt.Errorf("read DaemonSet %s: %w", key.Name, err)
	}
	if err := r.gatherLists(ctx, ei, &s); err != nil {
		return seen{}, err
	}
	r.gatherVersions(ctx, ei, &s)
	return s, nil
}

func (r *Reconciler) gatherLists(ctx context.Context, ei *v1beta2.EngineImage, s *seen) error {
	in := client.InNamespace(ei.Namespace)
	var pods corev1.PodList
	var nodes v1beta2.NodeList
	var kubes corev1.NodeList
	var volumes v1beta2.VolumeList
	var engines v1beta2.EngineList
	var replicas v1beta2.ReplicaList
	err := errors.Join(
		r.client.List(ctx, &pods, in, client.MatchingLabels{naming.LabelEngineImage: ei.Name}, client.UnsafeDisableDeepCopy),
		r.client.List(ctx, &nodes, in, client.UnsafeDisableDeepCopy),
		r.client.List(ctx, &kubes, client.UnsafeDisableDeepCopy),
		r.client.List(ctx, &volumes, in, client.UnsafeDisableDeepCopy),
		r.client.List(ctx, &engines, in, client.UnsafeDisableDeepCopy),
		r.client.List(ctx, &replicas, in, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		return fmt.Errorf("list what belongs to engine image %s: %w", ei.Name, err)
	}
	s.Pods, s.Nodes = pods.Items, nodes.Items
	for i := range kubes.Items {
		s.KubeNodes[kubes.Items[i].Name] = &kubes.Items[i]
	}
	count := func(images ...string) {
		for _, image := range images {
			if image == ei.Spec.Image {
				s.References++
				return
			}
		}
	}
	for i := range volumes.Items {
		count(volumes.Items[i].Spec.Image, volumes.Items[i].Status.CurrentImage)
	}
	for i := range engines.Items {
		count(engines.Items[i].Spec.Image, engines.Items[i].Status.CurrentImage)
	}
	for i := range replicas.Items {
		count(replicas.Items[i].Spec.Image, replicas.Items[i].Status.CurrentImage)
	}
	return nil
}

// gatherVersions asks the binary once a node that has it can be asked.
func (r *Reconciler) gatherVersions(ctx context.Context, ei *v1beta2.EngineImage, s *seen) {
	r.mu.Lock()
	s.Versions = r.versions[string(ei.UID)]
	r.mu.Unlock()
	if s.Versions != nil {
		return
	}
	s.VersionsProblem = "it is not yet on any node"
	deployed := deploymentMap(*s)
	for _, node := range slices.Sorted(maps.Keys(deployed)) {
		if !deployed[node] {
			continue
		}
		v, err := askVersion(ctx, r.cfg.Runner, node, ei.Spec.Image)
		if status.Code(err) == codes.Unavailable && ctx.Err() == nil {
			s.VersionsProblem = err.Error()
			continue // perhaps the next node can be asked
		}
		if err != nil {
			s.VersionsProblem = err.Error()
			return
		}
		s.Versions, s.VersionsProblem = v, ""
		r.mu.Lock()
		r.versions[string(ei.UID)] = v
		r.mu.Unlock()
		return
	}
}

// askVersion runs `version --client-only` of the image's binary on a node.
func askVersion(ctx context.Context, on engineclient.Runner, node, image string) (*Versions, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	r, err := on.Run(ctx, node, &enginebinaryv1.RunRequest{Binary: naming.EngineBinaryInPod(image),
		Verb: []string{"version", "--client-only"}})
	if err != nil {
		return nil, fmt.Errorf("ask engine image %s on node %s for its version: %w", image, node, err)
	}
	if r.GetStatus() != 0 {
		return nil, fmt.Errorf("engine image %s on node %s does not tell its version: exit status %d: %s", image, node,
			r.GetStatus(), r.GetMessage())
	}
	return parseVersions(r.GetOutput())
}

func parseVersions(out []byte) (*Versions, error) {
	var answer struct {
		ClientVersion *Versions `json:"clientVersion"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("the version is not JSON: %w", err)
	}
	if answer.ClientVersion == nil || answer.ClientVersion.Version == "" {
		return nil, errors.New("the answer holds no clientVersion")
	}
	return answer.ClientVersion, nil
}

// NewObject returns the EngineImage object of an image.
func NewObject(namespace, image string) *v1beta2.EngineImage {
	ei := &v1beta2.EngineImage{}
	ei.Namespace, ei.Name = namespace, naming.EngineImageName(image)
	ei.Labels = naming.EngineImageLabels(ei.Name)
	ei.Finalizers = []string{v1beta2.Finalizer}
	ei.Spec.Image = image
	return ei
}
