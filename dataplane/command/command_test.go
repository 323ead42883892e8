package command

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const marker = "ANKOLE_TEST_COMMAND"

// TestMain makes the test binary the engine binary.
func TestMain(m *testing.M) {
	if os.Getenv(marker) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// engine answers with a fixed state and notes what is ordered.
type engine struct {
	enginev1.UnimplementedEngineServer
	mu      sync.Mutex
	ordered []string
	watched []*enginev1.State
}

func (e *engine) check(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("volume-name"); len(v) > 0 && v[0] != "" && v[0] != "demo" {
		return status.Errorf(codes.FailedPrecondition, "this is an engine of volume demo, not of %s", v[0])
	}
	return nil
}

func (e *engine) order(ctx context.Context, text string) (*enginev1.State, error) {
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ordered = append(e.ordered, text)
	return state(), nil
}

// state has something in every field that is shown.
func state() *enginev1.State {
	return &enginev1.State{VolumeName: "demo", VolumeUuid: "u-demo", InstanceName: "demo-e-0", Size: 1 << 30,
		Frontend: "tgt-blockdev", FrontendState: "up",
		Endpoint: "/dev/longhorn/demo", Expanding: true, LastExpansionError: "no space",
		LastExpansionFailedAt: "2026-01-02T03:04:05Z",
		Options: &enginev1.Options{SnapshotMaxCount: 250, SnapshotMaxSize: 1 << 40,
			UnmapMarkSnapChainRemoved: true},
		Clone: &enginev1.Clone{Running: true, State: "in_progress", Progress: 70, FromAddress: "tcp://10.0.1.1:10000",
			Volume: "source", Snapshot: "s9"},
		Restore: &enginev1.Clone{State: "error", Progress: 30, Error: "the engine has ended", Volume: "source",
			Snapshot: "backup-1", Name: "s8", Interrupted: true},
		RestoreUrl: "s3://b@r/?backup=backup-1&volume=source",
		Backups: map[string]*enginev1.Backup{"backup-2": {Name: "backup-2", Url: "s3://b@r/?backup=backup-2&volume=demo",
			Snapshot: "s1", State: "in_progress", Progress: 60, FromAddress: "tcp://10.0.0.1:10000"}},
		Replicas: []*enginev1.Replica{
			{Address: "tcp://10.0.0.1:10000", Member: "demo-a", Mode: enginev1.Mode_MODE_RW,
				Purge: &enginev1.Purge{Running: true, Progress: 40, State: "in_progress"}},
			{Address: "tcp://10.0.0.2:10010", Member: "demo-b", Mode: enginev1.Mode_MODE_WO,
				Rebuild: &enginev1.Rebuild{Running: true, Progress: 50, State: "in_progress", FromAddress: "tcp://10.0.0.1:10000"}},
			{Address: "tcp://10.0.0.3:10020", Mode: enginev1.Mode_MODE_ERR, Error: "lost",
				Purge: &enginev1.Purge{State: "error", Error: "disk is broken"}},
		},
		Snapshots: map[string]*enginev1.Snapshot{
			"volume-head": {Name: "volume-head", Parent: "s2", Created: "2026-01-02T03:04:05Z", Size: 8192},
			"s2": {Name: "s2", Parent: "s1", Children: map[string]bool{"volume-head": true},
				Created: "2026-01-02T03:04:04Z", Size: 4096,
				Labels: map[string]string{"for": "a & b"}},
			"s1": {Name: "s1", Children: map[string]bool{"s2": true}, Removed: true, UserCreated: true,
				Created: "2026-01-02T03:04:03Z", Size: 1 << 20},
		}}
}

func (e *engine) Get(ctx context.Context, _ *enginev1.GetRequest) (*enginev1.State, error) {
	return state(), e.check(ctx)
}

func (e *engine) Watch(_ *enginev1.GetRequest, s grpc.ServerStreamingServer[enginev1.State]) error {
	for _, state := range e.watched {
		if err := s.Send(state); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "the engine ends")
}

func (e *engine) Version(ctx context.Context, _ *enginev1.VersionRequest) (*enginev1.VersionResponse, error) {
	return &enginev1.VersionResponse{Version: "v9", GitCommit: "abc", BuildDate: "2026-01-02", CliApiVersion: 99,
		CliApiMinVersion:     3,
		ControllerApiVersion: 5, ControllerApiMinVersion: 3, DataFormatVersion: 1, DataFormatMinVersion: 1}, e.check(ctx)
}

func (e *engine) ReplicaAdd(ctx context.Context, r *enginev1.ReplicaAddRequest) (*enginev1.State, error) {
	return e.order(ctx, "add "+r.GetAddress())
}

func (e *engine) ReplicaRemove(ctx context.Context, r *enginev1.ReplicaRemoveRequest) (*enginev1.State, error) {
	return e.order(ctx, "remove "+r.GetAddress())
}

func (e *engine) SnapshotCreate(ctx context.Context,
	r *enginev1.SnapshotCreateRequest) (*enginev1.SnapshotCreateResponse, error) {
	_, err := e.order(ctx, "snapshot "+r.GetName()+" "+r.GetLabels()["a"])
	return &enginev1.SnapshotCreateResponse{Name: r.GetName()}, err
}

func (e *engine) SnapshotRemove(ctx context.Context, r *enginev1.SnapshotRemoveRequest) (*enginev1.State, error) {
	if r.GetName() == "gone" {
		return nil, status.Error(codes.NotFound, "no snapshot gone")
	}
	return e.order(ctx, "remove snapshot "+r.GetName())
}

func (e *engine) SnapshotPurge(ctx context.Context, r *enginev1.SnapshotPurgeRequest) (*enginev1.State, error) {
	if r.GetSkipIfInProgress() {
		return e.order(ctx, "purge or skip")
	}
	return e.order(ctx, "purge")
}

func (e *engine) SnapshotHash(ctx context.Context, r *enginev1.SnapshotHashRequest) (*enginev1.SnapshotHashState,
	error) {
	verb := "hash "
	if r.GetRehash() {
		verb = "rehash "
	}
	_, err := e.order(ctx, verb+r.GetName())
	return &enginev1.SnapshotHashState{}, err
}

func (e *engine) SnapshotHashCancel(ctx context.Context,
	r *enginev1.SnapshotHashCancelRequest) (*enginev1.SnapshotHashState, error) {
	_, err := e.order(ctx, "no hash "+r.GetName())
	return &enginev1.SnapshotHashState{}, err
}

func (e *engine) SnapshotHashStatus(ctx context.Context,
	r *enginev1.SnapshotHashStatusRequest) (*enginev1.SnapshotHashState, error) {
	if r.GetName() != "s1" {
		return nil, status.Errorf(codes.NotFound, "nothing is known of %s", r.GetName())
	}
	return &enginev1.SnapshotHashState{Name: "s1", Running: true, ByAddress: map[string]*enginev1.ReplicaHash{
		"tcp://10.0.0.1:10000": {State: "complete", Checksum: "00c0ffee00c0ffee"},
		"tcp://10.0.0.2:10010": {State: "in_progress", Progress: 40},
		"tcp://10.0.0.3:10020": {State: "complete", Checksum: "0123456789abcdef", SilentlyCorrupted: true},
		"tcp://10.0.0.4:10030": {State: "error", Error: "cancelled"}}}, e.check(ctx)
}

func (e *engine) SnapshotRevert(ctx context.Context, r *enginev1.SnapshotRevertRequest) (*enginev1.State, error) {
	return e.order(ctx, "revert "+r.GetName())
}

func (e *engine) Expand(ctx context.Context, r *enginev1.ExpandRequest) (*enginev1.State, error) {
	return e.order(ctx, "expand "+(*size)(&r.Size).String())
}

func (e *engine) OptionsSet(ctx context.Context, r *enginev1.OptionsSetRequest) (*enginev1.State, error) {
	if r.UnmapMarkSnapChainRemoved == nil || r.SnapshotMaxCount != nil || r.SnapshotMaxSize != nil {
		return e.order(ctx, "other options")
	}
	if r.GetUnmapMarkSnapChainRemoved() {
		return e.order(ctx, "unmap on")
	}
	return e.order(ctx, "unmap off")
}

func (e *engine) FrontendStart(ctx context.Context, r *enginev1.FrontendStartRequest) (*enginev1.State, error) {
	return e.order(ctx, "frontend "+r.GetFrontend())
}

func (e *engine) FrontendShutdown(ctx context.Context, _ *enginev1.FrontendShutdownRequest) (*enginev1.State, error) {
	return e.order(ctx, "frontend off")
}

// serve runs the engine and returns its address.
func serve(t *testing.T, e *engine) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	enginev1.RegisterEngineServer(g, e)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }() // ends with Stop
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().String()
}

// run executes the binary.
func run(t *testing.T, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(os.Environ(), marker+"=1")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.String(), errs.String(), err == nil
}

// TestOutput compares what the verbs print with golden files.
func TestOutput(t *testing.T) {
	address := serve(t, &engine{})
	for file, args := range map[string]string{
		"info.json": "info", "ls-replica.txt": "ls", "rebuild-status.json": "replica-rebuild-status",
		"snapshots.txt":   "snapshots",
		"snapshot-ls.txt": "snapshot ls", "snapshot-info.json": "snapshots info",
		"purge-status.json": "snapshots purge-status",
		"hash-status.json":  "snapshots hash-status s1", "clone-status.json": "snapshots clone-status",
		"backup-status.json": "backups status backup-2", "restore-status.json": "backups restore-status",
	} {
		out, errs, ok := run(t,
			append([]string{"--volume-name", "demo", "--engine-instance-name", "demo-e-0", "--url", address},
				strings.Fields(args)...)...)
		if !ok {
			t.Errorf("%s: %s", args, errs)
			continue
		}
		golden := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if out != string(want) {
			t.Errorf("%s prints\n%s\nwant\n%s", args, out, want)
		}
	}
}

// TestOutputHasTheFieldsOfItsClients: clients decode what verbs print by these names, and no golden
// text that was written again says that one has changed.
func TestOutputHasTheFieldsOfItsClients(t *testing.T) {
	address := serve(t, &engine{})
	for args, fields := range map[string]string{
		"info": "name size replicaCount endpoint frontend frontendState isExpanding lastExpansionError " +
			"lastExpansionFailedAt unmapMarkSnapChainRemoved snapshotMaxCount SnapshotMaxSize",
		"replica-rebuild-status":   "error isRebuilding progress state fromReplicaAddress fromReplicaAddressList",
		"snapshots purge-status":   "error isPurging progress state",
		"snapshots info":           "name parent children removed usercreated created size labels",
		"snapshots clone-status":   "isCloning error progress state fromReplicaAddress snapshotName",
		"snapshots hash-status s1": "state checksum error silentlyCorrupted",
	} {
		out, errs, ok := run(t, append([]string{"--url", address}, strings.Fields(args)...)...)
		var objects map[string]any
		if err := json.Unmarshal([]byte(out), &objects); !ok || err != nil {
			t.Errorf("%s: %v %s", args, err, errs)
			continue
		}
		if args == "info" {
			objects = map[string]any{"": objects}
		}
		if len(objects) == 0 {
			t.Errorf("%s prints nothing of which the fields could be seen", args)
		}
		for name, o := range objects {
			m, _ := o.(map[string]any)
			want := strings.Fields(fields)
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(m)); !slices.Equal(got, want) {
				t.Errorf("%s %s has the fields %v, want %v", args, name, got, want)
			}
		}
	}
}

// TestOrders is the table of what verbs order from the engine; the address is a URL as clients
// write it.
func TestOrders(t *testing.T) {
	e := &engine{}
	url := "http://" + serve(t, e)
	for _, row := range []struct{ args, want, out string }{
		{"expand --size 2g", "expand 2147483648", ""},
		{"frontend start tgt-blockdev", "frontend tgt-blockdev", ""},
		{"frontend shutdown", "frontend off", ""},
		{"unmap-mark-snap-chain-removed --enable", "unmap on", ""},
		{"unmap-mark-snap --disable", "unmap off", ""},
		{"rm-replica 10.0.0.1:10000", "remove tcp://10.0.0.1:10000", ""},
		{"rm tcp://10.0.0.1:10000", "remove tcp://10.0.0.1:10000", ""},
		{"update-replica tcp://10.0.0.1:10000 --mode ERR", "remove tcp://10.0.0.1:10000", ""},
		{"snapshots create s3 --label a=b --freeze-fs", "snapshot s3 b", "s3\n"},
		{"snapshot revert s1", "revert s1", ""},
		{"snapshots rm s1 s2", "remove snapshot s1, remove snapshot s2", ""},
		{"snapshots purge", "purge", ""},
		{"snapshots purge --skip-if-in-progress", "purge or skip", ""},
		{"snapshots hash s1", "hash s1", ""},
		{"snapshot hash s1 --rehash", "rehash s1", ""},
		{"snapshots hash-cancel s1", "no hash s1", ""},
		{"verify-rebuild-replica 10.0.0.1:10000 --replica-instance-name demo-r-1", "", ""},
	} {
		e.mu.Lock()
		e.ordered = nil
		e.mu.Unlock()
		out, errs, ok := run(t, append([]string{"--url", url}, strings.Fields(row.args)...)...)
		if got := strings.Join(e.ordered, ", "); !ok || got != row.want || out != row.out {
			t.Errorf("%s ordered %q and printed %q (%s), want %q and %q", row.args, got, out, errs, row.want, row.out)
		}
	}
}

// TestRefusals: exit status 1, the reason on standard error, nothing on standard output.
func TestRefusals(t *testing.T) {
	e := &engine{}
	url := serve(t, e)
	for _, row := range []struct{ args, says string }{
		{"--volume-name other info", "code: FailedPrecondition\nerror: engine at "},
		{"--volume-name other info", "not of other"},
		{"--url 127.0.0.1:1 info", "code: Unavailable\nerror: engine at 127.0.0.1:1"},
		{"expand", "size"},
		{"expand --size much", "not a size"},
		{"frontend", "--help"},
		{"unmap-mark-snap", "--enable or --disable"},
		{"unmap-mark-snap --enable --disable", "--enable or --disable"},
		{"update-replica 10.0.0.1:1 --mode RW", "only ERR"},
		{"verify-rebuild 10.0.0.2:10010",
			"code: FailedPrecondition\nerror: replica tcp://10.0.0.2:10010 is not in mode RW (WO)"},
		{"verify-rebuild 10.0.0.9:10010", "not in mode RW"},
		{"snapshots create s1 --label nothing", "key=value"},
		{"snapshots rm gone s2", "code: NotFound\nerror: engine at "},
		{"snapshots rm gone", "no snapshot gone"},
		{"snapshots hash", "accepts 1 arg"},
		{"snapshots hash-status s9", "nothing is known of s9"},
		{"add-replica 10.0.0.1:1 --restore", "not built yet"},
		{"fly", "unknown command"},
	} {
		args := strings.Fields(row.args)
		if args[0] != "--url" {
			args = append([]string{"--url", url}, args...)
		}
		out, errs, ok := run(t, args...)
		if ok || out != "" || !strings.Contains(errs, row.says) {
			t.Errorf("%s: printed %q and %q, want an error that says %q", row.args, out, errs, row.says)
		}
	}
	if want := []string{"remove snapshot s2"}; !reflect.DeepEqual(e.ordered, want) {
		t.Errorf("ordered %q, want %q", e.ordered, want)
	}
}

// TestAddWaits: add-replica ends when the rebuild does.
func TestAddWaits(t *testing.T) {
	const address = "tcp://10.0.0.4:10000"
	at := func(mode enginev1.Mode, text string) *enginev1.State {
		return &enginev1.State{Replicas: []*enginev1.Replica{{Address: address, Mode: mode, Error: text}}}
	}
	for _, row := range []struct {
		states []*enginev1.State
		says   string
	}{
		{[]*enginev1.State{at(enginev1.Mode_MODE_UNSPECIFIED, ""), at(enginev1.Mode_MODE_WO, ""),
			at(enginev1.Mode_MODE_RW, "")}, ""},
		{[]*enginev1.State{at(enginev1.Mode_MODE_WO, ""), at(enginev1.Mode_MODE_ERR, "disk is full")}, "disk is full"},
		{[]*enginev1.State{at(enginev1.Mode_MODE_WO, ""), at(enginev1.Mode_MODE_ERR, "")}, "code: Aborted\n"},
		{[]*enginev1.State{at(enginev1.Mode_MODE_WO, ""), {}}, "removed"},
		{nil, "the engine ends"},
	} {
		e := &engine{watched: row.states}
		_, errs, ok := run(t, "--url", serve(t, e), "add", "10.0.0.4:10000", "--size", "1g", "--fast-sync")
		if ok != (row.says == "") || !strings.Contains(errs, row.says) ||
			!reflect.DeepEqual(e.ordered, []string{"add " + address}) {
			t.Errorf("%v: %s, ordered %q, want %q", ok, errs, e.ordered, row.says)
		}
	}
}

func TestVersion(t *testing.T) {
	out, errs, ok := run(t, "--url", serve(t, &engine{}), "version")
	if !ok || !strings.Contains(out, "\"serverVersion\": {\n\t\t\"version\": \"v9\"") ||
		!strings.Contains(out, "\"cliAPIVersion\": 99") {
		t.Errorf("%s %s", out, errs)
	}
	if out, _, ok = run(t, "version", "--client-only"); !ok || !strings.Contains(out, "\"serverVersion\": null") {
		t.Errorf("%s", out)
	}
}
