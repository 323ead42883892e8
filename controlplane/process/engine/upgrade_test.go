package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
)

// upgraded is an engine that is ordered to hand over to image img:2, beside which it runs img:1.
func upgraded() (*v1beta2.Engine, seen) {
	e, s := running()
	for _, image := range []string{"img:1", "img:2"} {
		s.Images = append(s.Images, v1beta2.EngineImage{Spec: v1beta2.EngineImageSpec{Image: image}})
	}
	s.Managers[0].Status.ProxyAPIVersion = 1
	runs(&s, "img:1", "run-1")
	settle(e, s)
	e.Spec.Image, e.Spec.UpgradeAttempt = "img:2", 1
	e.Spec.UpgradedReplicaAddressMap = map[string]string{"a2": "10.0.0.1:20000", "b2": "10.0.0.2:20000"}
	return e, s
}

// runs has the instance manager list the engine's process with an image.
func runs(s *seen, image, uuid string) {
	p := s.Managers[0].Status.InstanceEngines["v-e-0"]
	p.Spec.Binary, p.Status.UUID = naming.EngineBinaryInPod(image), uuid
	s.Managers[0].Status.InstanceEngines = map[string]v1beta2.InstanceProcess{"v-e-0": p}
}

// TestHandOverOfAnEngine: the order to hand over is carried out once per attempt, its failure is
// recorded, and what the new process reports is told under the names of the new replicas.
func TestHandOverOfAnEngine(t *testing.T) {
	refused := errors.New("a rebuild of 10.0.0.2:10000 is under way")
	lost := fmt.Errorf("%w: no answer", instance.ErrUnsettled)
	const order = "hand engine v-e-0 over to image img:2"
	for _, row := range []struct {
		name   string
		edit   func(*v1beta2.Engine, *seen)
		do     string
		failed int
	}{
		{"ordered", nil, order, 0},
		{"under way", func(_ *v1beta2.Engine, s *seen) { s.HandOverKnown = true }, "", 0},
		{"done, not listed yet", func(_ *v1beta2.Engine, s *seen) {
			s.HandOver, s.HandOverKnown = handOver{over: true}, true
		}, "", 0},
		{"refused", func(_ *v1beta2.Engine, s *seen) {
			s.HandOver, s.HandOverKnown = handOver{over: true, err: refused}, true
		}, "", 1},
		{"outcome not known", func(_ *v1beta2.Engine, s *seen) {
			s.HandOver, s.HandOverKnown = handOver{over: true, err: lost}, true
		}, order, 0},
		{"failed before", func(e *v1beta2.Engine, _ *seen) { e.Status.FailedUpgradeAttempt = 1 }, "", 1},
		{"another attempt", func(e *v1beta2.Engine, _ *seen) {
			e.Spec.UpgradeAttempt, e.Status.FailedUpgradeAttempt = 2, 1
		}, order, 1},
		{"its Pod is about to end", func(_ *v1beta2.Engine, s *seen) { s.Managers[0].Status.ClosedPod = "pod-uid" }, "", 0},
		{"its process has ended while it is replaced", func(_ *v1beta2.Engine, s *seen) {
			s.HandOverKnown = true
			s.Managers[0].Status.InstanceEngines = nil
		}, "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			e, s := upgraded()
			if row.edit != nil {
				row.edit(e, &s)
			}
			_, d := settle(e, s)
			got := ""
			if d.Do != nil {
				got = d.Do.String()
			}
			if got != row.do || e.Status.FailedUpgradeAttempt != row.failed {
				t.Errorf("wants %q, failed attempt %d; want %q, %d", got, e.Status.FailedUpgradeAttempt, row.do, row.failed)
			}
		})
	}
}

// TestEngineThatHasTakenOver: from the list of processes on, the engine is that of the new image.
func TestEngineThatHasTakenOver(t *testing.T) {
	e, s := upgraded()
	e.Status.LastUpgradeError = "the attempt before"
	runs(&s, "img:2", "run-2")
	s.State = nil // its stream is not open yet
	events, _ := settle(e, s)
	if e.Status.CurrentImage != "img:2" || e.Status.ReplicaModeMap["a"] != v1beta2.ReplicaModeRW || len(events) != 1 ||
		events[0].Reason != naming.EventUpgrade || e.Status.LastUpgradeError != "" {
		t.Fatalf("status %+v, events %+v", e.Status, events)
	}
	s.State = &engineclient.State{SizeBytes: 1 << 30, Replicas: []engineclient.Replica{
		{Address: "10.0.0.1:20000", Mode: engineclient.ModeRW}, {Address: "10.0.0.2:20000", Mode: engineclient.ModeRW}}}
	_, d := settle(e, s)
	if d.Do != nil || len(e.Status.ReplicaModeMap) != 2 || e.Status.ReplicaModeMap["b2"] != v1beta2.ReplicaModeRW {
		t.Errorf("wants %v, modes %v", d.Do, e.Status.ReplicaModeMap)
	}
}

// TestSuccessor: the process that takes over has the new image, the new replicas and an order of
// its own, which is not recorded yet.
func TestSuccessor(t *testing.T) {
	e, s := upgraded()
	e.UID, e.Status.Order = "u", "u/4"
	p := successor(e, process(e, "10.0.0.1", "secret", setting.Values{}))
	if p.Binary != naming.EngineBinaryInPod("img:2") || !slices.Contains(p.Args, "--upgrade") ||
		!slices.Contains(p.Args, "tcp://10.0.0.2:20000") || slices.Contains(p.Args, "tcp://10.0.0.2:10000") ||
		p.Order != "u/5" || e.Status.Order != "u/4" {
		t.Errorf("process %+v of an engine with order %s, %v", p, e.Status.Order, s.Owner)
	}
}

// TestOneAttemptAtATime: a second order while one is under way is no second call, and what is known
// of an attempt is not taken for the outcome of another.
func TestOneAttemptAtATime(t *testing.T) {
	woken := make(chan string, 4)
	h := newHandOvers(func(_ context.Context, engine string) { woken <- engine })
	e, _ := upgraded()
	answer := make(chan error)
	calls := make(chan struct{}, 4)
	call := func(context.Context) error {
		calls <- struct{}{}
		return <-answer
	}
	h.begin(e, call)
	h.begin(e, call)
	<-calls
	if have, ok := h.of(e); !ok || have.over {
		t.Errorf("attempt %+v, %v", have, ok)
	}
	answer <- errors.New("refused")
	if name := <-woken; name != e.Name {
		t.Errorf("%s is woken", name)
	}
	if have, ok := h.of(e); !ok || !have.over || have.err == nil {
		t.Errorf("attempt %+v, %v", have, ok)
	}
	e.Spec.UpgradeAttempt = 2
	if have, ok := h.of(e); ok {
		t.Errorf("attempt %+v stands for the next one", have)
	}
	if len(calls) != 0 {
		t.Errorf("%d calls too many", len(calls))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Start(ctx); err != nil {
		t.Error(err)
	}
}
