//go:build !nolegacy

package metrics

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

const (
	connectionMetric = "longhorn_instance_manager_proxy_grpc_connection"
	legacyServed     = true
)

// legacyObjects are an instance manager of the older type engine with an engine in it.
func legacyObjects(node string) []client.Object {
	im := &lh.InstanceManager{ObjectMeta: meta("instance-manager-e-1"), Spec: lh.InstanceManagerSpec{NodeID: node,
		Type: lh.InstanceManagerTypeEngine}}
	im.Status.CurrentState, im.Status.IP, im.Status.ProxyAPIVersion = lh.InstanceManagerStateRunning, "ip-of-old", 1
	pod := &corev1.Pod{ObjectMeta: meta(im.Name)}
	pod.Labels = map[string]string{naming.LabelComponent: naming.ComponentInstanceManager}
	v := volumeObjects("old", node)
	v[1].(*lh.Engine).Status.InstanceManagerName = im.Name
	return append(v, im, pod)
}

// TestConnections: connections count for instance managers of type engine, and for no other.
func TestConnections(t *testing.T) {
	b := fullBed(t)
	want := connectionMetric + `{instance_manager="instance-manager-e-1",instance_manager_type="engine",node="node-1"} `
	text := b.text()
	expect(t, text, want+"1")
	if n := len(lines(text, connectionMetric)); n != 1 {
		t.Errorf("%d samples", n)
	}
	if err := b.client.Delete(t.Context(), &lh.Volume{ObjectMeta: meta("old")}); err != nil {
		t.Fatal(err)
	}
	b.text() // notices that no engine is asked there
	expect(t, b.text(), want+"0")
}
