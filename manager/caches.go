package manager

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/claim"
)

// newScheme knows every kind the manager reads or writes.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1beta2.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// leaderCache holds everything in the namespace, the cluster-wide kinds, of the Pods of all other
// namespaces which claims they use, and the claims whose labels volumes follow.
func leaderCache(cfg Config) cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{cfg.Namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: {
				Field: fields.OneTermEqualSelector("metadata.name", naming.WebhookValidatorConfiguration)},
			&admissionregistrationv1.MutatingWebhookConfiguration{}: {
				Field: fields.OneTermEqualSelector("metadata.name", naming.WebhookMutatorConfiguration)},
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
				Transform:  claim.Outline(cfg.Namespace),
			},
			&corev1.PersistentVolumeClaim{}: {
				Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
				Label:      claim.Sources(),
			},
		},
	}
}

// controlCache holds the settings, the Pods of the controllers, and of those of instance managers
// what the witness relay asks.
func controlCache(namespace string) cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{
					namespace: {LabelSelector: components(naming.ComponentController, naming.ComponentInstanceManager)},
				},
				Transform: outline,
			},
		},
	}
}

// nodeCache holds the objects of one node and the settings. With it the memory of an agent grows
// neither with the number of nodes nor with that of volumes.
func nodeCache(cfg Common) cache.Options {
	here := func(label labels.Selector, field fields.Selector) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{
			cfg.Namespace: {LabelSelector: label, FieldSelector: field},
		}}
	}
	byName := fields.OneTermEqualSelector("metadata.name", cfg.NodeName)
	labelled := labels.SelectorFromSet(labels.Set{naming.LabelNode: naming.NodeLabel(cfg.NodeName)})
	pods := here(components(naming.ComponentManager, naming.ComponentInstanceManager),
		fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName))
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{cfg.Namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:     {Field: byName},
			&v1beta2.Node{}:    here(nil, byName),
			&corev1.Pod{}:      pods,
			&v1beta2.Replica{}: here(labelled, nil),
			&v1beta2.Orphan{}:  here(labelled, nil),
		},
	}
}

// components selects the Pods of some parts of the system.
func components(names ...string) labels.Selector {
	r, err := labels.NewRequirement(naming.LabelComponent, selection.In, names)
	if err != nil {
		panic(err) // constants
	}
	return labels.NewSelector().Add(*r)
}

// outline keeps of the Pods of instance managers, of which there are many, what says where they are
// and whether they run.
func outline(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Labels[naming.LabelComponent] != naming.ComponentInstanceManager {
		return o, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp,
			Labels:            map[string]string{naming.LabelComponent: p.Labels[naming.LabelComponent]}},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP},
	}, nil
}
