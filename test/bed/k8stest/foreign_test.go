package k8stest

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

// foreignManager: a manager of another system comes up beside a volume under I/O. Ours give up, say
// so at its Pod, and stay ready, also those that start meanwhile: a rolling update replaces the
// other system's Pods only then. Nothing is ordered until it is gone, and the volume goes on.
func foreignManager(b *bed) {
	ctx := context.Background()
	b.create("beside", 64*mib, 3)
	b.attach("beside", "node-1", 3)
	b.create("later", 64*mib, 1)
	b.attach("later", "node-2", 1)
	b.detach("later")
	d := b.device("beside", "node-1")
	w := rig.StartLoad(b.t, d, 64*mib, 5)
	w.AwaitMore(b.t, 100)
	pod, release := b.startForeignManager("node-2")
	defer release()
	began := time.Now()
	told := func(node string) {
		b.t.Helper()
		b.await("the manager"+node+" says that it waits", func(ctx context.Context) error {
			list, err := b.ks.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.name=" + pod.Name + ",reason=FailedUpgradePreCheck"})
			if err != nil {
				return err
			}
			for _, e := range list.Items {
				if strings.Contains(e.Message, "The manager"+node) &&
					strings.Contains(e.Message, "a manager of another system runs in Pod "+pod.Name+" on node node-2") {
					return nil
				}
			}
			return fmt.Errorf("%d events", len(list.Items))
		})
	}
	told("") // who leads
	b.took("from the Pod to who leads giving up", began)
	b.kubectlOK("-n", namespace, "rollout", "restart", "daemonset/longhorn-manager")
	b.kubectlOK("-n", namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=240s")
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		told(" on node " + node)
	}
	b.reach("node-2")
	if _, err := b.rest.AttachVolume(ctx, "later", resource.AttachInput{HostID: "node-3"}); err != nil {
		b.t.Fatal(err)
	}
	w.AwaitMore(b.t, 300)
	v, err := b.rest.Volume(ctx, "later")
	if err != nil || v.State != "detached" {
		b.t.Errorf("beside the other manager the volume is %s (%v)", v.State, err)
	}
	release()
	began = time.Now()
	b.usable("later", "node-3", 1)
	b.took("from the end of the other manager to an attached volume", began)
	w.AwaitMore(b.t, 100)
	w.Finish()
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	for _, name := range []string{"beside", "later"} {
		b.detach(name)
		b.remove(name)
	}
}

// startForeignManager makes a Pod on a node that looks like a manager of another system.
func (b *bed) startForeignManager(node string) (pod *corev1.Pod, release func()) {
	b.t.Helper()
	ctx := context.Background()
	// The DaemonSet would take a Pod with its labels for its own unless it belongs to somebody.
	owner, err := b.ks.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign-manager"}}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	release = func() { // the garbage collector removes the Pod
		err := b.ks.CoreV1().ConfigMaps(namespace).Delete(ctx, owner.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			b.t.Error(err)
		}
	}
	yes := true
	pod, err = b.ks.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign-manager", Labels: map[string]string{"app": "longhorn-manager"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
				Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "longhorn-manager", Image: tools, ImagePullPolicy: corev1.PullNever,
				Command: []string{"sh", "-c", "sleep 100000"}}}}}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return pod, release
}
