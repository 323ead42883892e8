package system

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

func TestErrorOfABundle(t *testing.T) {
	q := resttest.Request(t)
	wrong := []lh.Condition{{Type: "Error", Status: lh.ConditionTrue, Reason: "Why", Message: "no room"}}
	bundle := &lh.SupportBundle{Status: lh.SupportBundleStatus{Conditions: wrong}}
	if have := supportBundleView(q, bundle).ErrorMessage; have != "Why: no room" {
		t.Errorf("error %q", have)
	}
	wrong[0].Status = lh.ConditionFalse
	if have := supportBundleView(q, bundle).ErrorMessage; have != ": " {
		t.Errorf("error %q of a condition that is False", have)
	}
}
