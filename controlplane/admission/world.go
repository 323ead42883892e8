package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// world reads facts live.
type world struct {
	client.Reader
	// cached reads settings that may be a moment old.
	cached    client.Reader
	namespace string
	origins   Origins
}

// settings reads live: a user who has changed a default gets it with the next volume.
func (w world) settings(ctx context.Context) (setting.Values, error) {
	return stored.Read(ctx, w, w.namespace)
}

func (w world) cachedSettings(ctx context.Context) (setting.Values, error) {
	return stored.Read(ctx, w.cached, w.namespace)
}

// find reads an object of the namespace; nil if there is none.
func find[T client.Object](ctx context.Context, w world, name string, into T) (found T, err error) {
	var none T
	if name == "" {
		return none, nil
	}
	err = w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %T %s: %w", into, name, err)
	}
	return into, nil
}

func (w world) volume(ctx context.Context, name string) (*v1beta2.Volume, error) {
	return find(ctx, w, name, &v1beta2.Volume{})
}

func (w world) engineImage(ctx context.Context, image string) (*v1beta2.EngineImage, error) {
	if image == "" {
		return nil, nil
	}
	return find(ctx, w, naming.EngineImageName(image), &v1beta2.EngineImage{})
}

// replicasOf lists the replicas of a volume, or all for "".
func (w world) replicasOf(ctx context.Context, volume string) ([]v1beta2.Replica, error) {
	var list v1beta2.ReplicaList
	if err := w.List(ctx, &list, w.of(volume)...); err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	return list.Items, nil
}

// nodes lists all nodes.
func (w world) nodes(ctx context.Context) ([]v1beta2.Node, error) {
	var list v1beta2.NodeList
	if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return list.Items, nil
}

// enginesOf lists the engines of a volume, or all for "".
func (w world) enginesOf(ctx context.Context, volume string) ([]v1beta2.Engine, error) {
	var list v1beta2.EngineList
	if err := w.List(ctx, &list, w.of(volume)...); err != nil {
		return nil, fmt.Errorf("list engines: %w", err)
	}
	return list.Items, nil
}

func (w world) of(volume string) []client.ListOption {
	options := []client.ListOption{client.InNamespace(w.namespace)}
	if volume != "" {
		options = append(options, client.MatchingLabels(naming.VolumeLabels(volume)))
	}
	return options
}
