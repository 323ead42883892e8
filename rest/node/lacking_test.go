package node_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// TestNodeLacksWhatVolumesNeed: a node without dm_crypt waits for it from the first encrypted
// volume on, which those who follow the nodes hear of.
func TestNodeLacksWhatVolumesNeed(t *testing.T) {
	const lacks = "[KernelModulesLoaded: modprobe dm_crypt]"
	objects := func(encrypted bool) []client.Object {
		n, volume := resttest.ReadyNode("node-1"), resttest.Volume("demo")
		n.Status.Conditions = append(n.Status.Conditions, lh.Condition{Type: lh.NodeConditionKernelModulesLoaded,
			Status: lh.ConditionFalse, Reason: lh.NodeReasonKernelModulesNotLoaded, Message: "modprobe dm_crypt"})
		volume[0].(*lh.Volume).Spec.Encrypted = encrypted
		return append(volume, n)
	}
	for encrypted, want := range map[bool]string{false: "[]", true: lacks} {
		f := newFixture(t, objects(encrypted)...)
		if got := fmt.Sprint(f.Get("/v1/nodes/node-1")["waitsFor"]); got != want {
			t.Errorf("encrypted %t: the node waits for %s, want %s", encrypted, got, want)
		}
	}

	f, cache := apitest.NewLeader(t, objects(false)...)
	conn := f.Follow("/v1/ws/nodes")
	for _, want := range []string{"[]", lacks} {
		var list struct{ Data []struct{ WaitsFor []string } }
		if err := conn.ReadJSON(&list); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(list.Data[0].WaitsFor); got != want {
			t.Errorf("who follows the nodes hears that one waits for %s, want %s", got, want)
		}
		cache.Put(t, objects(true)[0], false)
	}
}
