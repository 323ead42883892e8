// Package resttest gives tests of the API and of its clients a small cluster to look at: objects as
// the controllers would have left them, in a fake API server.
package resttest

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// Image is the engine image of the cluster.
const Image = "ankole/engine:dev"

// Created is when every object was made.
var Created = time.Date(2026, 5, 3, 9, 57, 48, 0, time.UTC)

// Meta is what every object has.
func Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: lh.Namespace, CreationTimestamp: metav1.NewTime(Created)}
}

// Client returns a fake API server with the objects.
func Client(t testing.TB, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{lh.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&lh.Volume{}, &lh.Node{}, &lh.VolumeAttachment{},
			&lh.EngineImage{}).WithInterceptorFuncs(funcs).Build()
}

// ReadyNode is a node with one disk that takes replicas.
func ReadyNode(name string) *lh.Node {
	return &lh.Node{ObjectMeta: Meta(name),
		Spec: lh.NodeSpec{Name: name, AllowScheduling: true, Tags: []string{"fast"}, Disks: map[string]lh.DiskSpec{
			"disk-1": {Path: "/var/lib/longhorn", DiskType: lh.DiskTypeFilesystem, AllowScheduling: true,
				Tags: []string{"ssd"}}}},
		Status: lh.NodeStatus{
			Conditions: []lh.Condition{{Type: lh.NodeConditionReady, Status: lh.ConditionTrue},
				{Type: lh.NodeConditionSchedulable, Status: lh.ConditionTrue}},
			DiskStatus: map[string]lh.DiskStatus{"disk-1": {DiskUUID: "uuid-" + name, StorageMaximum: 100 << 30,
				StorageAvailable: 50 << 30,
				Conditions:       []lh.Condition{{Type: lh.DiskConditionSchedulable, Status: lh.ConditionTrue}}}}}}
}

// DownNode is a node whose Kubernetes node does not answer.
func DownNode(name string) *lh.Node {
	n := ReadyNode(name)
	n.Status.Conditions = []lh.Condition{{Type: lh.NodeConditionReady, Status: lh.ConditionFalse,
		Reason: lh.NodeReasonKubernetesNodeNotReady}}
	return n
}

// DeployedImage is the engine image, deployed to some nodes.
func DeployedImage(nodes ...string) *lh.EngineImage {
	e := &lh.EngineImage{ObjectMeta: Meta(naming.EngineImageName(Image)), Spec: lh.EngineImageSpec{Image: Image},
		Status: lh.EngineImageStatus{State: lh.EngineImageStateDeployed, NodeDeploymentMap: map[string]bool{}}}
	for _, n := range nodes {
		e.Status.NodeDeploymentMap[n] = true
	}
	return e
}

// Volume is a detached volume of 1 GiB with one scheduled replica on node-1, its engine and its
// attachment, in this order: Volume, Engine, Replica, VolumeAttachment.
func Volume(name string) []client.Object {
	return []client.Object{
		&lh.Volume{ObjectMeta: Meta(name), Spec: lh.VolumeSpec{Size: 1 << 30, NumberOfReplicas: 1, Image: Image,
			Frontend: lh.VolumeFrontendBlockDev},
			Status: lh.VolumeStatus{State: lh.VolumeStateDetached, Robustness: lh.VolumeRobustnessUnknown,
				Conditions: []lh.Condition{{Type: lh.VolumeConditionScheduled, Status: lh.ConditionTrue}}}},
		&lh.Engine{ObjectMeta: Meta(name + "-e-0"),
			Spec: lh.EngineSpec{Active: true, InstanceSpec: lh.InstanceSpec{VolumeName: name, Image: Image}}},
		&lh.Replica{ObjectMeta: Meta(name + "-r-11111111"),
			Spec: lh.ReplicaSpec{Active: true, DiskID: "uuid-node-1", DiskPath: "/var/lib/longhorn/",
				DataDirectoryName: name + "-22222222", InstanceSpec: lh.InstanceSpec{VolumeName: name, NodeID: "node-1",
					Image: Image, DataEngine: lh.DataEngineTypeV1}}},
		&lh.VolumeAttachment{ObjectMeta: Meta(name), Spec: lh.VolumeAttachmentSpec{Volume: name}},
	}
}

// Attach changes the objects of Volume to what they are on an attached volume.
func Attach(objects []client.Object, node, endpoint string) {
	v, e, r := objects[0].(*lh.Volume), objects[1].(*lh.Engine), objects[2].(*lh.Replica)
	a := objects[3].(*lh.VolumeAttachment)
	v.Spec.NodeID, v.Status.CurrentNodeID, e.Spec.NodeID = node, node, node
	v.Status.State, v.Status.Robustness, v.Status.CurrentImage = lh.VolumeStateAttached, lh.VolumeRobustnessHealthy, Image
	e.Status.Endpoint, e.Status.CurrentSize = endpoint, v.Spec.Size
	e.Status.CurrentState, e.Status.IP = lh.InstanceStateRunning, "127.0.1.1"
	e.Status.ReplicaModeMap = map[string]lh.ReplicaMode{r.Name: lh.ReplicaModeRW}
	r.Status.CurrentState, r.Status.IP = lh.InstanceStateRunning, "127.0.1.1"
	a.Spec.AttachmentTickets = map[string]lh.AttachmentTicket{"": {NodeID: node, Type: lh.AttacherTypeLonghornAPI}}
}

// Attached is volume demo on node-1.
func Attached() []client.Object {
	objects := Volume("demo")
	Attach(objects, "node-1", "/dev/longhorn/demo")
	objects[0].(*lh.Volume).Spec.DataLocality = lh.DataLocalityDisabled
	objects[2].(*lh.Replica).Spec.HealthyAt = "2026-05-03T10:00:00Z"
	return objects
}

// Cluster is two ready nodes, one that is down, the engine image on the ready ones, and whatever
// else is given.
func Cluster(more ...client.Object) []client.Object {
	return append([]client.Object{ReadyNode("node-1"), ReadyNode("node-2"), DownNode("node-3"),
		DeployedImage("node-1", "node-2")}, more...)
}
