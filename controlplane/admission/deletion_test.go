package admission

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// engineOf is an engine of volume one.
func engineOf(name string, edit func(*v1beta2.Engine)) *v1beta2.Engine {
	return named(&v1beta2.Engine{}, name, naming.VolumeLabels("one"), func(e *v1beta2.Engine) {
		e.Spec.VolumeName, e.Spec.Active = "one", true
		e.Spec.DesireState, e.Status.CurrentState = v1beta2.InstanceStateStopped, v1beta2.InstanceStateStopped
		edit(e)
	})
}

// recorded gives an engine a record of a volume.
func recorded(epoch int64, uid string) func(*v1beta2.Engine) {
	return func(e *v1beta2.Engine) {
		e.Status.Membership = &v1beta2.Membership{VolumeUUID: uid, Epoch: epoch, Generation: 1, Members: []string{"a"}}
	}
}

// TestEngineDeletion: an engine goes with its volume. One that serves, or that has the only record
// of which copies are current, is deleted by nobody else.
func TestEngineDeletion(t *testing.T) {
	const serves, record = "serves volume one", "has the record"
	runs := engineOf("e", func(e *v1beta2.Engine) { e.Status.CurrentState = v1beta2.InstanceStateRunning })
	stopped := engineOf("e", recorded(3, "uid"))
	leaving := deleting(engineOf("f", recorded(4, "uid")))
	leaving.Finalizers = finalizer
	volume := namedVolume("one", func(v *v1beta2.Volume) { v.UID = "uid" })
	dying := deleting(namedVolume("one", func(v *v1beta2.Volume) { v.Finalizers = finalizer }))
	for _, tt := range []struct {
		name   string
		engine *v1beta2.Engine
		volume *v1beta2.Volume
		other  *v1beta2.Engine
		want   string
	}{
		{"it runs", runs, volume, nil, serves},
		{"it is to run", engineOf("e", func(e *v1beta2.Engine) { e.Spec.DesireState = v1beta2.InstanceStateRunning }),
			volume, nil, serves},
		{"nobody knows whether it runs",
			engineOf("e", func(e *v1beta2.Engine) { e.Status.CurrentState = v1beta2.InstanceStateUnknown }), volume, nil,
			serves},
		{"stopped, with the record", stopped, volume, nil, record},
		{"stopped, another one has an older record", stopped, volume, engineOf("f", recorded(2, "uid")), record},
		{"stopped, another one has a newer record", stopped, volume, engineOf("f", recorded(4, "uid")), ""},
		{"that one is being deleted", stopped, volume, leaving, record},
		{"the record is that of another volume of the name", engineOf("e", recorded(3, "former")), volume, nil, ""},
		{"it has never run", engineOf("e", func(*v1beta2.Engine) {}), volume, nil, ""},
		{"it stands in for another in a migration", engineOf("e", func(e *v1beta2.Engine) {
			e.Spec.Active, e.Spec.StandInFor, e.Status.CurrentState = false, "1.2.3.4:1", v1beta2.InstanceStateRunning
		}), volume, nil, ""},
		{"asked for again", deleting(runs.DeepCopy()), volume, nil, ""},
		{"its volume is being deleted", runs, dying, nil, ""},
		{"it has no volume", runs, nil, nil, ""},
	} {
		before := tt.engine.DeepCopy()
		before.Finalizers = finalizer
		objects := []client.Object{before}
		if tt.volume != nil {
			objects = append(objects, tt.volume)
		}
		if tt.other != nil {
			objects = append(objects, tt.other)
		}
		expect(t, tt.name, asked(t, worldOf(t, objects...), "engines", tt.engine, nil), tt.want)
	}
}

// TestAttachmentDeletion: an attachment under which a volume is attached, or asked for, stays.
func TestAttachmentDeletion(t *testing.T) {
	attachment := func(tickets ...string) *v1beta2.VolumeAttachment {
		return named(&v1beta2.VolumeAttachment{}, "one", nil, func(a *v1beta2.VolumeAttachment) {
			a.Spec.Volume, a.Spec.AttachmentTickets = "one", map[string]v1beta2.AttachmentTicket{}
			for _, id := range tickets {
				a.Spec.AttachmentTickets[id] = v1beta2.AttachmentTicket{ID: id, Type: v1beta2.AttacherTypeCSI, NodeID: "n-one"}
			}
		})
	}
	attached := namedVolume("one", nil)
	detached := namedVolume("one", func(v *v1beta2.Volume) {
		v.Spec.NodeID, v.Status.State = "", v1beta2.VolumeStateDetached
	})
	dying := deleting(namedVolume("one", func(v *v1beta2.Volume) { v.Finalizers = finalizer }))
	for _, tt := range []struct {
		name       string
		attachment *v1beta2.VolumeAttachment
		volume     *v1beta2.Volume
		want       string
	}{
		{"attached", attachment("csi-1"), attached, "csi-1 for node n-one"},
		{"attached, its tickets are gone", attachment(), attached, "is attached to node n-one"},
		{"asked for", attachment("csi-2", "csi-1"), detached, "csi-1 for node n-one, csi-2 for node n-one"},
		{"at rest", attachment(), detached, ""},
		{"asked for again", deleting(attachment("csi-1")), attached, ""},
		{"its volume is being deleted", attachment("csi-1"), dying, ""},
		{"it has no volume", attachment("csi-1"), nil, ""},
	} {
		var objects []client.Object
		if tt.volume != nil {
			objects = append(objects, tt.volume)
		}
		expect(t, tt.name, asked(t, worldOf(t, objects...), "volumeattachments", tt.attachment, nil), tt.want)
	}
}

// TestInstanceManagerDeletion: an instance manager in whose Pod processes run stays, unless its
// node is lost.
func TestInstanceManagerDeletion(t *testing.T) {
	process := func(state v1beta2.InstanceState) map[string]v1beta2.InstanceProcess {
		return map[string]v1beta2.InstanceProcess{"v-e-0": {Status: v1beta2.InstanceProcessStatus{State: state}}}
	}
	manager := func(status v1beta2.InstanceManagerStatus) *v1beta2.InstanceManager {
		return named(&v1beta2.InstanceManager{}, "im", nil, func(im *v1beta2.InstanceManager) {
			im.Spec.NodeID, im.Status = "n-one", status
		})
	}
	running := process(v1beta2.InstanceStateRunning)
	serves := manager(v1beta2.InstanceManagerStatus{InstanceEngines: running})
	leaving := deleting(serves.DeepCopy())
	leaving.Finalizers = finalizer
	up := named(nodeWith(), "n-one", nil, nil)
	down := named(nodeWith(), "n-one", nil, func(n *v1beta2.Node) {
		n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionFalse,
			Reason: v1beta2.NodeReasonKubernetesNodeGone}}
	})
	const refused = "serves engines and replicas (v-e-0)"
	for _, tt := range []struct {
		name string
		im   *v1beta2.InstanceManager
		node *v1beta2.Node
		want string
	}{
		{"an engine runs", serves, up, refused},
		{"a replica starts", manager(v1beta2.InstanceManagerStatus{
			InstanceReplicas: process(v1beta2.InstanceStateStarting)}), up, refused},
		{"of an older kind", manager(v1beta2.InstanceManagerStatus{
			LegacyInstanceManagerStatus: v1beta2.LegacyInstanceManagerStatus{Instances: running}}), up, refused},
		{"nobody hears from it", manager(v1beta2.InstanceManagerStatus{
			CurrentState: v1beta2.InstanceManagerStateUnknown, InstanceEngines: running}), up, refused},
		{"its processes have ended", manager(v1beta2.InstanceManagerStatus{
			InstanceEngines: process(v1beta2.InstanceStateError)}), up, ""},
		{"nothing runs", manager(v1beta2.InstanceManagerStatus{}), up, ""},
		{"its node is lost", serves, down, ""},
		{"its node is gone", serves, nil, ""},
		{"asked for again", leaving, up, ""},
	} {
		var objects []client.Object
		if tt.node != nil {
			objects = append(objects, tt.node)
		}
		expect(t, tt.name, asked(t, worldOf(t, objects...), "instancemanagers", tt.im, nil), tt.want)
	}
}
