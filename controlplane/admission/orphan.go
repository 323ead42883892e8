package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var orphans = kind[*v1beta2.Orphan]{
	plural:     "orphans",
	create:     func() *v1beta2.Orphan { return &v1beta2.Orphan{} },
	onValidate: createUpdate,
	onMutate:   createUpdate,
	mutator:    mutateOrphan,
	checker: func(_ context.Context, _ world, r request[*v1beta2.Orphan]) error {
		if r.created() {
			return CheckNewOrphan(r.new)
		}
		return checkOrphanUpdate(r.old, r.new)
	},
}

// orphanParameters are what an orphan of each type has to say of what it stands for.
var orphanParameters = map[v1beta2.OrphanType][]string{
	v1beta2.OrphanTypeReplicaData: {v1beta2.OrphanParameterDataName, v1beta2.OrphanParameterDiskName,
		v1beta2.OrphanParameterDiskUUID, v1beta2.OrphanParameterDiskPath, v1beta2.OrphanParameterDiskType},
	v1beta2.OrphanTypeEngineInstance: {v1beta2.OrphanParameterInstanceName, v1beta2.OrphanParameterInstanceUUID,
		v1beta2.OrphanParameterInstanceManager},
	v1beta2.OrphanTypeReplicaInstance: {v1beta2.OrphanParameterInstanceName, v1beta2.OrphanParameterInstanceUUID,
		v1beta2.OrphanParameterInstanceManager},
}

// CheckNewOrphan refuses an orphan that does not say what it stands for.
func CheckNewOrphan(o *v1beta2.Orphan) error {
	wanted, known := orphanParameters[o.Spec.OrphanType]
	if !known {
		return invalid("orphan %s: spec.orphanType %q is not replica, engine-instance or replica-instance", o.Name,
			o.Spec.OrphanType)
	}
	for _, key := range wanted {
		if o.Spec.Parameters[key] == "" {
			return invalid("orphan %s of type %s: spec.parameters.%s is missing or empty", o.Name, o.Spec.OrphanType, key)
		}
	}
	if o.Spec.OrphanType != v1beta2.OrphanTypeReplicaData && o.Spec.DataEngine == "" {
		return invalid("orphan %s of type %s: spec.dataEngine is missing", o.Name, o.Spec.OrphanType)
	}
	return nil
}

func checkOrphanUpdate(old, o *v1beta2.Orphan) error {
	if !equality.Semantic.DeepEqual(old.Spec, o.Spec) {
		return invalid("orphan %s: spec cannot be changed; delete it to remove what it stands for", o.Name)
	}
	return nil
}

func mutateOrphan(_ context.Context, _ world, r request[*v1beta2.Orphan]) error {
	o := r.new
	addFinalizer(o)
	if !r.created() {
		orElse(&o.Spec.NodeID, r.old.Spec.NodeID)
		orElse(&o.Spec.OrphanType, r.old.Spec.OrphanType)
		orElse(&o.Spec.DataEngine, r.old.Spec.DataEngine)
		if o.Spec.Parameters == nil {
			o.Spec.Parameters = r.old.Spec.Parameters
		}
		return nil
	}
	s := o.Spec
	switch of := s.Parameters; s.OrphanType {
	case v1beta2.OrphanTypeReplicaData:
		addLabels(o, naming.OrphanLabels(s.NodeID, string(s.OrphanType)))
	case v1beta2.OrphanTypeEngineInstance:
		addLabels(o, naming.OrphanInstanceLabels(s.NodeID, string(s.OrphanType), of[v1beta2.OrphanParameterInstanceManager],
			naming.LabelEngine, of[v1beta2.OrphanParameterInstanceName]))
	case v1beta2.OrphanTypeReplicaInstance:
		addLabels(o, naming.OrphanInstanceLabels(s.NodeID, string(s.OrphanType), of[v1beta2.OrphanParameterInstanceManager],
			naming.LabelReplica, of[v1beta2.OrphanParameterInstanceName]))
	}
	return nil
}
