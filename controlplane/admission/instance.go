package admission

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/live"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/copies"
)

var engines = kind[*v1beta2.Engine]{
	plural:     "engines",
	create:     func() *v1beta2.Engine { return &v1beta2.Engine{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator:    mutateEngine,
	checker:    checkEngineRequest,
}

var replicas = kind[*v1beta2.Replica]{
	plural:     "replicas",
	create:     func() *v1beta2.Replica { return &v1beta2.Replica{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator:    mutateReplica,
	checker:    checkReplicaRequest,
}

func mutateInstance(before string, spec *v1beta2.InstanceSpec) {
	if spec.Image == "" && spec.EngineImage == "" {
		spec.Image = before
	}
	spec.Image = v1beta2.MergeImages(before, spec.Image, spec.EngineImage)
	spec.EngineImage = spec.Image
	if spec.DataEngine == "" {
		spec.DataEngine = v1beta2.DataEngineTypeV1
	}
}

func ownedByVolume(v *v1beta2.Volume) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1beta2.GroupVersion.String(), Kind: "Volume", Name: v.Name, UID: v.UID,
	}
}

func mutateEngine(_ context.Context, _ world, r request[*v1beta2.Engine]) error {
	before := ""
	if r.updated() {
		before = r.old.Spec.Image
	}
	mutateInstance(before, &r.new.Spec.InstanceSpec)
	if r.new.Spec.ReplicaAddressMap == nil {
		r.new.Spec.ReplicaAddressMap = map[string]string{}
	}
	if r.new.Spec.UpgradedReplicaAddressMap == nil {
		r.new.Spec.UpgradedReplicaAddressMap = map[string]string{}
	}
	if r.created() {
		addLabels(r.new, naming.VolumeLabels(r.new.Spec.VolumeName))
	}
	addFinalizer(r.new)
	return nil
}

func mutateReplica(_ context.Context, _ world, r request[*v1beta2.Replica]) error {
	before := ""
	if r.updated() {
		before = r.old.Spec.Image
	}
	mutateInstance(before, &r.new.Spec.InstanceSpec)
	s := r.new.Spec
	addLabels(r.new, map[string]string{
		naming.LabelVolume:       s.VolumeName,
		naming.LabelNode:         naming.NodeLabel(s.NodeID),
		naming.LabelDiskUUID:     s.DiskID,
		naming.LabelBackingImage: s.BackingImage,
	})
	addFinalizer(r.new)
	return nil
}

// InstanceFacts is what the cluster says about a new engine or replica.
type InstanceFacts struct {
	// Volume is the parent, nil if there is none.
	Volume *v1beta2.Volume
	// Engines of that volume.
	Engines int
	// EngineEnabled is setting v1-data-engine.
	EngineEnabled bool
}

// CheckEngine refuses an engine that cannot be (old nil: creation).
func CheckEngine(old, e *v1beta2.Engine, f InstanceFacts) error {
	if old != nil {
		return checkDataEngine("engine "+e.Name, old.Spec.DataEngine, e.Spec.DataEngine)
	}
	limit := 1
	switch {
	case !f.EngineEnabled:
		return invalid("engine %s cannot be created while setting v1-data-engine is false", e.Name)
	case f.Volume == nil:
		return invalid("engine %s belongs to volume %q, which does not exist", e.Name, e.Spec.VolumeName)
	case f.Volume.Spec.Migratable:
		limit = 2
	}
	if f.Engines+1 > limit {
		return invalid("volume %s has %d engines already, engine %s would be too many", f.Volume.Name, f.Engines, e.Name)
	}
	return nil
}

// CheckEngineDeletion refuses to delete an engine that its volume cannot do without: one that
// serves it, or has the newest record of which copies are current. volume is nil if it is gone;
// engines are all of the volume.
func CheckEngineDeletion(e *v1beta2.Engine, volume *v1beta2.Volume, engines []v1beta2.Engine) error {
	if volume == nil || volume.DeletionTimestamp != nil || e.DeletionTimestamp != nil || !e.Spec.Active {
		return nil
	}
	if e.Spec.DesireState == v1beta2.InstanceStateRunning || !e.Status.Off() {
		return forbidden("engine %s serves volume %s, whose users would get I/O errors at once: detach the volume to stop it "+
			"(ankole volume detach %s); the engine goes with its volume", e.Name, volume.Name, volume.Name)
	}
	record := e.Status.Membership
	newer := func(o v1beta2.Engine) bool {
		return o.Name != e.Name && o.DeletionTimestamp == nil && o.Status.Membership.Founded(volume.UID) &&
			o.Status.Membership.Epoch > record.Epoch
	}
	if record.Founded(volume.UID) && !slices.ContainsFunc(engines, newer) {
		return forbidden("engine %s has the record of which copies of volume %s are current, and goes with its volume; "+
			"without it the volume could start from old data", e.Name, volume.Name)
	}
	return nil
}

// CheckReplica refuses a replica that cannot be (old nil: creation).
func CheckReplica(old, r *v1beta2.Replica, f InstanceFacts) error {
	if old != nil {
		if err := checkPlaceStays(&old.Spec, r); err != nil {
			return err
		}
		return checkDataEngine("replica "+r.Name, old.Spec.DataEngine, r.Spec.DataEngine)
	}
	if !f.EngineEnabled {
		return invalid("replica %s cannot be created while setting v1-data-engine is false", r.Name)
	}
	return nil
}

// checkPlaceStays refuses to forget where the data of a replica is: nobody could find, use or
// remove it.
func checkPlaceStays(old *v1beta2.ReplicaSpec, r *v1beta2.Replica) error {
	if r.DeletionTimestamp == nil && old.DiskID != "" && old.NodeID != "" && (r.Spec.DiskID == "" || r.Spec.NodeID == "") {
		return invalid("replica %s is on disk %s of node %s: spec.nodeID and spec.diskID cannot be taken away; delete the "+
			"replica instead", r.Name, old.DiskID, old.NodeID)
	}
	return nil
}

func checkDataEngine(of string, before, after v1beta2.DataEngineType) error {
	if before != "" && before != after {
		return invalid("the data engine of %s cannot be changed from %s to %s", of, before, after)
	}
	return nil
}

// CheckReplicaDeletion refuses to delete a copy that the volume cannot do without (package copies).
// engines and siblings are all engines and all replicas of the volume, nil if it is gone; nodes are
// those that the replicas are on.
func CheckReplicaDeletion(r *v1beta2.Replica, volume *v1beta2.Volume, engines []v1beta2.Engine,
	siblings []v1beta2.Replica, nodes []v1beta2.Node) error {
	if r.DeletionTimestamp != nil {
		return nil
	}
	if why := copies.Of(volume, engines, siblings, nodes).Serves(r); why != "" {
		return forbidden("%s", why)
	}
	return nil
}

// instanceFacts reads what a new engine is judged by.
func (w world) instanceFacts(ctx context.Context, volume string) (f InstanceFacts, err error) {
	if f.EngineEnabled, err = w.engineEnabled(ctx); err != nil {
		return f, err
	}
	if f.Volume, err = w.volume(ctx, volume); f.Volume == nil {
		return f, err
	}
	engines, err := w.enginesOf(ctx, volume)
	f.Engines = len(engines)
	return f, err
}

// engineEnabled says whether engines and replicas may be made at all.
func (w world) engineEnabled(ctx context.Context) (bool, error) {
	values, err := w.cachedSettings(ctx)
	return values.Bool(setting.V1DataEngine), err
}

func checkEngineRequest(ctx context.Context, w world, r request[*v1beta2.Engine]) error {
	switch {
	case r.updated():
		return CheckEngine(r.old, r.new, InstanceFacts{})
	case r.deleted():
		volume, err := w.volume(ctx, r.old.Spec.VolumeName)
		if err != nil {
			return err
		}
		engines, err := w.enginesOf(ctx, r.old.Spec.VolumeName)
		if err != nil {
			return err
		}
		return CheckEngineDeletion(r.old, volume, engines)
	}
	f, err := w.instanceFacts(ctx, r.new.Spec.VolumeName)
	if err != nil {
		return err
	}
	return CheckEngine(nil, r.new, f)
}

func checkReplicaRequest(ctx context.Context, w world, r request[*v1beta2.Replica]) error {
	switch {
	case r.updated():
		return CheckReplica(r.old, r.new, InstanceFacts{})
	case r.created():
		enabled, err := w.engineEnabled(ctx)
		if err != nil {
			return err
		}
		return CheckReplica(nil, r.new, InstanceFacts{EngineEnabled: enabled})
	}
	volume, err := w.volume(ctx, r.old.Spec.VolumeName)
	if err != nil {
		return err
	}
	siblings, err := w.replicasOf(ctx, r.old.Spec.VolumeName)
	if err != nil {
		return err
	}
	engines, err := w.enginesOf(ctx, r.old.Spec.VolumeName)
	if err != nil {
		return err
	}
	nodes, err := live.NodesOf(ctx, w, w.namespace, siblings)
	if err != nil {
		return err
	}
	return CheckReplicaDeletion(r.old, volume, engines, siblings, nodes)
}
