package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/lack"
)

// TestNamespaceDeleted deletes the namespace with a volume in use in it. It hangs, and says where;
// the commands of docs/guide/kubernetes.md (Removing) end it. The replicas' directories are kept,
// and are orphans of the next installation.
func TestNamespaceDeleted(t *testing.T) {
	lack.RealTime(t, "a namespace that ends")
	t.Parallel()
	c := start(t)
	c.managersRun()
	c.create("kept", 16*mib, 3)
	c.attach("kept", "node-1", 3)
	c.orderSnapshot("kept", "of-kept")
	c.awaitSnapshot("kept", "of-kept")
	dirs := c.replicaDirs("kept")
	ks := kubernetesOf(t, c)

	if err := ks.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.within(3*time.Minute, "the namespace says what keeps it", func(ctx context.Context) error {
		return keptBy(ctx, ks)
	})
	c.giveUp(t, ks)
	c.within(3*time.Minute, "the namespace has gone", func(ctx context.Context) error {
		_, err := ks.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err, keptBy(ctx, ks))
	})
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "volume.meta")); err != nil {
			t.Errorf("the directory of a replica: %v", err)
		}
	}

	c.Stop(t)
	c.Restart(t)
	c.connect()
	c.managersRun()
	c.eventually("the directories are orphans", func(ctx context.Context) error {
		var list longhorn.OrphanList
		if err := c.kube.List(ctx, &list); err != nil {
			return err
		}
		if len(list.Items) != len(dirs) {
			return fmt.Errorf("%d of %d", len(list.Items), len(dirs))
		}
		return nil
	})
	c.create("next", 16*mib, 3)
	c.attach("next", "node-2", 3)
}

// keptBy is nil when no Pod is left in the namespace, and its conditions count what is.
func keptBy(ctx context.Context, ks *kubernetes.Clientset) error {
	pods, err := ks.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ns, err := ks.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var said []string
	named := false
	for _, cond := range ns.Status.Conditions {
		if cond.Status == corev1.ConditionTrue {
			said = append(said, string(cond.Type)+": "+cond.Message)
			named = named || strings.Contains(cond.Message, "longhorn.io")
		}
	}
	if len(pods.Items) > 0 || !named {
		return fmt.Errorf("%d Pods; %s", len(pods.Items), strings.Join(said, "; "))
	}
	return nil
}

// giveUp is what the page has people do, in its order.
func (c *cluster) giveUp(t *testing.T, ks *kubernetes.Clientset) {
	t.Helper()
	hooks, now := ks.AdmissionregistrationV1(), metav1.DeleteOptions{}
	if err := errors.Join(
		hooks.ValidatingWebhookConfigurations().Delete(t.Context(), naming.WebhookValidatorConfiguration, now),
		hooks.MutatingWebhookConfigurations().Delete(t.Context(), naming.WebhookMutatorConfiguration, now),
	); err != nil {
		t.Fatal(err)
	}
	all, err := dynamic.NewForConfig(c.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := ks.Discovery().ServerResourcesForGroupVersion(longhorn.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	resources := []schema.GroupVersionResource{{Version: "v1", Resource: "secrets"}}
	for _, kind := range kinds.APIResources {
		if kind.Namespaced && slices.Contains(kind.Verbs, "list") {
			resources = append(resources, longhorn.GroupVersion.WithResource(kind.Name))
		}
	}
	for _, resource := range resources {
		objects := all.Resource(resource).Namespace(namespace)
		list, err := objects.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			_, err := objects.Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s %s: %v", resource.Resource, o.GetName(), err)
			}
		}
	}
}
