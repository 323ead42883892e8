package instancemanager

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// budgetFor returns the PodDisruptionBudget of an instance manager: its one Pod may not be evicted.
func budgetFor(im *v1beta2.InstanceManager) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	labels := naming.InstanceManagerLabels(im.Spec.NodeID, im.Spec.Image, string(im.Spec.Type))
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: im.Namespace,
			Name:      naming.PodDisruptionBudgetName(im.Name),
			Labels:    labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta2.GroupVersion.String(), Kind: "InstanceManager", Name: im.Name, UID: im.UID,
			}},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one,
			Selector:     &metav1.LabelSelector{MatchLabels: labels},
		},
	}
}
