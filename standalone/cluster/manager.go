package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/restmapper"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/yaml"

	"ankole.storage/deploy"
	"ankole.storage/standalone/forward"
)

const (
	fieldManager = "ankole-standalone"
	// agentName and controllerName are the DaemonSet and the Deployment; label app of their Pods is
	// agentName and controllerApp.
	agentName      = "longhorn-manager"
	controllerName = "longhorn-controller"
	controllerApp  = "longhorn-ui"
	managerPort    = 9500
	webhookPort    = 9502
	healthPort     = 9504
	// mostControllers there are; fewer on fewer nodes.
	mostControllers = 3
	// managerTimeout for controllers and agents to be ready.
	managerTimeout = 3 * time.Minute
	// healthTimeout of one question to one of them.
	healthTimeout = 2 * time.Second
)

// controllers is how many there are.
func (c *Cluster) controllers() int { return min(c.cfg.Nodes, mostControllers) }

// startManager applies the installation's objects, opens the forwarders and waits for controllers
// and agents.
func (c *Cluster) startManager(ctx context.Context) error {
	if !c.manager {
		return nil
	}
	values := deploy.DefaultValues()
	values.ManagerImage, values.EngineImage, values.InstanceManagerImage =
		c.cfg.ManagerImage, c.cfg.EngineImage, c.cfg.InstanceManagerImage
	values.BackingImageManagerImage = c.cfg.BackingImageManagerImage
	values.WebhookURL = "https://" + net.JoinHostPort(host, strconv.Itoa(c.ports.webhook))
	values.ManagerArgs, values.MutualTLS = c.cfg.ManagerArgs, c.cfg.MutualTLS
	var err error
	if values.DefaultSettings, err = c.defaults(ctx, values.Namespace); err != nil {
		return err
	}
	values.DeployCSI, values.PortForward, values.NetworkPolicies = false, false, false
	values.AnonymousAccess = anonymousAccess
	values.AllowedBackupDirectories = []string{"/"} // its processes have no more rights than who starts it
	if values.DefaultBackupStore.BackupTarget, err = c.backupTarget(); err != nil {
		return err
	}
	values.Controller.Replicas = c.controllers()
	if err := c.apply(ctx, values); err != nil {
		return err
	}
	if err := c.makeToken(ctx, values.Namespace); err != nil {
		return err
	}
	if c.pods, err = watchManagers(c.watches, c, values.Namespace); err != nil {
		return err
	}
	for _, f := range []struct{ listen, to int }{{c.cfg.APIPort, managerPort}, {c.ports.webhook, webhookPort}} {
		fw, err := forward.Start(net.JoinHostPort(host, strconv.Itoa(f.listen)), func() []string {
			return c.pods.addresses(f.to)
		}, c.log)
		if err != nil {
			return fmt.Errorf("%w (see --api-port)", err)
		}
		c.forwards = append(c.forwards, fw)
	}
	if err := c.waitKinds(ctx); err != nil {
		return err
	}
	if err := c.waitManager(ctx, values.Namespace); err != nil {
		return err
	}
	c.out.step("manager")
	return nil
}

// backupTarget makes the directory of the default backup target, and returns its URL; "" for none.
func (c *Cluster) backupTarget() (string, error) {
	if c.cfg.BackupDir == NoBackups {
		return "", nil
	}
	dir, err := filepath.Abs(cmp.Or(c.cfg.BackupDir, filepath.Join(c.cfg.Dir, "backups")))
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("directory of the default backup target: %w (see --backup-directory)", err)
	}
	return (&url.URL{Scheme: "vfs", Path: dir}).String(), nil
}

// apply brings the objects into the cluster by server-side apply, so that starting again changes
// only what differs.
func (c *Cluster) apply(ctx context.Context, values deploy.Values) error {
	docs, err := deploy.Render(values)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(c.rest)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.rest)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	for _, doc := range docs {
		if err := applyOne(ctx, dyn, mapper, doc); err != nil {
			return err
		}
	}
	return nil
}

func applyOne(ctx context.Context, dyn dynamic.Interface, mapper meta.RESTMapper, doc []byte) error {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
		return fmt.Errorf("deploy manifest: %w", err)
	}
	gvk := obj.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	var r dynamic.ResourceInterface = dyn.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		r = dyn.Resource(mapping.Resource).Namespace(obj.GetNamespace())
	}
	force := true
	patch := func() error {
		_, err := r.Patch(ctx, obj.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
		return err
	}
	if err = patch(); apierrors.IsInvalid(err) && gvk.Kind == "Deployment" {
		// The selector of one that an earlier build has made cannot be changed.
		background := metav1.DeletePropagationBackground
		err = r.Delete(ctx, obj.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if err == nil {
			err = patch()
		}
	}
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	return nil
}

// waitManager waits until the agents of all nodes and the controllers answer, with the command line
// they were given last. The API's word alone does not do: right after a restart it is that of
// before.
func (c *Cluster) waitManager(ctx context.Context, namespace string) error {
	dyn, err := dynamic.NewForConfig(c.rest)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	err = c.poll(ctx, managerTimeout, func(ctx context.Context) (string, error) {
		if missing, err := c.managerMissing(ctx, namespace); missing != "" || err != nil {
			return missing, err
		}
		return c.storageMissing(ctx, dyn, namespace)
	})
	if err != nil {
		return fmt.Errorf("%w; see `kubectl --kubeconfig %s -n %s logs deployment/%s` and `… logs daemonset/%s`", err,
			c.dir.Path("kubeconfig"), namespace, controllerName, agentName)
	}
	return nil
}

func (c *Cluster) managerMissing(ctx context.Context, namespace string) (string, error) {
	apps := c.client.AppsV1()
	ds, err := apps.DaemonSets(namespace).Get(ctx, agentName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if s := ds.Status; s.ObservedGeneration < ds.Generation || int(s.UpdatedNumberScheduled) < c.cfg.Nodes {
		return fmt.Sprintf("agent started on %d of %d nodes", s.UpdatedNumberScheduled, c.cfg.Nodes), nil
	}
	d, err := apps.Deployments(namespace).Get(ctx, controllerName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if s := d.Status; s.ObservedGeneration < d.Generation || int(s.UpdatedReplicas) < c.controllers() {
		return fmt.Sprintf("%d of %d controllers started", s.UpdatedReplicas, c.controllers()), nil
	}
	agents, controllers := map[string]bool{}, 0
	for _, p := range c.pods.ready() {
		switch {
		case !healthy(ctx, p.Status.PodIP):
		case p.Labels["app"] == agentName:
			agents[p.Spec.NodeName] = true
		default:
			controllers++
		}
	}
	if controllers < c.controllers() {
		return fmt.Sprintf("%d of %d controllers ready", controllers, c.controllers()), nil
	}
	for k := 1; k <= c.cfg.Nodes; k++ {
		if !agents[nodeName(k)] {
			return "agent not ready on " + nodeName(k), nil
		}
	}
	return "", nil
}

// healthy asks the process at a Pod's address.
func healthy(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort(addr, strconv.Itoa(healthPort)) + "/v1/healthz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// managerPods is a watched list of the Pods of agents and controllers.
type managerPods struct {
	factory informers.SharedInformerFactory
	lister  corelisters.PodNamespaceLister
}

func watchManagers(ctx context.Context, c *Cluster, namespace string) (*managerPods, error) {
	f := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = "app in (" + agentName + "," + controllerApp + ")"
		}))
	m := &managerPods{factory: f, lister: f.Core().V1().Pods().Lister().Pods(namespace)}
	f.Start(ctx.Done())
	for kind, ok := range f.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("watch %s: %w", kind, context.Cause(ctx))
		}
	}
	return m, nil
}

func (m *managerPods) wait() { m.factory.Shutdown() }

// addresses lists where a port of the controllers is served, ready Pods first. Others come after:
// while the first one starts, it needs its own webhooks before it is ready.
func (m *managerPods) addresses(port int) []string {
	pods, err := m.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		ra, rb := podutil.IsPodReady(a), podutil.IsPodReady(b)
		switch {
		case ra && !rb:
			return -1
		case rb && !ra:
			return 1
		}
		return 0
	})
	var out []string
	for _, p := range pods {
		if p.Labels["app"] == controllerApp && p.Status.PodIP != "" && p.Status.Phase == v1.PodRunning {
			out = append(out, net.JoinHostPort(p.Status.PodIP, strconv.Itoa(port)))
		}
	}
	return out
}

// ready lists the Pods that are ready and are not being deleted.
func (m *managerPods) ready() (out []*v1.Pod) {
	pods, err := m.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	for _, p := range pods {
		if podutil.IsPodReady(p) && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}
