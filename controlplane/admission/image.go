package admission

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var engineImages = kind[*v1beta2.EngineImage]{
	plural:     "engineimages",
	create:     func() *v1beta2.EngineImage { return &v1beta2.EngineImage{} },
	onValidate: createDelete,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.EngineImage]) error {
		r.new.Spec.Image = strings.TrimSpace(r.new.Spec.Image)
		if r.created() {
			r.new.Name = naming.EngineImageName(r.new.Spec.Image)
			addLabels(r.new, naming.EngineImageLabels(r.new.Name))
		}
		addFinalizer(r.new)
		return nil
	},
	checker: func(ctx context.Context, w world, r request[*v1beta2.EngineImage]) error {
		if r.created() {
			if err := naming.CheckImage(r.new.Spec.Image); err != nil {
				return invalid("%v", err)
			}
			return w.origins.checkImage(r.new.Spec.Image)
		}
		values, err := w.settings(ctx)
		if err != nil {
			return err
		}
		return CheckEngineImageDeletion(r.old, values.String(setting.DefaultEngineImage))
	},
}

// CheckEngineImageDeletion refuses to delete the default image and images in use.
func CheckEngineImageDeletion(ei *v1beta2.EngineImage, defaultImage string) error {
	_, forced := ei.Annotations[naming.AnnotationDeleteEngineImage]
	switch {
	case ei.Spec.Image == defaultImage && !forced:
		return invalid("deleting the default engine image %s (%s) is not allowed", ei.Name, ei.Spec.Image)
	case ei.Status.RefCount != 0:
		return invalid("deleting engine image %s (%s) is not allowed while being used: it has %d references",
			ei.Name, ei.Spec.Image, ei.Status.RefCount)
	}
	return nil
}

var instanceManagers = kind[*v1beta2.InstanceManager]{
	plural:     "instancemanagers",
	create:     func() *v1beta2.InstanceManager { return &v1beta2.InstanceManager{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator:    mutateInstanceManager,
	checker: func(ctx context.Context, w world, r request[*v1beta2.InstanceManager]) error {
		switch {
		case r.created():
			return firstOf(func() error { return CheckInstanceManager(r.new) },
				func() error { return w.origins.checkImage(r.new.Spec.Image) })
		case r.deleted():
			node, err := find(ctx, w, r.old.Spec.NodeID, &v1beta2.Node{})
			if err != nil {
				return err
			}
			return CheckInstanceManagerDeletion(r.old, node)
		}
		if r.old.Spec.Image != r.new.Spec.Image {
			if err := w.origins.checkImage(r.new.Spec.Image); err != nil {
				return err
			}
		}
		if CheckInstanceManager(r.old) != nil {
			return nil // one of an older version, which has to be changed and deleted all the same
		}
		return CheckInstanceManager(r.new)
	},
}

func mutateInstanceManager(ctx context.Context, w world, r request[*v1beta2.InstanceManager]) error {
	im := r.new
	if im.Spec.DataEngine == "" {
		im.Spec.DataEngine = v1beta2.DataEngineTypeV1
	}
	if !r.created() {
		return nil
	}
	n, err := find(ctx, w, im.Spec.NodeID, &v1beta2.Node{})
	if err != nil {
		return err
	}
	if n == nil {
		return invalid("instance manager %s is for node %q, which does not exist", im.Name, im.Spec.NodeID)
	}
	addLabels(im, naming.InstanceManagerLabels(im.Spec.NodeID, im.Spec.Image, string(im.Spec.Type)))
	if len(im.OwnerReferences) == 0 {
		yes := true
		im.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1beta2.GroupVersion.String(), Kind: "Node", Name: n.Name, UID: n.UID, BlockOwnerDeletion: &yes,
		}}
	}
	return nil
}

// CheckInstanceManager refuses an instance manager that lacks what its controller relies on.
func CheckInstanceManager(im *v1beta2.InstanceManager) error {
	switch {
	case im.Labels == nil:
		return invalid("instance manager %s has no labels", im.Name)
	case im.OwnerReferences == nil:
		return invalid("instance manager %s has no owner", im.Name)
	case im.Spec.Type == "":
		return invalid("instance manager %s has no type", im.Name)
	case im.Spec.DataEngine == "":
		return invalid("instance manager %s has no data engine", im.Name)
	}
	return nil
}

// CheckInstanceManagerDeletion refuses to delete an instance manager whose Pod has processes: they
// would count as ended while they serve until the Pod has followed. node is nil if it is gone.
func CheckInstanceManagerDeletion(im *v1beta2.InstanceManager, node *v1beta2.Node) error {
	if im.DeletionTimestamp != nil || condition.NodeDown(node) {
		return nil
	}
	var serving []string
	for _, list := range []map[string]v1beta2.InstanceProcess{im.Status.InstanceEngines, im.Status.InstanceReplicas,
		im.Status.Instances} {
		for name, p := range list {
			if p.Status.State != v1beta2.InstanceStateError && p.Status.State != v1beta2.InstanceStateStopped {
				serving = append(serving, name)
			}
		}
	}
	if len(serving) == 0 {
		return nil
	}
	return forbidden("instance manager %s serves engines and replicas (%s): to start it anew delete its Pod "+
		"(kubectl -n %s delete pod %s), volumes go on; one that is not used any more goes by itself",
		im.Name, some(serving), im.Namespace, im.Name)
}
