package admission

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// mayBeNothing are fields of a volume's spec that a change empties when it does not name them,
// since nothing is a value of theirs: snapshotMaxCount 0 asks for that of the setting.
var mayBeNothing = map[string]bool{"nodeID": true, "migrationNodeID": true, "lastAttachedBy": true, "fromBackup": true,
	"backingImage": true, "snapshotHashingRequestedAt": true, "snapshotMaxCount": true}

// TestAbsentFieldsStay: a change that leaves a field out, or has null for it, is accepted, and the
// volume keeps what it had where nothing is no value.
func TestAbsentFieldsStay(t *testing.T) {
	w := worldOf(t, standing()...)
	old := newVolume(func(v *v1beta2.Volume) {
		p := &v.Spec
		p.Size, p.NumberOfReplicas, p.DataLocality, p.BackupTargetName = 32<<20, 2, "best-effort", "mine"
		p.BackupBlockSize, p.BackupCompressionMethod, p.SnapshotMaxCount = v1beta2.BackupBlockSize16Mi, "lz4", 7
		p.DataSource, p.CloneMode, p.AccessMode, p.Frontend = "vol://a", "full-copy", "rwx", "blockdev" // no defaults
		p.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "z", Region: "r"}}
		p.ReplicaZoneSoftAntiAffinity, p.Image, p.EngineImage = "enabled", "e", "e"
		v.Status.State = v1beta2.VolumeStateAttached
	})
	MutateVolume(old, old, setting.Values{setting.DefaultEngineImage: "e"})
	stored := encoded(t, old)
	var whole map[string]any
	if err := json.Unmarshal(stored, &whole); err != nil {
		t.Fatal(err)
	}
	spec := whole["spec"].(map[string]any)
	for field, had := range spec {
		for _, how := range []string{"absent", "null"} {
			delete(spec, field)
			if how == "null" {
				spec[field] = nil
			}
			sent, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			text := patched(t, w, "volumes", admissionv1.Update, string(stored), string(sent))
			var got v1beta2.Volume
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%s %s: %v", field, how, err)
			}
			if err := CheckVolume(old, &got, VolumeFacts{}); err != nil {
				t.Errorf("%s %s: %v", field, how, err)
			}
			now := map[string]any{}
			if err := json.Unmarshal(encoded(t, &got), &now); err != nil {
				t.Fatal(err)
			}
			is, _ := json.Marshal(now["spec"].(map[string]any)[field])
			was, _ := json.Marshal(had)
			if string(is) != string(was) && !mayBeNothing[field] && !strings.Contains(string(is), "ignored") {
				t.Errorf("%s %s: it is %s, and was %s", field, how, is, was)
			}
		}
		spec[field] = had
	}
}

// TestDiskOfAReplicaStays: a replica with a place keeps its disk.
func TestDiskOfAReplicaStays(t *testing.T) {
	placed := func(edit func(*v1beta2.ReplicaSpec)) *v1beta2.Replica {
		r := &v1beta2.Replica{}
		r.Name, r.Spec.NodeID, r.Spec.DiskID = "r", "n", "d"
		edit(&r.Spec)
		return r
	}
	old := placed(func(*v1beta2.ReplicaSpec) {})
	expect(t, "disk", CheckReplica(old, placed(func(s *v1beta2.ReplicaSpec) { s.DiskID = "" }), InstanceFacts{}),
		"spec.diskID cannot be taken away")
	expect(t, "place", CheckReplica(old, placed(func(s *v1beta2.ReplicaSpec) { s.NodeID, s.DiskID = "", "" }),
		InstanceFacts{}), "spec.diskID cannot be taken away")
	deleted := deleting(placed(func(s *v1beta2.ReplicaSpec) { s.DiskID = "" }))
	expect(t, "deleted", CheckReplica(old, deleted, InstanceFacts{}), "")
}

// TestObjectsOfOlderVersionsCanBeChanged: what an object of another kind never had, or a change
// does not name, is completed.
func TestObjectsOfOlderVersionsCanBeChanged(t *testing.T) {
	w := worldOf(t, standing()...)
	const meta = `{"metadata":{"name":"x","namespace":"longhorn-system","labels":{"longhornvolume":"one"}},"spec":`
	for _, tt := range []struct{ plural, old, sent, want string }{
		{"nodes", `{"disks":{}}`, `{"disks":{},"name":null}`, `"name":"x"`},
		{"volumeattachments", `{"volume":"one","attachmentTickets":{"a":{"id":"a"}}}`,
			`{"volume":null,"attachmentTickets":{"a":{"nodeID":"n"}}}`, `"volume":"one"`},
		{"snapshots", `{"volume":"one"}`, `{"labels":null}`, `"volume":"one"`},
		{"orphans", `{"nodeID":"n","orphanType":"replica","parameters":{"DataName":"d"}}`, `{"nodeID":"n"}`,
			`"orphanType":"replica"`},
		{"engines", `{"image":"i"}`, `{"image":null}`, `"image":"i"`},
		{"replicas", `{"image":"i","nodeID":"n","diskID":"d"}`, `{"nodeID":"n","diskID":"d"}`, `"image":"i"`},
		{"instancemanagers", `{"nodeID":"n"}`, `{"nodeID":"n","dataEngine":null}`, `"dataEngine":"v1"`},
	} {
		old, sent := meta+tt.old+"}", meta+tt.sent+"}"
		stored := patched(t, w, tt.plural, admissionv1.Update, old, sent)
		if !strings.Contains(stored, tt.want) {
			t.Errorf("%s: %s lacks %s", tt.plural, stored, tt.want)
		}
		h, err := byPlural(tt.plural)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.validate(t.Context(), w, admissionv1.Update, []byte(old), []byte(stored)); err != nil {
			t.Errorf("%s: %v", tt.plural, err)
		}
	}
}
