package node

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The records of the tables, by short words.
func waits(name string) *record { return &record{spec: &v1.Container{Name: name}} }
func runs(name string) *record {
	return &record{spec: &v1.Container{Name: name}, state: running, started: true}
}
func initC(r *record) *record     { r.init = true; return r }
func later(r *record) *record     { r.notBefore = epoch.Add(time.Minute); return r }
func dying(r *record) *record     { r.killing, r.killAt = true, epoch.Add(time.Second); return r }
func unstarted(r *record) *record { r.started = false; return r }

func ended(name string, code int32) *record {
	return &record{spec: &v1.Container{Name: name}, state: terminated, ended: &v1.ContainerStateTerminated{ExitCode: code}}
}

func sidecarC(r *record) *record {
	r.init = true
	always := v1.ContainerRestartPolicyAlways
	r.spec.RestartPolicy = &always
	return r
}

func names(list []*record) string {
	s := ""
	for _, r := range list {
		s += r.spec.Name
	}
	return s
}

func TestDecide(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	for _, tc := range []struct {
		name        string
		policy      v1.RestartPolicy
		recs        []*record
		ending      bool
		start, kill string
		done        bool
		wake        time.Duration // after epoch, 0 for none
	}{
		{name: "new Pod starts all", policy: always, recs: []*record{waits("a"), waits("b")}, start: "ab"},
		{name: "running Pod is left alone", policy: always, recs: []*record{runs("a")}},
		{name: "init goes first", policy: always, recs: []*record{initC(waits("i")), waits("a")}, start: "i"},
		{name: "init runs alone", policy: always, recs: []*record{initC(runs("i")), initC(waits("j")), waits("a")}},
		{name: "second init after the first", policy: always,
			recs: []*record{initC(ended("i", 0)), initC(waits("j")), waits("a")}, start: "j"},
		{name: "main after init", policy: always, recs: []*record{initC(ended("i", 0)), waits("a")}, start: "a"},
		{name: "init is not repeated under Always", policy: always, recs: []*record{initC(ended("i", 0)), runs("a")}},
		{name: "failed init again", policy: onFailure, recs: []*record{initC(ended("i", 1)), waits("a")}, start: "i"},
		{name: "failed init ends the Pod", policy: never, recs: []*record{initC(ended("i", 1)), waits("a")}, done: true},
		{name: "restart under Always", policy: always, recs: []*record{ended("a", 0)}, start: "a"},
		{name: "no restart before its time", policy: always, recs: []*record{later(ended("a", 1))}, wake: time.Minute},
		{name: "success stays under OnFailure", policy: onFailure, recs: []*record{ended("a", 0), runs("b")}},
		{name: "failure restarts under OnFailure", policy: onFailure, recs: []*record{ended("a", 9), runs("b")}, start: "a"},
		{name: "nothing restarts under Never", policy: never, recs: []*record{ended("a", 9), runs("b")}},
		{name: "all over", policy: never, recs: []*record{ended("a", 9), ended("b", 0)}, done: true},
		{name: "deletion stops all", policy: always, recs: []*record{runs("a"), waits("b"), runs("c")}, ending: true,
			kill: "ca"},
		{name: "deletion waits", policy: always, recs: []*record{dying(runs("a"))}, ending: true, wake: time.Second},
		{name: "deletion is complete", policy: always, recs: []*record{ended("a", 0), waits("b")}, ending: true, done: true},
		{name: "a killed container is watched", policy: always, recs: []*record{dying(runs("a"))}, wake: time.Second},
		{name: "sidecar before main", policy: always, recs: []*record{sidecarC(waits("s")), waits("a")}, start: "s"},
		{name: "main waits for sidecar's startup", policy: always,
			recs: []*record{unstarted(sidecarC(runs("s"))), waits("a")}},
		{name: "main beside sidecar", policy: always, recs: []*record{sidecarC(runs("s")), waits("a")}, start: "a"},
		{name: "sidecar restarts", policy: never, recs: []*record{sidecarC(ended("s", 0)), runs("a")}, start: "s"},
		{name: "sidecars end last", policy: always, recs: []*record{sidecarC(runs("s")), runs("a")}, ending: true, kill: "a"},
		{name: "sidecars end when main is over", policy: never,
			recs: []*record{sidecarC(runs("s")), sidecarC(runs("z")), ended("a", 0)}, kill: "z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := decide(tc.policy, tc.recs, tc.ending, epoch)
			if names(p.start) != tc.start || names(p.kill) != tc.kill || p.done != tc.done {
				t.Errorf("start %q kill %q done %t, want %q %q %t", names(p.start), names(p.kill), p.done, tc.start,
					tc.kill, tc.done)
			}
			want := time.Time{}
			if tc.wake != 0 {
				want = epoch.Add(tc.wake)
			}
			if !p.wake.Equal(want) {
				t.Errorf("wake at %v, want %v", p.wake, want)
			}
		})
	}
}

func drawRecord(t *rapid.T, name string, init bool) *record {
	r := &record{spec: &v1.Container{Name: name}, init: init, state: state(rapid.IntRange(0, 2).Draw(t, "state"))}
	if init && rapid.Bool().Draw(t, "sidecar") {
		sidecarC(r)
	}
	if r.state == terminated {
		r.ended = &v1.ContainerStateTerminated{ExitCode: rapid.Int32Range(0, 1).Draw(t, "code")}
	}
	if r.state == running {
		r.started = rapid.Bool().Draw(t, "started")
		r.killing = rapid.Bool().Draw(t, "killing")
		r.killAt = epoch.Add(time.Second)
	}
	if rapid.Bool().Draw(t, "later") {
		later(r)
	}
	return r
}

// TestDecideProperties holds for every state a Pod can be in.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recs []*record
		for range rapid.IntRange(0, 3).Draw(t, "inits") {
			recs = append(recs, drawRecord(t, "i", true))
		}
		for range rapid.IntRange(1, 3).Draw(t, "mains") {
			recs = append(recs, drawRecord(t, "m", false))
		}
		policy := rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure,
			v1.RestartPolicyNever}).Draw(t, "policy")
		ending := rapid.Bool().Draw(t, "ending")
		p := decide(policy, recs, ending, epoch)
		for _, r := range p.start {
			if r.state == running || epoch.Before(r.notBefore) || ending {
				t.Fatalf("started %+v", r)
			}
			if r.state == terminated && !r.restartable(policy) {
				t.Fatalf("restarted against its policy: %+v", r)
			}
		}
		for _, r := range p.kill {
			if r.state != running || r.killing {
				t.Fatalf("killed %+v", r)
			}
		}
		if p.done && (!nothingRuns(recs) || len(p.start) > 0) {
			t.Fatal("done with something running or starting")
		}
		if ending && nothingRuns(recs) && !p.done {
			t.Fatal("nothing runs, but not done")
		}
		if phase := phaseOf(policy, recs); (phase == v1.PodSucceeded || phase == v1.PodFailed) && len(p.start) > 0 {
			t.Fatalf("phase %s is final, but %d containers start", phase, len(p.start))
		}
	})
}

func TestPhase(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	for _, tc := range []struct {
		name   string
		policy v1.RestartPolicy
		recs   []*record
		want   v1.PodPhase
	}{
		{"new", always, []*record{waits("a")}, v1.PodPending},
		{"one of two waits", always, []*record{runs("a"), waits("b")}, v1.PodPending},
		{"init runs", always, []*record{initC(runs("i")), waits("a")}, v1.PodPending},
		{"init failed for good", never, []*record{initC(ended("i", 1)), waits("a")}, v1.PodFailed},
		{"init failed for now", always, []*record{initC(ended("i", 1)), waits("a")}, v1.PodPending},
		{"runs", always, []*record{initC(ended("i", 0)), runs("a")}, v1.PodRunning},
		{"between runs", always, []*record{ended("a", 1)}, v1.PodRunning},
		{"one over, one runs", never, []*record{ended("a", 1), runs("b")}, v1.PodRunning},
		{"success", never, []*record{ended("a", 0)}, v1.PodSucceeded},
		{"one failed", never, []*record{ended("a", 0), ended("b", 1)}, v1.PodFailed},
		{"failure to be retried", onFailure, []*record{ended("a", 1)}, v1.PodRunning},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := phaseOf(tc.policy, tc.recs); got != tc.want {
				t.Errorf("phase %s, want %s", got, tc.want)
			}
		})
	}
}

func TestBackOff(t *testing.T) {
	b := BackOff{Initial: time.Second, Max: 5 * time.Second, Reset: time.Minute}
	pause, got := time.Duration(0), []time.Duration{}
	for i := range 6 {
		pause = b.nextPause(pause, 0, i == 0)
		got = append(got, pause)
	}
	want := []time.Duration{0, 1, 2, 4, 5, 5}
	for i := range want {
		if got[i] != want[i]*time.Second {
			t.Fatalf("pauses %v, want %v seconds", got, want)
		}
	}
	if p := b.nextPause(pause, time.Minute, false); p != 0 {
		t.Errorf("after a long run the pause is %s, want none", p)
	}
}

// TestRestoreAfterReboot: what an earlier agent reported becomes what a reboot leaves.
func TestRestoreAfterReboot(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways,
		InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}
	over := &v1.ContainerStateTerminated{ExitCode: 4}
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", ContainerID: "x",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "a", ContainerID: "x", RestartCount: 3, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "b", ContainerID: "x",
			State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: v1.ContainerState{Terminated: over}},
		{Name: "c"},
	}
	recs := newRecords(pod, epoch)
	if r := recs[0]; r.state != waiting {
		t.Errorf("the init container must run again, is %d", r.state)
	}
	if r := recs[1]; r.state != terminated || r.ended.ExitCode != exitUnknown || r.restarts != 3 {
		t.Errorf("a running container: %+v", r)
	}
	if r := recs[2]; r.state != terminated || r.ended != over {
		t.Errorf("a container in back-off: %+v", r)
	}
	if r := recs[3]; r.state != waiting {
		t.Errorf("a container that never started: %+v", r)
	}
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pod.Status.ContainerStatuses[1].State = v1.ContainerState{Terminated: over}
	pod.Status.ContainerStatuses[2] = v1.ContainerStatus{Name: "c", ContainerID: "x",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	if p := decide(v1.RestartPolicyNever, newRecords(pod, epoch), false, epoch); !p.done {
		t.Errorf("a Pod that must not restart is not over after a reboot: start %q", names(p.start))
	}
}
