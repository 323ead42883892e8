package engineclient_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/controlplane/process/engineclient"
)

// engineStub is an engine that answers from fields.
type engineStub struct {
	enginev1.UnimplementedEngineServer
	mu     sync.Mutex
	meta   metadata.MD
	states chan *enginev1.State
	err    error
	added  string
	taken  *enginev1.SnapshotCreateRequest
	// options are those that were set last; told are those that the engine tells of.
	options *enginev1.OptionsSetRequest
	told    *enginev1.Options
	// backedUp and restored are the orders for backups.
	backedUp *enginev1.BackupCreateRequest
	restored *enginev1.BackupRestoreRequest
}

func (s *engineStub) note(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta, _ = metadata.FromIncomingContext(ctx)
	return s.err
}

func (s *engineStub) Get(ctx context.Context, _ *enginev1.GetRequest) (*enginev1.State, error) {
	state := full()
	state.Options = s.told
	return state, s.note(ctx)
}

func (s *engineStub) OptionsSet(ctx context.Context, r *enginev1.OptionsSetRequest) (*enginev1.State, error) {
	s.options = r
	return full(), s.note(ctx)
}

func (s *engineStub) ReplicaAdd(ctx context.Context, r *enginev1.ReplicaAddRequest) (*enginev1.State, error) {
	s.added = r.GetAddress()
	return full(), s.note(ctx)
}

func (s *engineStub) SnapshotCreate(ctx context.Context,
	r *enginev1.SnapshotCreateRequest) (*enginev1.SnapshotCreateResponse, error) {
	s.taken = r
	return &enginev1.SnapshotCreateResponse{Name: r.GetName()}, s.note(ctx)
}

func (s *engineStub) FilesystemTrim(ctx context.Context,
	_ *enginev1.FilesystemTrimRequest) (*enginev1.FilesystemTrimResponse, error) {
	return &enginev1.FilesystemTrimResponse{Bytes: 4096}, s.note(ctx)
}

func (s *engineStub) Watch(_ *enginev1.GetRequest, stream grpc.ServerStreamingServer[enginev1.State]) error {
	for st := range s.states {
		if err := stream.Send(st); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "shutting down")
}

func full() *enginev1.State {
	return &enginev1.State{
		Backups:    map[string]*enginev1.Backup{"b": {Name: "b", Snapshot: "s", State: "in_progress", Progress: 300}},
		Restore:    &enginev1.Clone{Running: true, State: "in_progress", Progress: 40, Snapshot: "b0", Volume: "w"},
		RestoreUrl: "u0",
		VolumeName: "v", InstanceName: "v-e-0", Size: 1 << 30, Frontend: "tgt-blockdev", FrontendState: "up",
		Endpoint: "/dev/longhorn/v",
		Replicas: []*enginev1.Replica{
			{Address: "tcp://10.0.0.1:10000", Member: "v-aaaaaaaa", Mode: enginev1.Mode_MODE_RW},
			{Address: "tcp://10.0.0.2:10000", Mode: enginev1.Mode_MODE_WO,
				Rebuild: &enginev1.Rebuild{Running: true, Progress: 150, State: "in_progress",
					FromAddress: "tcp://10.0.0.1:10000"}},
			{Address: "tcp://10.0.0.3:10000", Mode: enginev1.Mode_MODE_UNSPECIFIED},
			{Address: "tcp://10.0.0.4:10000", Mode: enginev1.Mode(77), Error: "from the future"},
		},
		Snapshots: map[string]*enginev1.Snapshot{"volume-head": {Name: "volume-head", Parent: "s", Size: 4096},
			"s": {Name: "s", Children: map[string]bool{"volume-head": true, "gone": false}, UserCreated: true}},
		Suspended: true, SuspendedReason: "no witness", Epoch: 3, Generation: 4, UpgradePauseNanos: 12e6,
	}
}

// serve runs the engine and a proxy in front of it.
func serve(t *testing.T, s *engineStub) (engineclient.Target, *engineclient.Proxy) {
	t.Helper()
	g := grpc.NewServer()
	enginev1.RegisterEngineServer(g, s)
	address, _ := serveGRPC(t, g, func() {})
	front, _ := serveProxy(t)
	ms := &managers{address: map[string]string{"10.0.0.1": front}}
	proxies := engineclient.NewProxies(ms.dial)
	t.Cleanup(proxies.Close)
	if err := proxies.Ensure(t.Context(), engineclient.Manager{Name: "im", IP: "10.0.0.1",
		ProxyAPIVersion: 5}); err != nil {
		t.Fatal(err)
	}
	return engineclient.Target{Address: address, Volume: "v", Engine: "v-e-0", InstanceManager: "im", Image: "img"},
		engineclient.NewProxy(proxies)
}

func TestGetTranslatesTheState(t *testing.T) {
	s := &engineStub{}
	target, d := serve(t, s)
	got, err := d.Get(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if got.UpgradePause != 12*time.Millisecond {
		t.Errorf("the pause is %v", got.UpgradePause)
	}
	want := []engineclient.Replica{
		{Address: "10.0.0.1:10000", Member: "v-aaaaaaaa", Mode: engineclient.ModeRW},
		{Address: "10.0.0.2:10000", Mode: engineclient.ModeWO,
			Rebuild: &engineclient.Rebuild{Running: true, Percent: 100, State: "in_progress", From: "10.0.0.1:10000"}},
		{Address: "10.0.0.3:10000", Mode: engineclient.ModePending},
		{Address: "10.0.0.4:10000", Mode: engineclient.ModeERR, Error: "from the future"},
	}
	if !reflect.DeepEqual(got.Replicas, want) {
		t.Errorf("replicas %+v, want %+v", got.Replicas, want)
	}
	if !got.FrontendUp || got.Endpoint != "/dev/longhorn/v" || !got.Suspended || got.Generation != 4 ||
		got.SizeBytes != 1<<30 {
		t.Errorf("state %+v", got)
	}
	if p := got.Snapshots["s"]; !reflect.DeepEqual(p.Children, []string{"volume-head"}) || !p.UserCreated {
		t.Errorf("snapshot %+v", p)
	}
	if s.meta.Get("volume-name")[0] != "v" || s.meta.Get("instance-name")[0] != "v-e-0" {
		t.Errorf("identity was not sent: %v", s.meta)
	}
}

// TestOptions: what is set is what was asked for and nothing else; what an engine does not tell of
// stays open.
func TestOptions(t *testing.T) {
	s := &engineStub{}
	target, d := serve(t, s)
	one, size, yes := 7, int64(9), true
	for _, tt := range []struct {
		set  engineclient.Options
		want string
	}{
		{engineclient.Options{SnapshotMaxCount: &one, SnapshotMaxSizeBytes: &size}, "snapshotMaxCount snapshotMaxSize"},
		{engineclient.Options{RebuildConcurrency: &one}, "rebuildConcurrency"},
		{engineclient.Options{RebuildBandwidth: &size}, "rebuildBandwidth"},
		{engineclient.Options{UnmapMarkSnapChainRemoved: &yes}, "unmapMarkSnapChainRemoved"},
	} {
		if err := d.OptionsSet(t.Context(), target, tt.set); err != nil {
			t.Fatal(err)
		}
		var got []string
		s.options.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			got = append(got, f.JSONName())
			if n := v.String(); n != "7" && n != "9" && n != "true" {
				t.Errorf("%s is %s", f.JSONName(), n)
			}
			return true
		})
		if slices.Sort(got); strings.Join(got, " ") != tt.want {
			t.Errorf("set are %v, want %s", got, tt.want)
		}
	}
	for n, want := range map[int32]int{0: 0, 3: 3} {
		s.told = &enginev1.Options{RebuildConcurrency: n}
		state, err := d.Get(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		if got := state.Options.RebuildConcurrency; (got != nil) != (want > 0) || got != nil && *got != want {
			t.Errorf("told %d: %v", n, got)
		}
	}
}

func TestErrorsAreTyped(t *testing.T) {
	tests := []struct {
		code codes.Code
		want error
	}{
		{codes.NotFound, engineclient.ErrNotFound}, {codes.FailedPrecondition, engineclient.ErrPrecondition},
		{codes.InvalidArgument, engineclient.ErrInvalid}, {codes.Unavailable, engineclient.ErrUnavailable},
		{codes.DeadlineExceeded, engineclient.ErrUnavailable}, {codes.Internal, engineclient.ErrUnavailable},
	}
	for _, tt := range tests {
		s := &engineStub{err: status.Error(tt.code, "because")}
		target, d := serve(t, s)
		_, err := d.ReplicaAdd(t.Context(), target, "10.0.0.9:10000")
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), "because") || !strings.Contains(err.Error(), "v-e-0") {
			t.Errorf("%v: %v, want %v", tt.code, err, tt.want)
		}
		if s.added != "tcp://10.0.0.9:10000" {
			t.Errorf("address sent as %q", s.added)
		}
	}
}

func TestNobodyListening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	target, d := serve(t, &engineStub{})
	target.Address = address
	if _, err := d.Get(t.Context(), target); !errors.Is(err, engineclient.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
}

func TestWatchDeliversUntilTheEnd(t *testing.T) {
	s := &engineStub{states: make(chan *enginev1.State, 2)}
	target, d := serve(t, s)
	s.states <- &enginev1.State{Generation: 1}
	s.states <- &enginev1.State{Generation: 2}
	close(s.states)
	var seen []int64
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := d.Watch(ctx, target, func(st engineclient.State) { seen = append(seen, st.Generation) })
	if !errors.Is(err, engineclient.ErrUnavailable) || !reflect.DeepEqual(seen, []int64{1, 2}) {
		t.Errorf("saw %v, ended with %v", seen, err)
	}
	d.Forget(target)
	d.Forget(target) // twice does no harm
}

func TestFakeBehavesAsAnEngine(t *testing.T) {
	var f engineclient.Fake
	target := engineclient.Target{Address: "a", Engine: "e"}
	f.Set("a", engineclient.State{Engine: "e",
		Replicas: []engineclient.Replica{{Address: "r1", Mode: engineclient.ModeRW}}})
	if _, err := f.ReplicaRemove(t.Context(), target, "r1"); !errors.Is(err, engineclient.ErrPrecondition) {
		t.Errorf("the last replica was removed: %v", err)
	}
	st, err := f.ReplicaAdd(t.Context(), target, "r2")
	if err != nil || len(st.Replicas) != 2 || st.Replicas[1].Mode != engineclient.ModeWO {
		t.Errorf("add: %+v, %v", st, err)
	}
	if _, err := f.ReplicaRemove(t.Context(), target, "r3"); !errors.Is(err, engineclient.ErrNotFound) {
		t.Errorf("unknown replica: %v", err)
	}
	if _, err := f.Get(t.Context(), engineclient.Target{Address: "a", Engine: "other"}); !errors.Is(err,
		engineclient.ErrPrecondition) {
		t.Errorf("another engine's call was answered: %v", err)
	}
	f.Break("a")
	if _, err := f.Get(t.Context(), target); !errors.Is(err, engineclient.ErrUnavailable) {
		t.Errorf("a broken engine answered: %v", err)
	}
}

// BackupCreate and BackupRestore note what is asked for.
func (s *engineStub) BackupCreate(ctx context.Context, r *enginev1.BackupCreateRequest) (*enginev1.Backup, error) {
	s.backedUp = r
	return &enginev1.Backup{Name: r.GetName()}, s.note(ctx)
}

func (s *engineStub) BackupRestore(ctx context.Context, r *enginev1.BackupRestoreRequest) (*enginev1.State, error) {
	s.restored = r
	return full(), s.note(ctx)
}

// TestBackups: orders, and what the state tells of them.
func TestBackups(t *testing.T) {
	s := &engineStub{}
	g := grpc.NewServer()
	enginev1.RegisterEngineServer(g, s)
	engine, _ := serveGRPC(t, g, func() {})
	address, _ := serveProxy(t)
	proxies := engineclient.NewProxies((&managers{address: map[string]string{"10.0.0.1": address}}).dial)
	defer proxies.Close()
	if err := proxies.Ensure(t.Context(), engineclient.Manager{Name: "im", IP: "10.0.0.1",
		ProxyAPIVersion: 5}); err != nil {
		t.Fatal(err)
	}
	c := engineclient.NewRouter(proxies, &counted{})
	target := engineclient.Target{Address: engine, Volume: "v", Engine: "v-e-0", InstanceManager: "im"}
	secret := map[string]string{"AWS_SECRET_ACCESS_KEY": "k"}
	err := c.SnapshotBackup(t.Context(), target, engineclient.BackupRequest{Backup: "b", Snapshot: "s",
		Target: "s3://b@r/", Credentials: secret, Full: true, BlockBytes: 2 << 20, Compression: "gzip", Concurrency: 2,
		BandwidthMiB: 7})
	if r := s.backedUp; err != nil || r.GetName() != "b" || r.GetParameters()["backup-mode"] != "full" ||
		r.GetParameters()["backup-block-size"] != "2097152" || r.GetCredentials()["AWS_SECRET_ACCESS_KEY"] != "k" ||
		r.GetNodeBandwidth() != 7<<20 {
		t.Errorf("%v %v", r, err)
	}
	err = c.BackupRestore(t.Context(), target, engineclient.RestoreRequest{URL: "u", Credentials: secret,
		AcceptDamage: true, BandwidthMiB: 7})
	if err != nil || !s.restored.GetAcceptDamage() || s.restored.GetNodeBandwidth() != 7<<20 ||
		s.restored.GetUrl() != "u" || s.restored.GetCredentials()["AWS_SECRET_ACCESS_KEY"] != "k" {
		t.Errorf("%v %v", s.restored, err)
	}
	b, err := c.SnapshotBackupStatus(t.Context(), target, "b")
	if want := (engineclient.BackupProgress{Snapshot: "s", State: "in_progress", Percent: 100}); err != nil || b != want {
		t.Errorf("%+v %v", b, err)
	}
	if _, err := c.SnapshotBackupStatus(t.Context(), target, "other"); !errors.Is(err, engineclient.ErrNotFound) {
		t.Errorf("a backup that was not begun: %v", err)
	}
	r, err := c.BackupRestoreStatus(t.Context(), target)
	want := engineclient.RestoreProgress{Running: true, State: "in_progress", Percent: 40, Backup: "b0", URL: "u0"}
	if err != nil || r != want {
		t.Errorf("%+v %v", r, err)
	}
}
