package engineimage

import "testing"

// TestConditionThatIsTold: clients wait for the flip of condition ready, in small letters, and for
// the labels by which the image's objects are found.
func TestConditionThatIsTold(t *testing.T) {
	ei := object()
	decide(now, ei, world(ei))
	got := conditions(ei)
	if len(got) != 1 || got[0].Type != "ready" || got[0].Status != "True" {
		t.Errorf("conditions %+v, want ready, True", got)
	}
}

// TestLabels holds the labels of an EngineImage, its DaemonSet and that one's Pods.
func TestLabels(t *testing.T) {
	ei := object()
	d := world(ei).DaemonSet
	for where, labels := range map[string]map[string]string{
		"the image": ei.Labels, "the DaemonSet": d.Labels, "its Pods": d.Spec.Template.Labels,
		"the selector of its Pods": d.Spec.Selector.MatchLabels,
	} {
		for key, value := range map[string]string{
			"longhorn.io/engine-image": "ei-5c11872e", "longhorn.io/component": "engine-image",
			"longhorn.io/managed-by": "longhorn-manager",
		} {
			if labels[key] != value {
				t.Errorf("%s: label %s is %q, want %q", where, key, labels[key], value)
			}
		}
	}
}

// TestANewImageIsNoWarning: until its DaemonSet is there and ready there is nothing to tell.
func TestANewImageIsNoWarning(t *testing.T) {
	ei := object()
	s := world(ei)
	s.DaemonSet = nil
	decide(now, ei, s)
	if got := conditions(ei); len(got) != 1 || got[0].Status != "False" || !got[0].Expected {
		t.Errorf("conditions %+v, want ready, False, expected", got)
	}
}
