package engine

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
	"ankole.storage/test/wait"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// running is an engine whose process runs on n1, with replicas a and b.
func running() (*v1beta2.Engine, seen) {
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Name: "v-e-0", Finalizers: []string{v1beta2.Finalizer},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Volume", Name: "v", UID: "uid-v"}}}}
	e.Spec.VolumeName, e.Spec.NodeID, e.Spec.DesireState, e.Spec.Image = "v", "n1", v1beta2.InstanceStateRunning, "img:1"
	e.Spec.VolumeSize, e.Spec.Frontend = 1<<30, v1beta2.VolumeFrontendBlockDev
	e.Spec.ReplicaAddressMap = map[string]string{"a": "10.0.0.1:10000", "b": "10.0.0.2:10000"}
	im := v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: "im-1"}}
	im.Spec.NodeID, im.Spec.Type = "n1", v1beta2.InstanceManagerTypeAllInOne
	im.Status.CurrentState, im.Status.IP = v1beta2.InstanceManagerStateRunning, "10.0.0.1"
	im.Status.InstanceEngines = map[string]v1beta2.InstanceProcess{"v-e-0": {Status: v1beta2.InstanceProcessStatus{
		State: v1beta2.InstanceStateRunning, PortStart: 10100, UUID: "run-1",
	}}}
	s := seen{
		Managers: []v1beta2.InstanceManager{im}, Owner: "n9",
		State: &engineclient.State{
			SizeBytes: 1 << 30, FrontendUp: true, Endpoint: "/dev/longhorn/v", DeviceID: "device-1",
			Replicas: []engineclient.Replica{{Address: "10.0.0.1:10000", Mode: engineclient.ModeRW},
				{Address: "10.0.0.2:10000", Mode: engineclient.ModeRW}},
			Snapshots: map[string]engineclient.Snapshot{"volume-head": {Name: "volume-head", Parent: "s", SizeBytes: 42,
				Labels: nil},
				"s": {Name: "s", Children: []string{"volume-head"}}},
		},
	}
	return e, s
}

// carried is what instance managers are asked for by what was decided.
func carried(t *testing.T, e *v1beta2.Engine, s *seen, d loop.Decision) []string {
	t.Helper()
	call, ok := d.Do.(loop.Call)
	if !ok {
		return nil
	}
	fake := &instance.Fake{}
	r := &Reconciler{processes: fake}
	if err := r.carry(t.Context(), e, *s, call.Order); err != nil {
		t.Fatal(err)
	}
	s.Released = r.released.by(e)
	return fake.Orders()
}

// settle decides until nothing is told any more, as the loop would.
func settle(e *v1beta2.Engine, s seen) (events []loop.Event, last loop.Decision) {
	for range 5 {
		last = decide(now, e, s)
		if len(last.Events) == 0 || last.Do != nil {
			return events, last
		}
		events = append(events, last.Events...)
	}
	return events, last
}

func TestStateReachesTheObject(t *testing.T) {
	e, s := running()
	_, d := settle(e, s)
	st := e.Status
	if d.Do != nil {
		t.Errorf("a settled engine wants %v", d.Do)
	}
	if st.ReplicaModeMap["a"] != v1beta2.ReplicaModeRW || st.ReplicaTransitionTimeMap["a"] != "2026-01-02T03:04:05Z" ||
		st.CurrentReplicaAddressMap["b"] != "10.0.0.2:10000" || st.Endpoint != "/dev/longhorn/v" ||
		st.CurrentSize != 1<<30 || st.OwnerID != "n1" {
		t.Errorf("status %+v", st)
	}
	head := st.Snapshots["volume-head"]
	if head.Size != "42" || head.Parent != "s" || !st.Snapshots["s"].Children["volume-head"] {
		t.Errorf("snapshots %+v", st.Snapshots)
	}
	if st.DeviceID != "device-1" {
		t.Errorf("device %q", st.DeviceID)
	}
	e.Status.Endpoint = "x"
	s.State.FrontendUp = false
	settle(e, s)
	if e.Status.Endpoint != "" || e.Status.DeviceID != "" {
		t.Errorf("endpoint %q, device %q although the frontend is down", e.Status.Endpoint, e.Status.DeviceID)
	}
}

func TestModeChangesAreTold(t *testing.T) {
	const wo, rw, bad, pending = engineclient.ModeWO, engineclient.ModeRW, engineclient.ModeERR, engineclient.ModePending
	tests := []struct {
		name     string
		from, to engineclient.Mode
		want     string
		warning  bool
	}{
		{"rebuild begins", pending, wo, "Rebuilding", false},
		{"rebuild ends", wo, rw, "Rebuilt", false},
		{"rebuild fails", wo, bad, "FailedRebuilding", true},
		{"replica lost", rw, bad, "Faulted", true},
		{"in sync from the start", pending, rw, "", false},
		{"no change", rw, rw, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			s.State.Replicas[1].Mode = tt.from
			settle(e, s)
			s.State.Replicas = slices.Clone(s.State.Replicas)
			s.State.Replicas[1].Mode = tt.to
			events, _ := settle(e, s)
			got, warning := "", false
			if len(events) > 0 {
				got, warning = events[0].Reason, events[0].Warning
			}
			if got != tt.want || warning != tt.warning || len(events) > 1 {
				t.Errorf("events %+v, want %q", events, tt.want)
			}
		})
	}
}

func TestReplicasAreAligned(t *testing.T) {
	tests := []struct {
		name string
		edit func(*v1beta2.Engine, *seen)
		want string
	}{
		{"nothing to do", func(*v1beta2.Engine, *seen) {}, ""},
		{"a new one is added", func(e *v1beta2.Engine, _ *seen) { e.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000" },
			"add replica c to engine v-e-0"},
		{"one that is not wanted is removed", func(e *v1beta2.Engine, _ *seen) { delete(e.Spec.ReplicaAddressMap, "b") },
			"remove replica 10.0.0.2:10000 from engine v-e-0"},
		{"removal goes first", func(e *v1beta2.Engine, _ *seen) {
			delete(e.Spec.ReplicaAddressMap, "b")
			e.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
		}, "remove replica 10.0.0.2:10000 from engine v-e-0"},
		{"one being contacted is there", func(e *v1beta2.Engine, s *seen) {
			e.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
			s.State.Replicas = append(s.State.Replicas, engineclient.Replica{Address: "10.0.0.3:10000"})
		}, ""},
		{"one in error stays until the volume gives it up", func(_ *v1beta2.Engine, s *seen) {
			s.State.Replicas[1].Mode = engineclient.ModeERR
		}, ""},
		{"nothing without a state", func(e *v1beta2.Engine, s *seen) {
			s.State = nil
			e.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
		}, ""},
		{"stop", func(e *v1beta2.Engine, _ *seen) {
			e.Spec.DesireState = v1beta2.InstanceStateStopped
		}, "stop engine v-e-0 in im-1"},
		{"a deleted engine stops", func(e *v1beta2.Engine, _ *seen) {
			e.DeletionTimestamp = &metav1.Time{Time: now}
		}, "stop engine v-e-0 in im-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			tt.edit(e, &s)
			_, d := settle(e, s)
			got := ""
			if d.Do != nil {
				got = d.Do.String()
			}
			if got != tt.want {
				t.Errorf("wants %q, want %q", got, tt.want)
			}
		})
	}
}

// TestRestartAfter: the process that is over is deleted by its UUID and the next one created in one
// step; done again, nothing else is deleted.
func TestRestartAfter(t *testing.T) {
	e, s := running()
	settle(e, s)
	p := s.Managers[0].Status.InstanceEngines["v-e-0"]
	p.Status.State = v1beta2.InstanceStateError
	s.Managers[0].Status.InstanceEngines["v-e-0"] = p
	if _, d := settle(e, s); d.Do != nil || e.Status.CurrentState != v1beta2.InstanceStateError ||
		e.Status.UUID != p.Status.UUID {
		t.Fatalf("nobody has asked for a restart: %v, %+v", d.Do, e.Status.InstanceStatus)
	}
	e.Spec.RestartAfter = p.Status.UUID
	for range 2 {
		_, d := settle(e, s)
		if d.Do == nil || d.Do.String() != "start engine v-e-0" || !e.Status.Starting || e.Status.Started {
			t.Fatalf("%v, %+v", d.Do, e.Status.InstanceStatus)
		}
		if got := d.Do.(loop.Call).Order; got != (startOrder{&s.Managers[0], p.Status.UUID}) {
			t.Errorf("order %+v", got)
		}
	}
	p.Status.UUID, p.Status.State = "next", v1beta2.InstanceStateRunning
	s.Managers[0].Status.InstanceEngines["v-e-0"] = p
	if _, d := settle(e, s); d.Do != nil || e.Status.CurrentState != v1beta2.InstanceStateRunning || !e.Status.Started {
		t.Errorf("the next process: %v, %+v", d.Do, e.Status.InstanceStatus)
	}
}

// TestProcessOfAnotherOrder: it is ended by its UUID, and what is kept of it for a successor ends
// too unless the engine is that.
func TestProcessOfAnotherOrder(t *testing.T) {
	for made, want := range map[string]string{
		"former/1": "delete last im-1/v-e-0@run-1", "engine/1": "delete im-1/v-e-0@run-1",
	} {
		e, s := running()
		e.UID, e.Status.Order, e.Status.Starting = "engine", "engine/2", true
		p := s.Managers[0].Status.InstanceEngines["v-e-0"]
		p.Spec.Order = made
		s.Managers[0].Status.InstanceEngines["v-e-0"] = p
		_, d := settle(e, s)
		if d.Do == nil {
			t.Fatalf("made for %s: nothing is done", made)
		}
		if got := carried(t, e, &s, d); !slices.Equal(got, []string{want}) {
			t.Errorf("made for %s: orders %q, want %q", made, got, want)
		}
	}
}

func TestRefusedReplicaCountsAsFailed(t *testing.T) {
	e, s := running()
	e.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
	s.Refused = map[string]string{"10.0.0.3:10000": "no such volume"}
	events, d := settle(e, s)
	if e.Status.ReplicaModeMap["c"] != v1beta2.ReplicaModeERR || d.Do != nil || len(events) != 1 ||
		events[0].Reason != "Faulted" {
		t.Errorf("modes %v, wants %v, events %v", e.Status.ReplicaModeMap, d.Do, events)
	}
	if e.Status.RebuildStatus["tcp://10.0.0.3:10000"].Error == "" {
		t.Errorf("rebuild status %v", e.Status.RebuildStatus)
	}
}

// TestRebuildStatus holds what clients read of the rebuilds of an engine, by address.
func TestRebuildStatus(t *testing.T) {
	e, s := running()
	s.State.Replicas[1].Mode = engineclient.ModeWO
	s.State.Replicas[1].Rebuild = &engineclient.Rebuild{From: "10.0.0.1:10000", Percent: 42, Running: true,
		State: "in_progress"}
	settle(e, s)
	want := map[string]v1beta2.RebuildStatus{"tcp://10.0.0.2:10000": {IsRebuilding: true, Progress: 42,
		State: "in_progress", FromReplicaAddress: "tcp://10.0.0.1:10000",
		FromReplicaAddressList: []string{"tcp://10.0.0.1:10000"}}}
	if !reflect.DeepEqual(e.Status.RebuildStatus, want) {
		t.Errorf("during a rebuild: %+v", e.Status.RebuildStatus)
	}
	s.State.Replicas[1].Rebuild = &engineclient.Rebuild{Error: "no source", State: "error"}
	settle(e, s)
	want = map[string]v1beta2.RebuildStatus{"tcp://10.0.0.2:10000": {Error: "no source", State: "error"}}
	if !reflect.DeepEqual(e.Status.RebuildStatus, want) {
		t.Errorf("after it failed: %+v", e.Status.RebuildStatus)
	}
	s.State.Replicas[1].Rebuild = nil
	if settle(e, s); len(e.Status.RebuildStatus) != 0 {
		t.Errorf("without a rebuild: %+v", e.Status.RebuildStatus)
	}
}

func TestUnknownAddressIsPrefixed(t *testing.T) {
	e, s := running()
	s.State.Replicas[1].Address = "10.9.9.9:10000"
	settle(e, s)
	if _, ok := e.Status.ReplicaModeMap["unknown-10.9.9.9:10000"]; !ok {
		t.Errorf("modes %v", e.Status.ReplicaModeMap)
	}
}

func TestStoppedEngineShowsNoReplicas(t *testing.T) {
	e, s := running()
	settle(e, s)
	s.Managers[0].Status.InstanceEngines = nil
	settle(e, s)
	if e.Status.CurrentState != v1beta2.InstanceStateError || e.Status.ReplicaModeMap != nil || e.Status.Endpoint != "" {
		t.Errorf("status %+v", e.Status)
	}
	// A node that is cut off: the last known state stays.
	e, s = running()
	settle(e, s)
	s.NodeDown = true
	settle(e, s)
	if e.Status.CurrentState != v1beta2.InstanceStateUnknown || len(e.Status.ReplicaModeMap) != 2 {
		t.Errorf("status of a cut-off engine %+v", e.Status)
	}
}

func TestProcessIsAsTheArchitectureSays(t *testing.T) {
	e, _ := running()
	e.Spec.RevisionCounterDisabled = true
	p := process(e, "10.0.0.1", "secret", setting.Values{setting.BlockDeviceWait: "20"})
	want := []string{
		"--engine-instance-name", "v-e-0", "--volume-name", "v", "controller", "v", "--frontend", "tgt-blockdev",
		"--size", "1073741824", "--current-size", "1073741824", "--engine-replica-timeout", "8", "--disableRevCounter",
		"--replica", "tcp://10.0.0.1:10000", "--replica", "tcp://10.0.0.2:10000",
	}
	if !slices.Equal(p.Args, want) || p.Binary != "/engine-binaries/img-1/longhorn" || p.PortCount != 1 ||
		!slices.Equal(p.PortArgs, []string{"--listen,10.0.0.1:"}) {
		t.Errorf("process %+v", p)
	}
	if got := p.Environment["ANKOLE_DATA_NETWORK"]; got != "management network" {
		t.Errorf("network %q", got)
	}
	if p.Environment["ANKOLE_VOLUME_UUID"] != "uid-v" || p.Environment["ANKOLE_VOLUME_SECRET"] != "secret" ||
		p.Environment["ANKOLE_BLOCK_TRANSPORT"] != "auto" || p.Environment["ANKOLE_DEVICE_WAIT"] != "20s" {
		t.Errorf("environment %v", p.Environment)
	}
	other := process(e, "10.0.0.1", "secret", setting.Values{setting.BlockDeviceTransport: setting.TransportNBDUnix,
		setting.EngineReplicaTimeout: `{"v1":"9","v2":"8"}`})
	if at := slices.Index(other.Args, "--engine-replica-timeout"); other.Args[at+1] != "9" ||
		other.Environment["ANKOLE_BLOCK_TRANSPORT"] != setting.TransportNBDUnix {
		t.Errorf("process with other settings %+v", other)
	}
	im := &v1beta2.InstanceManager{Status: v1beta2.InstanceManagerStatus{IP: "10.0.0.1", StorageIP: "192.168.0.1"}}
	if got := processIn(im, e, "secret", nil).Environment["ANKOLE_LOCAL_ADDRESS"]; got != "192.168.0.1" {
		t.Errorf("replicas on the engine's node have address %q", got)
	}
	e.Spec.DisableFrontend = true
	if slices.Contains(process(e, "10.0.0.1", "s", nil).Args, "--frontend") {
		t.Error("a disabled frontend is asked for")
	}
}

func TestUrgency(t *testing.T) {
	base := func() *engineclient.State {
		return &engineclient.State{Replicas: []engineclient.Replica{{Address: "r", Mode: engineclient.ModeWO,
			Rebuild: &engineclient.Rebuild{Percent: 1, Running: true}}},
			Snapshots: map[string]engineclient.Snapshot{"volume-head": {SizeBytes: 1}}}
	}
	tests := []struct {
		name    string
		edit    func(*engineclient.State)
		wait    time.Duration
		changed bool
	}{
		{"nothing", func(*engineclient.State) {}, 0, false},
		{"counters are for metrics", func(s *engineclient.State) { s.Counters.Reads++ }, 0, false},
		{"mode", func(s *engineclient.State) { s.Replicas[0].Mode = engineclient.ModeRW }, 0, true},
		{"endpoint", func(s *engineclient.State) { s.Endpoint = "x" }, 0, true},
		{"another device at the same path", func(s *engineclient.State) { s.DeviceID = "x" }, 0, true},
		{"rebuild ended", func(s *engineclient.State) { s.Replicas[0].Rebuild.Running = false }, 0, true},
		{"progress", func(s *engineclient.State) { s.Replicas[0].Rebuild.Percent = 2 }, progressEvery, true},
		{"bytes are finer than anybody reads", func(s *engineclient.State) { s.Replicas[0].Rebuild.DoneBytes = 2 }, 0, false},
		{"size of the head", func(s *engineclient.State) {
			s.Snapshots["volume-head"] = engineclient.Snapshot{SizeBytes: 2}
		}, sizesEvery, true},
		{"new snapshot", func(s *engineclient.State) { s.Snapshots["s"] = engineclient.Snapshot{} }, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := base()
			tt.edit(s)
			if wait, changed := urgency(base(), s); wait != tt.wait || changed != tt.changed {
				t.Errorf("urgency = %v, %v; want %v, %v", wait, changed, tt.wait, tt.changed)
			}
		})
	}
}

func TestMonitorFollowsOneRun(t *testing.T) {
	var f engineclient.Fake
	m := NewMonitor(&f, "ns", time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- m.Start(ctx) }()
	target := engineclient.Target{Address: "a", Engine: "e"}
	f.Set("a", engineclient.State{Engine: "e", Generation: 1})
	woken := func() {
		t.Helper()
		ev := wait.Receive(t, "a wake-up", m.Wakeups())
		if ev.Object.GetName() != "e" || ev.Object.GetNamespace() != "ns" {
			t.Fatalf("wake-up for %v", ev.Object)
		}
	}
	if s, _ := m.Watch(target, "run-1", nil); s != nil {
		t.Fatalf("a state before the stream: %+v", s)
	}
	woken()
	if s, _ := m.Watch(target, "run-1", nil); s == nil || s.Generation != 1 {
		t.Fatalf("state %+v", s)
	}
	f.Change("a", func(s *engineclient.State) { s.Generation = 2 })
	woken()
	m.Refused("e", "r1", engineclient.ErrUnavailable)
	m.Refused("e", "r2", engineclient.ErrPrecondition)
	woken()
	if s, refused := m.Watch(target, "run-1", []string{"r1", "r2"}); s.Generation != 2 || len(refused) != 1 ||
		refused["r2"] == "" {
		t.Fatalf("state %+v, refused %v", s, refused)
	}
	if _, refused := m.Watch(target, "run-1", nil); len(refused) != 0 {
		t.Fatalf("a refusal outlives the wish: %v", refused)
	}
	if s := m.Latest("e"); s == nil || s.Generation != 2 || m.Latest("another") != nil {
		t.Fatalf("latest state %+v", s)
	}
	// Another run of the same engine starts from nothing.
	if s, _ := m.Watch(target, "run-2", nil); s != nil {
		t.Fatalf("the state of an earlier run: %+v", s)
	}
	cancel()
	if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if s, _ := m.Watch(target, "run-3", nil); s != nil {
		t.Fatal("a closed monitor opened a stream")
	}
}

// TestTrimMarksTheChain: the volume's option reaches the process, and what the process uses the
// status.
func TestTrimMarksTheChain(t *testing.T) {
	const flag = "--unmap-mark-snap-chain-removed"
	for _, on := range []bool{false, true} {
		e, s := running()
		e.Spec.UnmapMarkSnapChainRemovedEnabled = on
		if p := process(e, "10.0.0.1", "s", nil); slices.Contains(p.Args, flag) != on {
			t.Errorf("%v: arguments %q", on, p.Args)
		}
		s.State.Options.UnmapMarkSnapChainRemoved = &on
		if settle(e, s); e.Status.UnmapMarkSnapChainRemovedEnabled != on {
			t.Errorf("%v: status %v", on, e.Status.UnmapMarkSnapChainRemovedEnabled)
		}
	}
}
