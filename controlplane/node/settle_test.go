package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"ankole.storage/api/longhorn/v1beta2"
)

// pens draws a node, what the leader sees of it and what its agent sees.
func pens(t *rapid.T) (*v1beta2.Node, seen, agentSeen) {
	flip := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
	n, s := storageNode(), healthy()
	s.DefaultManager.Name = "im"
	if flip("manager down") {
		s.ManagerPod = managerPod(corev1.ConditionFalse)
	}
	if flip("kube gone") {
		s.KubeNode = nil
	}
	if flip("new disk") {
		n.Spec.Disks["e"] = v1beta2.DiskSpec{Path: "/e"}
	}
	if flip("disk removed") {
		delete(n.Spec.Disks, "d")
	}
	if flip("replicas") {
		s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", rapid.Int64Range(0, 200*gib).Draw(t, "size"))}
	}
	a := agentSeen{Facts: map[string]DiskFacts{}}
	for name := range n.Spec.Disks {
		f := facts(rapid.SampledFrom([]string{"", "uuid-d", "other"}).Draw(t, "uuid of "+name), name)
		if flip("trouble with " + name) {
			f = DiskFacts{Problem: "gone"}
		}
		a.Facts[name] = f
	}
	n.Spec.Tags = []string{"t"}
	return n, s, a
}

// Leader and agent write one status in turns. However they begin, they come to rest: nobody undoes
// what the other wrote.
func TestTwoWritersComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, s, a := pens(t)
		leaderFirst := rapid.Bool().Draw(t, "leader first")
		turn := func() {
			if leaderFirst {
				decide(now, n, s)
			}
			decideAgent(now, n, a)
			decide(now, n, s)
		}
		turn()
		turn()
		rest := n.DeepCopy()
		for range 3 {
			decideAgent(now.Add(time.Hour), n, a)
			if !equality.Semantic.DeepEqual(rest, n) {
				t.Fatalf("the agent goes on\n%+v\n%+v", rest.Status, n.Status)
			}
			decide(now.Add(time.Hour), n, s)
			if !equality.Semantic.DeepEqual(rest, n) {
				t.Fatalf("the leader goes on\n%+v\n%+v", rest.Status, n.Status)
			}
		}
	})
}
