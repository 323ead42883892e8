package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// defaultBackupTarget is made by the first manager of a fresh cluster; every volume names it, so
// none can be created before.
const defaultBackupTarget = "default"

func storageKind(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: resource}
}

// storageMissing says what keeps the cluster from taking volumes: the managers answer before they
// have set up a fresh cluster.
func (c *Cluster) storageMissing(ctx context.Context, dyn dynamic.Interface, namespace string) (string, error) {
	if c.cfg.NoKinds {
		return "", nil
	}
	nodes, err := dyn.Resource(storageKind("nodes")).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	ready := map[string]bool{}
	for i := range nodes.Items {
		ready[nodes.Items[i].GetName()] = conditionTrue(&nodes.Items[i], "Ready")
	}
	for k := 1; k <= c.cfg.Nodes; k++ {
		if !ready[nodeName(k)] {
			return "storage not ready on " + nodeName(k), nil
		}
	}
	_, err = dyn.Resource(storageKind("backuptargets")).Namespace(namespace).Get(ctx, defaultBackupTarget,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("backup target %s is not made yet", defaultBackupTarget), nil
	}
	return "", err
}

func conditionTrue(obj *unstructured.Unstructured, kind string) bool {
	list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == kind {
			return c["status"] == "True"
		}
	}
	return false
}
