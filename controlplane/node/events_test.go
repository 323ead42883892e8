package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestEvictionIsNoWarning: that replicas leave a node, or stay after all, is what a person or the
// drain policy asks for.
func TestEvictionIsNoWarning(t *testing.T) {
	want := map[string]func(*v1beta2.Node, *seen){
		"EvictionUserRequested": func(n *v1beta2.Node, _ *seen) { n.Spec.EvictionRequested = true },
		"EvictionAutomatic": func(_ *v1beta2.Node, s *seen) {
			s.KubeNode.Spec.Unschedulable, s.DrainPolicy = true, "block-for-eviction"
		},
		"EvictionCanceled": func(_ *v1beta2.Node, s *seen) { s.Replicas[0].Spec.EvictionRequested = true },
	}
	for reason, edit := range want {
		n, s := storageNode(), healthy()
		s.Replicas = []v1beta2.Replica{replica("r1", "n1", "uuid-d", gib)}
		edit(n, &s)
		d := decide(now, n, s)
		if len(d.Events) != 1 || d.Events[0].Reason != reason || d.Events[0].Warning {
			t.Errorf("events %+v, want %s, Normal", d.Events, reason)
		}
	}
}

// TestRemovalOfANodeIsAWarning holds the event of a Node that goes.
func TestRemovalOfANodeIsAWarning(t *testing.T) {
	n, s := storageNode(), healthy()
	n.Finalizers, n.DeletionTimestamp = []string{"longhorn.io"}, &metav1.Time{Time: now}
	d := decide(now, n, s)
	if d.Do == nil || len(d.Events) != 1 || d.Events[0].Reason != "Delete" || !d.Events[0].Warning {
		t.Errorf("does %v, events %+v, want Delete, Warning", d.Do, d.Events)
	}
}

// TestConditionsThatAreTold: a flip of each of these conditions gives an event.
func TestConditionsThatAreTold(t *testing.T) {
	n, s := storageNode(), healthy()
	h := Host{Resolve: func(string) string { return t.TempDir() }}
	decideAgent(now, n, agentSeen{Host: h.Checks(nil), Facts: map[string]DiskFacts{"d": facts("uuid-d", "1")}})
	decide(now.Add(time.Second), n, s)
	var got []string
	for _, c := range conditions(n) {
		got = append(got, strings.TrimSpace(c.Of+" "+c.Type))
	}
	slices.Sort(got)
	want := []string{"KernelModulesLoaded", "MountPropagation", "Multipathd", "NFSClientInstalled", "Ready",
		"RequiredPackages", "Schedulable", "disk d Ready", "disk d Schedulable"}
	if !slices.Equal(got, want) {
		t.Errorf("conditions %q, want %q", got, want)
	}
}
