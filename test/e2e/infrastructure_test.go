package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/patience"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

// await waits, and ends a question that is under way when the time is over.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(wait.Limit))
	defer cancel()
	wait.For(t, what, func() error { return check(ctx) })
}

// TestInfrastructure looks at what the controllers make without a volume: instance managers, engine
// images, nodes, definitions, webhooks.
func TestInfrastructure(t *testing.T) {
	args, requests := audit(t)
	c := testcluster.Start(t, testcluster.Options{Nodes: 2, Manager: true, NodeGrace: 5 * time.Second, Args: args})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		longhorn.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := client.New(c.RESTConfig(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	k := &infrastructure{Client: kube}
	t.Run("infrastructure comes up", k.testComesUp)
	t.Run("its start waits for nothing", func(t *testing.T) { testStartWaitsForNothing(t, requests) })
	t.Run("webhooks complete and refuse", k.testWebhooks)
	t.Run("a Pod that ends is replaced", k.testPodReplaced)
	t.Run("a CPU setting reaches idle Pods", k.testCPUSetting)
	t.Run("the witness is there without the own manager", func(t *testing.T) { k.testWitnessWithoutOwnManager(t, c) })
	t.Run("the leader hands over", k.testFailover)
	t.Run("a node is lost and comes back", func(t *testing.T) { k.testNodeLoss(t, c) })
}

type infrastructure struct{ client.Client }

func (k *infrastructure) get(ctx context.Context, name string, o client.Object) error {
	return k.Get(ctx, client.ObjectKey{Namespace: naming.Namespace, Name: name}, o)
}

func (k *infrastructure) managers(ctx context.Context) ([]longhorn.InstanceManager, error) {
	var list longhorn.InstanceManagerList
	err := k.List(ctx, &list, client.InNamespace(naming.Namespace))
	return list.Items, err
}

// allRunning checks that both nodes have their instance manager running.
func (k *infrastructure) allRunning(ctx context.Context) error {
	list, err := k.managers(ctx)
	if err != nil {
		return err
	}
	if len(list) != 2 {
		return fmt.Errorf("%d instance managers", len(list))
	}
	for _, im := range list {
		if im.Status.CurrentState != longhorn.InstanceManagerStateRunning || im.Status.APIVersion == 0 ||
			im.Status.IP == "" {
			return fmt.Errorf("%s: %+v", im.Name, im.Status)
		}
	}
	return nil
}

func (k *infrastructure) testComesUp(t *testing.T) {
	await(t, "instance managers run", k.allRunning)
	await(t, "nodes and disks are ready", func(ctx context.Context) error {
		for i := 1; i <= 2; i++ {
			n := &longhorn.Node{}
			if err := k.get(ctx, testcluster.NodeName(i), n); err != nil {
				return err
			}
			ok := longhorn.IsConditionTrue(n.Status.Conditions, "Ready") &&
				longhorn.IsConditionTrue(n.Status.Conditions, "Schedulable") &&
				len(n.Status.DiskStatus) == 1
			for _, d := range n.Status.DiskStatus {
				ok = ok && longhorn.IsConditionTrue(d.Conditions, "Ready") && len(d.DiskUUID) == 36 &&
					d.StorageMaximum > 0 && d.InstanceManagerName != ""
			}
			if !ok {
				return fmt.Errorf("node %s: %+v", n.Name, n.Status)
			}
		}
		return nil
	})
	await(t, "the engine image is deployed", func(ctx context.Context) error {
		ei := &longhorn.EngineImage{}
		if err := k.get(ctx, naming.EngineImageName("ankole/engine:dev"), ei); err != nil {
			return err
		}
		if ei.Status.State != longhorn.EngineImageStateDeployed || len(ei.Status.NodeDeploymentMap) != 2 ||
			ei.Status.CLIAPIVersion == 0 {
			return fmt.Errorf("%+v", ei.Status)
		}
		return nil
	})
	await(t, "each instance manager has a budget", func(ctx context.Context) error {
		list, err := k.managers(ctx)
		if err != nil {
			return err
		}
		for _, im := range list {
			if err := k.get(ctx, im.Name, &policyv1.PodDisruptionBudget{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// definitions are the versions of the definitions that managers install.
func (k *infrastructure) definitions(t *testing.T) string {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := k.List(t.Context(), &list, client.HasLabels{naming.LabelCRD}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < 20 {
		t.Fatalf("only %d CRDs carry the label", len(list.Items))
	}
	var all []string
	for _, crd := range list.Items {
		all = append(all, crd.Name+"="+crd.ResourceVersion)
	}
	return strings.Join(all, " ")
}

func (k *infrastructure) testWebhooks(t *testing.T) {
	v := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "hooked"}}
	v.Spec.Size, v.Spec.Frontend, v.Spec.NumberOfReplicas = 3<<20, longhorn.VolumeFrontendBlockDev, 1
	if err := k.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if v.Spec.Size != 4<<20 || v.Spec.Image != "ankole/engine:dev" || v.Labels["longhornvolume"] != "hooked" ||
		v.Finalizers[0] != "longhorn.io" {
		t.Errorf("created volume: %+v", v)
	}
	refused := func(what string, err error, code int32, text string) {
		t.Helper()
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Code != code || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), `admission webhook "validator.longhorn.io" denied the request`) {
			t.Errorf("%s: %v, want code %d and %q", what, err, code, text)
		}
	}
	for name, size := range map[string]int64{"zero": 0, "negative": -1} {
		w := &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: name}}
		w.Spec.Size, w.Spec.Frontend = size, longhorn.VolumeFrontendBlockDev
		refused("size "+name, k.Create(t.Context(), w), 422, "invalid volume size")
	}
	job := &longhorn.RecurringJob{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "nightly"}}
	job.Spec.Task, job.Spec.Cron = longhorn.RecurringJobTaskBackup, "@daily"
	if err := k.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if s := job.Spec; s.Name != "nightly" || s.Concurrency != 10 || s.Retain != 1 || len(job.Finalizers) != 0 {
		t.Errorf("created job: %+v", job)
	}
	// Patches, since the job's controller writes its status meanwhile.
	change := func(edit func(*longhorn.RecurringJobSpec)) error {
		c := job.DeepCopy()
		edit(&c.Spec)
		return k.Patch(t.Context(), c, client.MergeFrom(job))
	}
	refused("a job without a time", change(func(s *longhorn.RecurringJobSpec) { s.Cron = "daily" }), 422,
		"invalid cron format")
	refused("a job that keeps too much", change(func(s *longhorn.RecurringJobSpec) { s.Retain = 101 }), 422,
		"should be less than or equal to 100")
	if err := k.Delete(t.Context(), job); err != nil {
		t.Error(err)
	}
	n := &longhorn.Node{}
	if err := k.get(t.Context(), testcluster.NodeName(1), n); err != nil {
		t.Fatal(err)
	}
	refused("deleting a node that is up", k.Delete(t.Context(), n), 403, "could not delete node")
	ei := &longhorn.EngineImage{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace,
		Name: naming.EngineImageName("ankole/engine:dev")}}
	refused("deleting the default image", k.Delete(t.Context(), ei), 422, "the default engine image")
	s := &longhorn.Setting{}
	if err := k.get(t.Context(), "auto-salvage", s); err != nil {
		t.Fatal(err)
	}
	refused("deleting a setting", k.Delete(t.Context(), s), 422, "cannot be deleted")
	s.Value = "perhaps"
	refused("a value out of the set", k.Update(t.Context(), s), 422, "auto-salvage with invalid value perhaps")
	if err := k.Delete(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	await(t, "the volume is gone", func(ctx context.Context) error {
		if err := k.get(ctx, "hooked", &longhorn.Volume{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %v", err)
		}
		return nil
	})
}

func (k *infrastructure) testPodReplaced(t *testing.T) {
	list, err := k.managers(t.Context())
	if err != nil || len(list) == 0 {
		t.Fatalf("%d instance managers, %v", len(list), err)
	}
	pod := &corev1.Pod{}
	if err := k.get(t.Context(), list[0].Name, pod); err != nil {
		t.Fatal(err)
	}
	if err := k.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	await(t, "a new Pod runs", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := k.get(ctx, pod.Name, now); err != nil {
			return err
		}
		if now.UID == pod.UID {
			return fmt.Errorf("still the old Pod")
		}
		return k.allRunning(ctx)
	})
}

func (k *infrastructure) testCPUSetting(t *testing.T) {
	set := func(value string) {
		s := &longhorn.Setting{}
		if err := k.get(t.Context(), "guaranteed-instance-manager-cpu", s); err != nil {
			t.Fatal(err)
		}
		s.Value = value
		if err := k.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if want := `{"v1":"` + value + `","v2":"` + value + `"}`; s.Value != want {
			t.Errorf("stored as %s, want %s", s.Value, want)
		}
	}
	set("0")
	await(t, "no Pod requests CPU, and the setting is applied", func(ctx context.Context) error {
		list, err := k.managers(ctx)
		if err != nil {
			return err
		}
		for _, im := range list {
			pod := &corev1.Pod{}
			if err := k.get(ctx, im.Name, pod); err != nil {
				return err
			}
			if r := pod.Spec.Containers[0].Resources.Requests; len(r) != 0 {
				return fmt.Errorf("%s requests %v", im.Name, r)
			}
		}
		s := &longhorn.Setting{}
		if err := k.get(ctx, "guaranteed-instance-manager-cpu", s); err != nil {
			return err
		}
		if !s.Status.Applied {
			return fmt.Errorf("not applied")
		}
		return k.allRunning(ctx)
	})
}

// lease is what the leading manager holds.
var lease = client.ObjectKey{Namespace: namespace, Name: "longhorn-manager-leader"}

// holder is the Pod that holds the lease.
func (k *infrastructure) holder(ctx context.Context) string {
	l := &coordinationv1.Lease{}
	if err := k.get(ctx, lease.Name, l); err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// leader waits for a manager that leads: the one that led may have given the lease back a moment
// ago, as the manager that a test ended does.
func (k *infrastructure) leader(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	await(t, "a manager leads", func(ctx context.Context) error {
		holder := k.holder(ctx)
		if holder == "" {
			return fmt.Errorf("nobody holds the lease")
		}
		if err := k.get(ctx, holder, pod); err != nil {
			return fmt.Errorf("the holder %q of the lease is no Pod: %w", holder, err)
		}
		return nil
	})
	return pod
}

func (k *infrastructure) testFailover(t *testing.T) {
	pod := k.leader(t)
	old, before := pod.Name, k.definitions(t)
	if err := k.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	await(t, "another manager leads", func(ctx context.Context) error {
		if now := k.holder(ctx); now == "" || now == old {
			return fmt.Errorf("lease held by %q", now)
		}
		return nil
	})
	// The new leader works: it replaces a Pod.
	k.testPodReplaced(t)
	if after := k.definitions(t); after != before {
		t.Errorf("CRDs that were up to date are written again:\n%s\n%s", before, after)
	}
}

// testNodeLoss kills the node of the leader.
func (k *infrastructure) testNodeLoss(t *testing.T, c *testcluster.Cluster) {
	pod := k.leader(t)
	lost := 1
	if pod.Spec.NodeName == testcluster.NodeName(2) {
		lost = 2
	}
	name := testcluster.NodeName(lost)
	c.KillNode(t, lost)
	await(t, "the other node leads and reports the loss", func(ctx context.Context) error {
		n := &longhorn.Node{}
		if err := k.get(ctx, name, n); err != nil {
			return err
		}
		ready := longhorn.FindCondition(n.Status.Conditions, "Ready")
		if ready.Reason != longhorn.NodeReasonKubernetesNodeNotReady {
			return fmt.Errorf("Ready %+v", ready)
		}
		for _, d := range n.Status.DiskStatus {
			if r := longhorn.FindCondition(d.Conditions, "Ready"); r.Reason != longhorn.DiskReasonNodeNotReady {
				return fmt.Errorf("disk Ready %+v", r)
			}
		}
		im := &longhorn.InstanceManager{}
		if err := k.get(ctx, naming.InstanceManagerName(name, "ankole/instance-manager:dev"), im); err != nil {
			return err
		}
		if im.Status.CurrentState != longhorn.InstanceManagerStateUnknown || im.Status.OwnerID == name {
			return fmt.Errorf("instance manager %s, owner %s", im.Status.CurrentState, im.Status.OwnerID)
		}
		return nil
	})
	c.StartNode(t, lost)
	await(t, "the node is back", func(ctx context.Context) error {
		n := &longhorn.Node{}
		if err := k.get(ctx, name, n); err != nil {
			return err
		}
		if !longhorn.IsConditionTrue(n.Status.Conditions, "Ready") {
			return fmt.Errorf("%+v", n.Status.Conditions)
		}
		for _, d := range n.Status.DiskStatus {
			// Not Schedulable: whether the disk has room is up to the machine.
			if !longhorn.IsConditionTrue(d.Conditions, "Ready") {
				return fmt.Errorf("disk %+v", d.Conditions)
			}
		}
		return k.allRunning(ctx)
	})
}
