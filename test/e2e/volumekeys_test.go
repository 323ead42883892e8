package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/object/naming"
)

// volumeKeys: somebody deletes the master keys of an attached volume, and a replica dies: it is
// rebuilt, and the keys are there again. With another master key the volume goes on as it is; it
// has the new one when it is attached the next time.
func volumeKeys(t *testing.T, c *cluster) {
	const name = "keyed"
	ks := kubernetesOf(t, c)
	secrets := ks.CoreV1().Secrets(namespace)
	c.create(name, 64*mib, 3)
	defer c.remove(name)
	endpoint := c.attach(name, "node-1", 3)
	content := fillWith(t, c, endpoint, 3)
	before, err := secrets.Get(t.Context(), naming.SecretVolumeKeys, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := c.processKey(name)
	if len(before.Data[first]) == 0 {
		t.Fatalf("the volume names key %q, and there are %d others", first, len(before.Data))
	}
	if err := secrets.Delete(t.Context(), naming.SecretVolumeKeys, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	generation := c.engine(name).Status.Membership.Generation
	c.killReplicaOn(name, "node-2")
	c.awaitMembership(name, "a replica is dropped and back", func(m *longhorn.Membership) bool {
		return m.Generation >= generation+2 && len(m.Members) == 3
	})
	c.awaitUsable(name, "node-1", 3)
	c.eventually("the master keys are there again", func(ctx context.Context) error {
		now, err := secrets.Get(ctx, naming.SecretVolumeKeys, metav1.GetOptions{})
		if err == nil && !reflect.DeepEqual(now.Data, before.Data) {
			err = errors.New("the Secret has other keys")
		}
		return err
	})
	rotate := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, volumekey.AnnotationRotate)
	if _, err := secrets.Patch(t.Context(), naming.SecretVolumeKeys, types.MergePatchType, rotate,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("another master key is made", func(ctx context.Context) error {
		now, err := secrets.Get(ctx, naming.SecretVolumeKeys, metav1.GetOptions{})
		if err == nil && (len(now.Data) != len(before.Data)+1 || now.Annotations[volumekey.AnnotationRotate] != "") {
			err = fmt.Errorf("%d keys, annotations %v", len(now.Data), now.Annotations)
		}
		return err
	})
	if key := c.processKey(name); key != first {
		t.Errorf("beside processes that run the volume has key %q", key)
	}
	c.detach(name)
	endpoint = c.attach(name, "node-3", 3)
	if key := c.processKey(name); key <= first {
		t.Errorf("attached anew the volume has key %q, as before", key)
	}
	holds(t, c, endpoint, content, "the content has changed")
	c.detach(name)
	c.identical(name, 3)
}

// processKey is the name of the master key of a volume's processes.
func (c *cluster) processKey(volume string) string {
	c.t.Helper()
	v := &longhorn.Volume{}
	if err := c.kube.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: volume}, v); err != nil {
		c.t.Fatal(err)
	}
	return v.Status.ProcessKey
}

// killReplicaOn kills the process of a volume's replica on a node.
func (c *cluster) killReplicaOn(volume, node string) {
	c.t.Helper()
	pids := holding(c.Info.Dir, filepath.Base(c.directoryOn(volume, node)))
	if len(pids) != 1 {
		c.t.Fatalf("%d processes of the replica on %s", len(pids), node)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
}
