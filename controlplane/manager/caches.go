package manager

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
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

// leaderCache holds everything in the namespace, and the cluster-wide kinds.
func leaderCache(cfg Config) cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{cfg.Namespace: {}}}
}

// nodeCache holds the objects of one node, and the settings. With it the memory of a follower does
// not grow with the cluster.
func nodeCache(cfg Config) cache.Options {
	here := func(label labels.Selector, field fields.Selector) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{
			cfg.Namespace: {LabelSelector: label, FieldSelector: field},
		}}
	}
	byName := fields.OneTermEqualSelector("metadata.name", cfg.NodeName)
	onNode := fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName)
	labelled := labels.SelectorFromSet(labels.Set{naming.LabelNode: cfg.NodeName})
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{cfg.Namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:     {Field: byName},
			&v1beta2.Node{}:    here(nil, byName),
			&corev1.Pod{}:      here(nil, onNode),
			&v1beta2.Replica{}: here(labelled, nil),
		},
	}
}
