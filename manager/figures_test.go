package manager

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestLeaderIsFoundInTheCache: a scrape, or the hand-over of a request, asks the API server for
// nothing. The process has no client for that here, so a question would end the test.
func TestLeaderIsFoundInTheCache(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name, ip string, ready corev1.ConditionStatus) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		p.Status.PodIP = ip
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	off := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
		Name: setting.KubernetesMetricsServerMetricsEnabled}, Value: "false"}
	var objects client.Reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(off,
		pod("ready", "10.0.0.1", corev1.ConditionTrue), pod("ending", "10.0.0.2", corev1.ConditionFalse),
		pod("early", "", corev1.ConditionTrue)).Build()
	p := &control{cfg: Config{Common: Common{Namespace: "ns", PodName: "own"}}, who: &Leadership{self: "own"}}
	for _, filled := range []bool{false, true} {
		if filled {
			p.settings.Store(&objects)
		}
		for leader, want := range map[string]string{"": "", "own": "", "ready": "10.0.0.1:9502", "ending": "", "early": "",
			"gone": ""} {
			p.who.leader.Store(leader)
			if !filled {
				want = ""
			}
			if got, err := p.leaderAddress(t.Context()); got != want || (err == nil) != (want != "") {
				t.Errorf("cache filled %v, leader %q: %q, %v", filled, leader, got, err)
			}
			target := p.leaderFor(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1", nil))
			if (target != nil) != (want != "") || target != nil && target.Host != want {
				t.Errorf("cache filled %v, leader %q: requests go to %+v, want %q", filled, leader, target, want)
			}
		}
	}
	if p.usageWanted(t.Context()) {
		t.Error("the setting is off")
	}
	p.settings.Store(nil)
	if p.usageWanted(t.Context()) {
		t.Error("nobody knows the setting")
	}
	if p.leaderReader() != nil || p.stateOf("demo-e-0") != nil {
		t.Error("a manager that does not lead has objects")
	}
	p.who.cached.Store(&cached{Reader: objects})
	first := p.leaderReader()
	if second := p.leaderReader(); first == nil || first != second {
		t.Error("the cache of a leader is not the same each time")
	}
}
