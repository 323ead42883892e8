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

// TestANewNodeIsNoWarning: what a node lacks at its beginning, or what no volume has a use for, is
// expected; what keeps it from work is not.
func TestANewNodeIsNoWarning(t *testing.T) {
	unexpected := func(n *v1beta2.Node) (out []string) {
		for _, c := range conditions(n) {
			if c.Status != "True" && !c.Expected {
				out = append(out, strings.TrimSpace(c.Of+" "+c.Type)+" "+c.Reason)
			}
		}
		return out
	}
	// fresh is a node of which leader and agent have seen this for the first time.
	fresh := func(f DiskFacts, edit func(*seen)) *v1beta2.Node {
		n, s := storageNode(), healthy()
		n.Status = v1beta2.NodeStatus{}
		edit(&s)
		decide(now, n, s)
		decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{"d": f}, Host: []v1beta2.Condition{
			lacking(v1beta2.NodeConditionKernelModulesLoaded, v1beta2.NodeReasonKernelModulesNotLoaded, ""),
			lacking(v1beta2.NodeConditionNFSClientInstalled, v1beta2.NodeReasonNFSClientIsNotFound, ""),
		}})
		decide(now, n, s)
		return n
	}
	unprepared := DiskFacts{FilesystemID: "1"}
	full := DiskFacts{FilesystemID: "1", Unprepared: "no space left on device"}
	for _, tt := range []struct {
		name  string
		facts DiskFacts
		edit  func(*seen)
		want  string
	}{
		{"new", unprepared, func(*seen) {}, ""},
		{"its manager is not there yet", unprepared, func(s *seen) { s.ManagerPod = nil }, ""},
		{"gone", unprepared, func(s *seen) { s.KubeNode = nil }, "Ready KubernetesNodeGone"},
		{"a disk cannot be prepared", full, func(*seen) {}, "disk d Ready NoDiskInfo"},
	} {
		n := fresh(tt.facts, tt.edit)
		if got := strings.Join(unexpected(n), ","); got != tt.want {
			t.Errorf("%s: warns of %q, want %q; conditions %+v", tt.name, got, tt.want, conditions(n))
		}
		if len(conditions(n)) != 6 {
			t.Errorf("%s: conditions %+v, want those of node, host and disk", tt.name, conditions(n))
		}
	}
}
