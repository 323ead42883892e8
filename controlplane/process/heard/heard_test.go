package heard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
)

// bench is the lists of one instance manager in a bubble of synctest.
type bench struct {
	*Lists
	t   *testing.T
	now *Processes
}

const (
	manager = "im"
	replica = "a-r-11111111"
	engine  = "a-e-0"
)

// newBench has so many replicas that run, and has told everybody of them.
func newBench(t *testing.T, replicas int) *bench {
	b := &bench{Lists: New("ns"), t: t, now: &Processes{Engines: map[string]v1beta2.InstanceProcess{},
		Replicas: map[string]v1beta2.InstanceProcess{}}}
	for i := range replicas {
		b.now.Put(process(fmt.Sprintf("v%d-r-12345678", i), "u", v1beta2.InstanceStateRunning))
	}
	b.Begin(manager, "pod")
	b.Tell(t.Context(), manager, "pod", b.now)
	for _, from := range []<-chan event.GenericEvent{b.Managers(), b.Engines(), b.Replicas()} {
		if e := <-from; e.Object.GetName() != manager || e.Object.GetNamespace() != "ns" {
			t.Fatalf("the first list wakes %v", e.Object)
		}
	}
	return b
}

func process(name, uuid string, state v1beta2.InstanceState) v1beta2.InstanceProcess {
	p := v1beta2.InstanceProcess{Spec: v1beta2.InstanceProcessSpec{Name: name},
		Status: v1beta2.InstanceProcessStatus{Type: v1beta2.InstanceTypeReplica, UUID: uuid, State: state}}
	if name == engine {
		p.Status.Type = v1beta2.InstanceTypeEngine
	}
	return p
}

// tells has a process be in a state, or be gone without one.
func (b *bench) tells(name, uuid string, state v1beta2.InstanceState) {
	b.now = b.now.Clone()
	if state == "" {
		delete(b.now.Replicas, name)
	} else {
		b.now.Put(process(name, uuid, state))
	}
	b.Tell(b.t.Context(), manager, "pod", b.now)
}

// pass lets simulated time pass.
func (b *bench) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.t.Context().Done():
	}
}

// woken is when the next one is woken by a channel, zero if nobody is within a minute.
func (b *bench) woken(from <-chan event.GenericEvent) (name string, after time.Duration) {
	began := time.Now()
	select {
	case e := <-from:
		return e.Object.GetName(), time.Since(began)
	case <-time.After(time.Minute):
		return "", 0
	}
}

func (b *bench) expect(what string, from <-chan event.GenericEvent, want string, after time.Duration) {
	b.t.Helper()
	if name, took := b.woken(from); name != want || took != after {
		b.t.Errorf("%s: %q is woken after %s, want %q after %s", what, name, took, want, after)
	}
}

// TestWhoIsWoken: whose process has changed is woken at once and alone, or, where it only begins,
// when it runs; the status of the instance manager waits for more.
func TestWhoIsWoken(t *testing.T) {
	const starting, running, failed = v1beta2.InstanceStateStarting, v1beta2.InstanceStateRunning,
		v1beta2.InstanceStateError
	for name, play := range map[string]func(b *bench){
		"a start that is soon over": func(b *bench) {
			b.tells(replica, "u", starting)
			if !b.Starting(replica) {
				b.t.Error("it does not begin")
			}
			b.pass(startPause / 2)
			b.tells(replica, "u", running)
			b.expect("it runs", b.Replicas(), replica, 0)
			if b.Starting(replica) || b.known().Find(replica).Status.State != running {
				b.t.Error("it still begins")
			}
			b.expect("status", b.Managers(), manager, statusPause-startPause/2)
			b.expect("once more", b.Managers(), "", 0)
		},
		"a start that takes its time": func(b *bench) {
			b.tells(replica, "u", starting)
			b.expect("it starts", b.Replicas(), replica, startPause)
			if b.Starting(replica) {
				b.t.Error("it still begins")
			}
			b.tells(replica, "u", running)
			b.expect("it runs", b.Replicas(), replica, 0)
		},
		"a process that fails in its start": func(b *bench) {
			b.tells(engine, "u", starting)
			b.tells(engine, "u", failed)
			b.expect("it has failed", b.Engines(), engine, 0)
		},
		"one of many is gone": func(b *bench) {
			b.tells("v0-r-12345678", "", "")
			b.expect("it is gone", b.Replicas(), "v0-r-12345678", 0)
			b.expect("the others", b.Replicas(), "", 0)
		},
		"another run": func(b *bench) {
			b.tells("v0-r-12345678", "other", starting)
			b.expect("the run before is over", b.Replicas(), "v0-r-12345678", 0)
		},
		"a stream that is lost, and back": func(b *bench) {
			b.Lose(b.t.Context(), manager, "pod")
			b.expect("lost", b.Managers(), manager, 0)
			if p, since := b.Of(manager); p != b.now || since.IsZero() {
				b.t.Errorf("what was known is %+v, unconfirmed since %v", p, since)
			}
			b.tells(replica, "u", running)
			b.expect("back", b.Managers(), manager, 0)
			b.expect("what was missed", b.Replicas(), replica, 0)
		},
		"another Pod": func(b *bench) {
			b.Begin(manager, "next")
			b.tells(replica, "u", running) // the word of the one before is late
			if p, since := b.Of(manager); p != nil || since.IsZero() || len(b.With(replica)) > 0 {
				b.t.Errorf("of the next Pod %+v is known, since %v", p, since)
			}
		},
		"nothing new": func(b *bench) {
			b.Tell(b.t.Context(), manager, "pod", b.now.Clone())
			b.expect("somebody", b.Managers(), "", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(newBench(t, 3)) })
		})
	}
}

// TestManyBeginBesideMany: a long list is not written anew for each process that begins.
func TestManyBeginBesideMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 400)
		began, writes := time.Now(), 0
		for i := range 500 {
			b.tells(fmt.Sprintf("w%d-r-12345678", i), "u", v1beta2.InstanceStateRunning)
			if name, after := b.woken(b.Replicas()); name == "" || after != 0 {
				t.Fatalf("%q is woken after %s", name, after)
			}
			b.pass(10 * time.Millisecond)
			for ; len(b.Managers()) > 0; writes++ {
				<-b.Managers()
			}
		}
		if most := int(time.Since(began) / (400 * pausePerProcess)); writes == 0 || writes > most {
			t.Errorf("%d writes within %s, more than %d", writes, time.Since(began), most)
		}
	})
}

// TestIn: what the status says of processes is replaced, and nothing is known of who was not heard.
func TestIn(t *testing.T) {
	written := map[string]v1beta2.InstanceProcess{replica: process(replica, "old", v1beta2.InstanceStateRunning)}
	managers := make([]v1beta2.InstanceManager, 2)
	managers[0].Name, managers[1].Name = manager, "silent"
	for i := range managers {
		managers[i].Status.InstanceReplicas, managers[i].Status.Instances = written, written
	}
	told := &Processes{Engines: map[string]v1beta2.InstanceProcess{engine: process(engine, "u", "running")}}
	lists := New("ns")
	lists.Begin(manager, "pod")
	lists.Tell(t.Context(), manager, "pod", told)
	silent := lists.In(managers)
	st := managers[0].Status
	if len(st.InstanceEngines) != 1 || st.InstanceReplicas != nil || st.Instances != nil || silent[manager] {
		t.Errorf("heard: %+v", st)
	}
	if st = managers[1].Status; st.InstanceEngines != nil || st.InstanceReplicas != nil || !silent["silent"] {
		t.Errorf("not heard: %+v", st)
	}
}

// known is what was heard.
func (b *bench) known() *Processes {
	p, _ := b.Of(manager)
	return p
}
