package witness_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/witness"
	"ankole.storage/instancemanager/witness/relayclient"
	"ankole.storage/test/wait"
)

// rig is a relay between an engine's connection and the address managers attach to.
type rig struct {
	relay  *witness.Relay
	engine witnessv1.WitnessClient
	addr   string
}

func newRig(t *testing.T, total, attempt time.Duration) *rig {
	t.Helper()
	r := &rig{relay: witness.NewRelay(slog.New(slog.DiscardHandler))}
	r.relay.SetWaits(total, attempt)
	socket := filepath.Join(t.TempDir(), "witness.sock")
	unix, err := witness.ListenUnix(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, unix, r.relay.RegisterWitness)
	serve(t, tcp, r.relay.RegisterRelay)
	r.engine = witnessv1.NewWitnessClient(dial(t, "unix:"+socket))
	r.addr = tcp.Addr().String()
	return r
}

func serve(t *testing.T, l net.Listener, register func(grpc.ServiceRegistrar)) {
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
}

func dial(t *testing.T, target string) *grpc.ClientConn {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// attach serves handler as a manager until stop is called, and waits until the relay knows it.
func (r *rig) attach(t *testing.T, name string, handler relayclient.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	conn := dial(t, r.addr)
	go func() { ended <- relayclient.Serve(ctx, conn, name, handler) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err == nil {
			t.Error("Serve ended without a reason")
		}
	})
	t.Cleanup(stop)
	wait.Until(t, name+" is attached", func() bool { return slices.Contains(r.relay.Managers(), name) })
	return stop
}

// register is a cluster: one record, changed by compare and swap.
type register struct {
	mu     sync.Mutex
	record *witnessv1.Membership
	asked  int
}

func (g *register) Get(context.Context, *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if g.record == nil {
		return nil, status.Error(codes.NotFound, "no record")
	}
	return g.record, nil
}

func (g *register) CompareAndSwap(_ context.Context,
	r *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	e := r.GetExpected()
	same := (g.record == nil) == (e == nil) && g.record.GetVolumeUuid() == e.GetVolumeUuid() &&
		g.record.GetEpoch() == e.GetEpoch() && g.record.GetGeneration() == e.GetGeneration()
	if same {
		g.record = r.GetNext()
	}
	return &witnessv1.CompareAndSwapResponse{Swapped: same, Current: g.record}, nil
}

// handler is a manager that does one thing with every question.
type handler func(context.Context) (*witnessv1.Membership, error)

func (h handler) Get(ctx context.Context, _ *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	return h(ctx)
}

func (h handler) CompareAndSwap(ctx context.Context,
	_ *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	m, err := h(ctx)
	return &witnessv1.CompareAndSwapResponse{Swapped: err == nil, Current: m}, err
}

// silent never answers; hears is closed at the first question.
func silent() (h handler, hears chan struct{}) {
	hears = make(chan struct{})
	var once sync.Once
	return func(ctx context.Context) (*witnessv1.Membership, error) {
		once.Do(func() { close(hears) })
		<-ctx.Done()
		return nil, ctx.Err()
	}, hears
}

func refuses(code codes.Code) handler {
	return func(context.Context) (*witnessv1.Membership, error) { return nil, status.Error(code, "as told") }
}

func answers(epoch int64) handler {
	return func(context.Context) (*witnessv1.Membership, error) { return record(epoch, 1), nil }
}

func record(epoch, generation int64) *witnessv1.Membership {
	return &witnessv1.Membership{VolumeUuid: "u", Epoch: epoch, Generation: generation, Members: []string{"a", "b"},
		Engine: "demo-e-0", InstanceManager: "im-1"}
}

var question = &witnessv1.GetRequest{VolumeName: "demo", EngineName: "demo-e-0"}

// TestRoundTrip follows a record from its absence over a swap to a swap that comes too late.
func TestRoundTrip(t *testing.T) {
	r := newRig(t, witness.TotalWait, witness.AttemptWait)
	r.attach(t, "m1", &register{})
	if _, err := r.engine.Get(t.Context(), question); status.Code(err) != codes.NotFound {
		t.Errorf("no record: %v", err)
	}
	swap := func(expected, next *witnessv1.Membership) *witnessv1.CompareAndSwapResponse {
		t.Helper()
		a, err := r.engine.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{
			VolumeName: "demo", EngineName: "demo-e-0", Expected: expected, Next: next})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := swap(nil, record(1, 1)); !a.GetSwapped() || !proto.Equal(a.GetCurrent(), record(1, 1)) {
		t.Errorf("first swap: %v", a)
	}
	if a := swap(record(1, 1), record(2, 1)); !a.GetSwapped() {
		t.Errorf("second swap: %v", a)
	}
	if a := swap(record(1, 1), record(2, 2)); a.GetSwapped() || !proto.Equal(a.GetCurrent(), record(2, 1)) {
		t.Errorf("late swap: %v", a)
	}
	if m, err := r.engine.Get(t.Context(), question); err != nil || !proto.Equal(m, record(2, 1)) {
		t.Errorf("get: %v %v", m, err)
	}
}

// TestInvalidQuestions never reach a manager.
func TestInvalidQuestions(t *testing.T) {
	r := newRig(t, witness.TotalWait, witness.AttemptWait)
	if _, err := r.engine.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "demo"}); status.Code(
		err) != codes.InvalidArgument {
		t.Error(err)
	}
	_, err := r.engine.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{VolumeName: "demo", EngineName: "e"})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// TestNextManager is the table of what makes a question go on to the next manager, and what does
// not.
func TestNextManager(t *testing.T) {
	quiet, _ := silent()
	for _, row := range []struct {
		name    string
		first   handler
		attempt time.Duration // short only where it is what makes the question go on
		want    codes.Code
	}{
		{"answers", answers(9), instancetest.Deadline, codes.OK},
		{"silent", quiet, 100 * time.Millisecond, codes.OK},
		{"cannot reach the cluster", refuses(codes.Unavailable), instancetest.Deadline, codes.OK},
		{"has a bug", refuses(codes.Unknown), instancetest.Deadline, codes.OK},
		{"may not read", refuses(codes.PermissionDenied), instancetest.Deadline, codes.OK},
		{"no record", refuses(codes.NotFound), instancetest.Deadline, codes.NotFound},
		{"another volume", refuses(codes.FailedPrecondition), instancetest.Deadline, codes.FailedPrecondition},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, instancetest.Deadline, row.attempt)
			r.attach(t, "m1", row.first)
			r.attach(t, "m2", answers(9))
			m, err := r.engine.Get(t.Context(), question)
			if status.Code(err) != row.want || err == nil && m.GetEpoch() != 9 {
				t.Fatalf("%v %v", m, err)
			}
			if row.want == codes.OK && row.name != "answers" && r.relay.Managers()[0] != "m2" {
				t.Errorf("the next question would go to %v, not to the one that works", r.relay.Managers())
			}
		})
	}
}

// TestManagerLostMidQuestion: its stream ends while it has a question; the next one answers, long
// before a timeout.
func TestManagerLostMidQuestion(t *testing.T) {
	r := newRig(t, 10*instancetest.Deadline, 10*instancetest.Deadline)
	quiet, hears := silent()
	stop := r.attach(t, "m1", quiet)
	r.attach(t, "m2", answers(5))
	go func() {
		<-hears
		stop()
	}()
	if m, err := r.engine.Get(t.Context(), question); err != nil || m.GetEpoch() != 5 {
		t.Errorf("%v %v", m, err)
	}
}

// TestLateManager: nobody is attached when the question comes, somebody soon after.
func TestLateManager(t *testing.T) {
	r := newRig(t, instancetest.Deadline, instancetest.Deadline)
	type result struct {
		m   *witnessv1.Membership
		err error
	}
	done := make(chan result, 1)
	go func() {
		m, err := r.engine.Get(t.Context(), question)
		done <- result{m, err}
	}()
	wait.Until(t, "the question waits", func() bool { return r.relay.Outstanding() == 1 })
	r.attach(t, "m1", answers(3))
	if got := <-done; got.err != nil || got.m.GetEpoch() != 3 {
		t.Errorf("%v", got)
	}
}

// TestUnavailable: the engine gets UNAVAILABLE within the bound, whatever the managers do.
func TestUnavailable(t *testing.T) {
	quiet, _ := silent()
	for name, managers := range map[string][]handler{
		"none":                nil,
		"silent":              {quiet},
		"two silent":          {quiet, quiet},
		"all without cluster": {refuses(codes.Unavailable), refuses(codes.Unavailable)},
		"silent and without":  {quiet, refuses(codes.Unavailable)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 500*time.Millisecond, 100*time.Millisecond)
			for i, m := range managers {
				r.attach(t, fmt.Sprintf("m%d", i), m)
			}
			ctx, cancel := context.WithTimeout(t.Context(), instancetest.Deadline)
			defer cancel()
			if _, err := r.engine.Get(ctx, question); status.Code(err) != codes.Unavailable {
				t.Errorf("%v", err)
			}
			if r.relay.Outstanding() != 0 {
				t.Errorf("%d questions are left", r.relay.Outstanding())
			}
		})
	}
}

// TestLateAnswerCounts: the first manager is slow, the second silent; the first one's answer is
// taken.
func TestLateAnswerCounts(t *testing.T) {
	r := newRig(t, instancetest.Deadline, 50*time.Millisecond)
	secondAsked := make(chan struct{})
	r.attach(t, "m1", handler(func(ctx context.Context) (*witnessv1.Membership, error) {
		<-secondAsked
		return record(4, 1), nil
	}))
	r.attach(t, "m2", handler(func(ctx context.Context) (*witnessv1.Membership, error) {
		close(secondAsked)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	if m, err := r.engine.Get(t.Context(), question); err != nil || m.GetEpoch() != 4 {
		t.Errorf("%v %v", m, err)
	}
}

// TestAmbiguousSwap: the first manager swaps but its answer is lost. The engine must learn that the
// record is not what it expected, with the record, and must not be told that it was the one who
// wrote it.
func TestAmbiguousSwap(t *testing.T) {
	r := newRig(t, instancetest.Deadline, 100*time.Millisecond)
	cluster, swapped := &register{}, make(chan struct{})
	r.attach(t, "m1", &mute{register: cluster, swapped: swapped})
	r.attach(t, "m2", &second{register: cluster, after: swapped})
	a, err := r.engine.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{
		VolumeName: "demo", EngineName: "demo-e-0", Next: record(1, 1)})
	if err != nil || a.GetSwapped() || !proto.Equal(a.GetCurrent(), record(1, 1)) {
		t.Errorf("%v %v", a, err)
	}
}

// second waits until the first has swapped, however slow that is.
type second struct {
	*register
	after <-chan struct{}
}

func (s *second) CompareAndSwap(ctx context.Context,
	r *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	<-s.after
	return s.register.CompareAndSwap(ctx, r)
}

// mute does what it is asked, once, and never says so.
type mute struct {
	*register
	swapped chan<- struct{}
}

func (m *mute) CompareAndSwap(ctx context.Context,
	r *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	if _, err := m.register.CompareAndSwap(ctx, r); err != nil {
		return nil, err
	}
	close(m.swapped)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestManyQuestions at once, over managers that come and go: each is answered, none twice or for
// another engine.
func TestManyQuestions(t *testing.T) {
	r := newRig(t, instancetest.Deadline, instancetest.Deadline)
	echo := &echoHandler{}
	r.attach(t, "m0", echo)
	stop := r.attach(t, "m1", echo)
	var work sync.WaitGroup
	for i := range 200 {
		work.Go(func() {
			name := fmt.Sprintf("v%d-e-0", i)
			m, err := r.engine.Get(t.Context(), &witnessv1.GetRequest{VolumeName: "v", EngineName: name})
			if err != nil || m.GetEngine() != name {
				t.Errorf("%s: %v %v", name, m, err)
			}
		})
	}
	stop()
	work.Wait()
}

// echoHandler answers with the name of the engine that asks.
type echoHandler struct{ register }

func (*echoHandler) Get(_ context.Context, r *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	return &witnessv1.Membership{Engine: r.GetEngineName()}, nil
}

// TestUnannouncedManager is refused.
func TestUnannouncedManager(t *testing.T) {
	r := newRig(t, time.Second, time.Second)
	stream, err := witnessv1.NewWitnessRelayClient(dial(t, r.addr)).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&witnessv1.Answer{Id: 7, Manager: "m"}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	if err := relayclient.Serve(t.Context(), dial(t, r.addr), "", &register{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a name: %v", err)
	}
}

// TestKeep attaches again after a loss and ends with its context.
func TestKeep(t *testing.T) {
	relay := witness.NewRelay(slog.New(slog.DiscardHandler))
	// At an address of its own: the port must still be free when it is listened at again.
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", instancetest.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	first := grpc.NewServer()
	relay.RegisterRelay(first)
	go func() { _ = first.Serve(l) }()
	ctx, cancel := context.WithCancel(t.Context())
	conn := dial(t, l.Addr().String())
	ended := make(chan struct{})
	lost := make(chan error, 1000)
	go func() {
		defer close(ended)
		relayclient.Keep(ctx, conn, "m1", &register{}, 10*time.Millisecond, func(err error) { lost <- err })
	}()
	attached := func() bool { return len(relay.Managers()) == 1 }
	wait.Until(t, "attached", attached)
	first.Stop()
	if err := <-lost; err == nil {
		t.Error("lost without a reason")
	}
	wait.Until(t, "detached", func() bool { return len(relay.Managers()) == 0 })
	again, err := new(net.ListenConfig).Listen(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	serve(t, again, relay.RegisterRelay)
	wait.Until(t, "attached again", attached)
	cancel()
	<-ended
}

func TestListenUnix(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	path := filepath.Join(dir, "s.sock")
	l, err := witness.ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]os.FileMode{path: 0o600, dir: 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if _, err := witness.ListenUnix(t.Context(), path); err == nil ||
		!strings.Contains(err.Error(), "another instance manager") {
		t.Errorf("socket in use: %v", err)
	}
	// A socket that a killed process left behind is replaced.
	l.Close()
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	l, err = witness.ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := witness.ListenUnix(t.Context(), "/tmp/"+strings.Repeat("x", 120)); err == nil {
		t.Error("a path that is too long was taken")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := witness.ListenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "nobody else") {
		t.Errorf("a directory that others can write to: %v", err)
	}
}
