package loop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/test/wait"
)

// kept is an API server for events: those there are by name.
type kept struct {
	mu     sync.Mutex
	events map[string]*corev1.Event
}

// Create keeps an event.
func (k *kept) Create(e *corev1.Event) (*corev1.Event, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events[e.Name] = e.DeepCopy()
	return e, nil
}

// Update keeps an event in place of the former one.
func (k *kept) Update(e *corev1.Event) (*corev1.Event, error) { return k.Create(e) }

// Patch changes an event.
func (k *kept) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e, json.Unmarshal(patch, k.events[e.Name])
}

// all are the events with how often each was told.
func (k *kept) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for e := range maps.Values(k.events) {
		out = append(out, fmt.Sprintf("%s %s: %d", e.Type, e.Reason, e.Count))
	}
	slices.Sort(out)
	return out
}

// TestRepeatedEventsAreCounted: what a controller tells again and again is one Event object with a
// count, through the recorder that managers have.
func TestRepeatedEventsAreCounted(t *testing.T) {
	status := corev1.ConditionTrue
	w := newWorld(t, func(_ time.Time, p *corev1.Pod, _ int) Decision {
		setReady(p, status)
		return Decision{}
	}, interceptor.Funcs{})
	k := &kept{events: map[string]*corev1.Event{}}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(k)
	w.r.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "longhorn-test-controller"})
	w.step(t)
	const flips = 5
	for range flips {
		for _, status = range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
			w.step(t)
		}
	}
	want := fmt.Sprintf("Normal Ready: %d,Warning Ready: %[1]d", flips)
	wait.Until(t, "events "+want, func() bool { return strings.Join(k.all(), ",") == want })
}

// TestWhatIsExpectedIsNoNews: a condition that begins as expected is told of when it becomes True,
// or is not True for another reason.
func TestWhatIsExpectedIsNoNews(t *testing.T) {
	of := func(status, reason string) []Condition {
		return Expect([]Condition{{Type: "Ready", Status: status, Reason: reason}}, "Ready", "Starting", "Missing")
	}
	isTrue, failed := of("True", ""), of("False", "Failed")
	starting, missing := of("False", "Starting"), of("False", "Missing")
	for _, tt := range []struct {
		name          string
		before, after []Condition
		want          string // the type of the event
	}{
		{"appears", nil, starting, ""},
		{"goes on", starting, missing, ""},
		{"goes well", starting, isTrue, "Normal"},
		{"goes wrong", starting, failed, "Warning"},
		{"goes wrong at once", nil, failed, "Warning"},
		{"stays wrong", failed, failed, ""},
		{"stays wrong as expected", failed, missing, ""},
		{"was well", isTrue, missing, "Warning"},
		{"of another type", nil,
			Expect([]Condition{{Type: "Other", Status: "False", Reason: "Starting"}}, "Ready", "Starting"), "Warning"},
	} {
		var got []string
		for _, e := range conditionEvents(tt.before, tt.after) {
			got = append(got, e.kind())
		}
		if strings.Join(got, ",") != tt.want {
			t.Errorf("%s: events %q, want %q", tt.name, got, tt.want)
		}
	}
}
