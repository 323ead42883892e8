package admission

import (
	"maps"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

func orphanOf(kind v1beta2.OrphanType, engine v1beta2.DataEngineType, parameters map[string]string) *v1beta2.Orphan {
	return named(&v1beta2.Orphan{}, "o", nil, func(o *v1beta2.Orphan) {
		o.Spec = v1beta2.OrphanSpec{NodeID: "n1", OrphanType: kind, DataEngine: engine, Parameters: parameters}
	})
}

var (
	ofData = map[string]string{"DataName": "v-1a2b3c4d", "DiskName": "d", "DiskUUID": "u", "DiskPath": "/p",
		"DiskType": "filesystem"}
	ofInstance = map[string]string{"InstanceName": "v-e-0", "InstanceUUID": "u", "InstanceManager": "im-1"}
)

// TestOrphans: an orphan says what it stands for, of a type that is known, and that never changes.
func TestOrphans(t *testing.T) {
	w, plural := worldOf(t), "orphans"
	for kind, whole := range map[v1beta2.OrphanType]map[string]string{"replica": ofData, "engine-instance": ofInstance,
		"replica-instance": ofInstance} {
		expect(t, string(kind), asked(t, w, plural, nil, orphanOf(kind, "v1", whole)), "")
		for key := range whole {
			for _, empty := range []bool{true, false} {
				some := maps.Clone(whole)
				if delete(some, key); empty {
					some[key] = ""
				}
				expect(t, string(kind)+" without "+key, asked(t, w, plural, nil, orphanOf(kind, "v1", some)),
					"spec.parameters."+key+" is missing or empty")
			}
		}
	}
	expect(t, "type", asked(t, w, plural, nil, orphanOf("snapshot", "v1", ofData)), `spec.orphanType "snapshot" is not`)
	expect(t, "data without engine", asked(t, w, plural, nil, orphanOf("replica", "", ofData)), "")
	for _, kind := range []v1beta2.OrphanType{"engine-instance", "replica-instance"} {
		expect(t, "instance without engine", asked(t, w, plural, nil, orphanOf(kind, "", ofInstance)),
			"spec.dataEngine is missing")
	}
	before := orphanOf("replica", "", ofData)
	labelled := before.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	expect(t, "labels change", asked(t, w, plural, before, labelled), "")
	other := before.DeepCopy()
	other.Spec.NodeID = "n2"
	expect(t, "spec changes", asked(t, w, plural, before, other), "spec cannot be changed")
}

// TestOrphansAreCompleted: labels by type at creation, the finalizer always.
func TestOrphansAreCompleted(t *testing.T) {
	w, plural := worldOf(t), "orphans"
	var none *v1beta2.Orphan
	for _, tt := range []struct {
		kind       v1beta2.OrphanType
		parameters map[string]string
		labels     map[string]string
	}{
		{"replica", ofData, map[string]string{}},
		{"engine-instance", ofInstance, map[string]string{"longhornengine": "v-e-0", "longhorninstancemanager": "im-1"}},
		{"replica-instance", ofInstance, map[string]string{"longhornreplica": "v-e-0", "longhorninstancemanager": "im-1"}},
	} {
		maps.Copy(tt.labels, map[string]string{"longhorn.io/component": "orphan",
			"longhorn.io/managed-by": "longhorn-manager", "longhornnode": "n1", "longhorn.io/orphan-type": string(tt.kind)})
		o := orphanOf(tt.kind, "v1", tt.parameters)
		completes(t, string(tt.kind), w, plural, none, o, func(o *v1beta2.Orphan) {
			o.Finalizers, o.Labels = finalizer, tt.labels
		})
		completes(t, string(tt.kind)+" changed", w, plural, o, o, func(o *v1beta2.Orphan) { o.Finalizers = finalizer })
	}
}
