package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/testcluster"
)

// managerPods are the manager Pods on a node.
func (k *infrastructure) managerPods(ctx context.Context, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := k.List(ctx, &list, client.InNamespace(naming.Namespace),
		client.MatchingLabels{naming.LabelApp: naming.AppManager})
	var here []corev1.Pod
	for _, p := range list.Items {
		if p.Spec.NodeName == node {
			here = append(here, p)
		}
	}
	return here, err
}

// awayTaint keeps the DaemonSet from putting a new manager Pod on a node; what runs there stays.
var awayTaint = corev1.Taint{Key: "ankole.test/away", Effect: corev1.TaintEffectNoSchedule}

// takeManager takes the manager Pod of a node away for good.
func (k *infrastructure) takeManager(t *testing.T, node string) {
	t.Helper()
	kube := &corev1.Node{}
	if err := k.Get(t.Context(), client.ObjectKey{Name: node}, kube); err != nil {
		t.Fatal(err)
	}
	before := kube.DeepCopy()
	kube.Spec.Taints = append(kube.Spec.Taints, awayTaint)
	if err := k.Patch(t.Context(), kube, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	await(t, "node "+node+" has no manager Pod", func(ctx context.Context) error {
		pods, err := k.managerPods(ctx, node)
		if err != nil {
			return err
		}
		for i := range pods {
			if err := k.Delete(ctx, &pods[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if len(pods) > 0 {
			return fmt.Errorf("%d Pods", len(pods))
		}
		return nil
	})
}

// giveManager lets the DaemonSet put it there again.
func (k *infrastructure) giveManager(t *testing.T, node string) {
	t.Helper()
	kube := &corev1.Node{}
	if err := k.Get(t.Context(), client.ObjectKey{Name: node}, kube); err != nil {
		t.Fatal(err)
	}
	before := kube.DeepCopy()
	kube.Spec.Taints = nil
	if err := k.Patch(t.Context(), kube, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	await(t, "node "+node+" is ready again", func(ctx context.Context) error {
		n := &longhorn.Node{}
		if err := k.get(ctx, node, n); err != nil {
			return err
		}
		if !longhorn.IsConditionTrue(n.Status.Conditions, longhorn.NodeConditionReady) {
			return fmt.Errorf("%+v", n.Status.Conditions)
		}
		return nil
	})
}

// testWitnessWithoutOwnManager: an engine's question reaches the API server although the manager of
// its node is away, as in each upgrade. Without the witness it cannot drop a lost replica, and its
// users' requests wait.
func (k *infrastructure) testWitnessWithoutOwnManager(t *testing.T, c *testcluster.Cluster) {
	node := c.Nodes[0]
	k.takeManager(t, node.Name)
	defer k.giveManager(t, node.Name)
	// As the instance manager names it: by its address and the folder of its instances' logs.
	sum := sha256.Sum256([]byte(net.JoinHostPort(node.Address, strconv.Itoa(naming.PortProcessManager)) + "\x00" +
		filepath.Join(node.Root, "var/log/instances")))
	socket := filepath.Join(os.TempDir(), "ankole-witness-"+strconv.Itoa(os.Geteuid()),
		hex.EncodeToString(sum[:8])+".sock")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// There is no such engine, which only the API server can say.
	await(t, "an engine of "+node.Name+", whose manager is away, is answered", func(ctx context.Context) error {
		_, err := witnessv1.NewWitnessClient(conn).Get(ctx,
			&witnessv1.GetRequest{VolumeName: "none", EngineName: "none-e-0"})
		if status.Code(err) != codes.FailedPrecondition {
			return fmt.Errorf("the witness answers %w", err)
		}
		return nil
	})
}
