package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
	"ankole.storage/instancemanager/proxy"
	"ankole.storage/instancemanager/server"
)

// serve runs a server until the test ends and returns its address.
func serve(t *testing.T, s *grpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

// rig is a proxy in front of one engine.
type rig struct {
	*engine
	address string // of the engine
	conn    *grpc.ClientConn
	c       imrpc.ProxyEngineServiceClient
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{engine: &engine{state: &enginev1.State{}}}
	g := grpc.NewServer()
	enginev1.RegisterEngineServer(g, r.engine)
	r.address = serve(t, g)
	engines := &proxy.Engines{}
	t.Cleanup(engines.Close)
	conn, err := grpc.NewClient(serve(t, server.NewWith(engines.ServerOptions(), nil, engines.Register)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.conn, r.c = conn, imrpc.NewProxyEngineServiceClient(conn)
	return r
}

func (r *rig) engineRequest() *imrpc.ProxyEngineRequest {
	return &imrpc.ProxyEngineRequest{Address: r.address, VolumeName: "demo", EngineName: "demo-e-0"}
}

// TestOperations is the table of what each method asks of the engine.
func TestOperations(t *testing.T) {
	r := newRig(t)
	e, c := r.engineRequest(), r.c
	empty := func(_ *emptypb.Empty, err error) error { return err }
	for _, row := range []struct {
		name string
		call func(context.Context) error
		want []string
	}{
		{"VolumeExpand", func(ctx context.Context) error {
			return empty(c.VolumeExpand(ctx, &imrpc.EngineVolumeExpandRequest{ProxyEngineRequest: e,
				Expand: &ptypes.VolumeExpandRequest{Size: 8192}}))
		}, []string{"Expand size=8192"}},
		{"VolumeFrontendStart", func(ctx context.Context) error {
			return empty(c.VolumeFrontendStart(ctx, &imrpc.EngineVolumeFrontendStartRequest{ProxyEngineRequest: e,
				FrontendStart: &ptypes.VolumeFrontendStartRequest{Frontend: "tgt-blockdev"}}))
		}, []string{"FrontendStart frontend=tgt-blockdev"}},
		{"VolumeFrontendShutdown", func(ctx context.Context) error {
			return empty(c.VolumeFrontendShutdown(ctx, e))
		}, []string{"FrontendShutdown"}},
		{"VolumeUnmapMarkSnapChainRemovedSet", func(ctx context.Context) error {
			return empty(c.VolumeUnmapMarkSnapChainRemovedSet(ctx,
				&imrpc.EngineVolumeUnmapMarkSnapChainRemovedSetRequest{ProxyEngineRequest: e,
					UnmapMarkSnap: &ptypes.VolumeUnmapMarkSnapChainRemovedSetRequest{Enabled: true}}))
		}, []string{"OptionsSet unmap_mark_snap_chain_removed=true"}},
		{"VolumeSnapshotMaxCountSet", func(ctx context.Context) error {
			return empty(c.VolumeSnapshotMaxCountSet(ctx,
				&imrpc.EngineVolumeSnapshotMaxCountSetRequest{ProxyEngineRequest: e,
					Count: &ptypes.VolumeSnapshotMaxCountSetRequest{Count: 7}}))
		}, []string{"OptionsSet snapshot_max_count=7"}},
		{"VolumeSnapshotMaxSizeSet to none", func(ctx context.Context) error {
			return empty(c.VolumeSnapshotMaxSizeSet(ctx,
				&imrpc.EngineVolumeSnapshotMaxSizeSetRequest{ProxyEngineRequest: e,
					Size: &ptypes.VolumeSnapshotMaxSizeSetRequest{}}))
		}, []string{"OptionsSet snapshot_max_size=0"}},
		{"ReplicaRebuildingQosSet", func(ctx context.Context) error {
			return empty(c.ReplicaRebuildingQosSet(ctx,
				&imrpc.EngineReplicaRebuildingQosSetRequest{ProxyEngineRequest: e, QosLimitMbps: 3}))
		}, []string{"OptionsSet rebuild_bandwidth=3145728"}},
		{"ReplicaRebuildingQosSet to none", func(ctx context.Context) error {
			return empty(c.ReplicaRebuildingQosSet(ctx, &imrpc.EngineReplicaRebuildingQosSetRequest{ProxyEngineRequest: e}))
		}, []string{"OptionsSet rebuild_bandwidth=0"}},
		{"ReplicaRebuildConcurrentSyncLimitSet", func(ctx context.Context) error {
			return empty(c.ReplicaRebuildConcurrentSyncLimitSet(ctx,
				&imrpc.EngineReplicaRebuildConcurrentSyncLimitSetRequest{ProxyEngineRequest: e, Limit: 5}))
		}, []string{"OptionsSet rebuild_concurrency=5"}},
		{"SnapshotRevert", func(ctx context.Context) error {
			return empty(c.SnapshotRevert(ctx, &imrpc.EngineSnapshotRevertRequest{ProxyEngineRequest: e, Name: "s1"}))
		}, []string{"SnapshotRevert name=s1"}},
		{"SnapshotRemove", func(ctx context.Context) error {
			return empty(c.SnapshotRemove(ctx, &imrpc.EngineSnapshotRemoveRequest{ProxyEngineRequest: e,
				Names: []string{"s1", "s2"}}))
		}, []string{"SnapshotRemove name=s1", "SnapshotRemove name=s2"}},
		{"SnapshotPurge", func(ctx context.Context) error {
			return empty(c.SnapshotPurge(ctx, &imrpc.EngineSnapshotPurgeRequest{ProxyEngineRequest: e, SkipIfInProgress: true}))
		}, []string{"SnapshotPurge skip_if_in_progress=true"}},
		{"SnapshotHash", func(ctx context.Context) error {
			return empty(c.SnapshotHash(ctx, &imrpc.EngineSnapshotHashRequest{ProxyEngineRequest: e, SnapshotName: "s1",
				Rehash: true}))
		}, []string{"SnapshotHash name=s1 rehash=true"}},
		{"SnapshotHashStatus", func(ctx context.Context) error {
			s, err := c.SnapshotHashStatus(ctx, &imrpc.EngineSnapshotHashStatusRequest{ProxyEngineRequest: e,
				SnapshotName: "s1"})
			want := &imrpc.EngineSnapshotHashStatusProxyResponse{Status: map[string]*ptypes.SnapshotHashStatusResponse{
				"tcp://10.0.0.1:10000": {State: "complete", Checksum: "00c0ffee00c0ffee", SilentlyCorrupted: true},
				"tcp://10.0.0.2:10000": {State: "error", Error: "cancelled"}}}
			if err == nil && !proto.Equal(s, want) {
				err = errors.New("told " + s.String())
			}
			return err
		}, []string{"SnapshotHashStatus name=s1"}},
		{"VolumeSnapshot", func(ctx context.Context) error {
			s, err := c.VolumeSnapshot(ctx, &imrpc.EngineVolumeSnapshotRequest{ProxyEngineRequest: e,
				SnapshotVolume: &ptypes.VolumeSnapshotRequest{Name: "s3"}})
			if err == nil && s.GetSnapshot().GetName() != "s3!" {
				err = errors.New("the name is " + s.GetSnapshot().GetName())
			}
			return err
		}, []string{"SnapshotCreate name=s3 user_created=true"}},
		{"ReplicaRemove", func(ctx context.Context) error {
			return empty(c.ReplicaRemove(ctx, &imrpc.EngineReplicaRemoveRequest{ProxyEngineRequest: e,
				ReplicaAddress: "tcp://10.0.0.1:10000"}))
		}, []string{"ReplicaRemove address=tcp://10.0.0.1:10000"}},
		{"ReplicaModeUpdate to ERR", func(ctx context.Context) error {
			return empty(c.ReplicaModeUpdate(ctx, &imrpc.EngineReplicaModeUpdateRequest{ProxyEngineRequest: e,
				ReplicaAddress: "10.0.0.1:10000", Mode: ptypes.ReplicaMode_ERR}))
		}, []string{"ReplicaRemove address=tcp://10.0.0.1:10000"}},
		{"Ping", func(ctx context.Context) error { return empty(c.Ping(ctx, &emptypb.Empty{})) }, nil},
	} {
		r.mu.Lock()
		r.asked = nil
		r.mu.Unlock()
		if err := row.call(t.Context()); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if !reflect.DeepEqual(r.asked, row.want) {
			t.Errorf("%s asked the engine for %q, want %q", row.name, r.asked, row.want)
		}
	}
}

// TestState is how the engine's state is told in the reference's messages.
func TestState(t *testing.T) {
	r := newRig(t)
	r.state = &enginev1.State{VolumeName: "demo", Size: 1 << 30, Frontend: "tgt-blockdev", FrontendState: "up",
		Endpoint:  "/dev/longhorn/demo",
		Expanding: true, LastExpansionError: "full",
		Options: &enginev1.Options{SnapshotMaxCount: 9, SnapshotMaxSize: 10, UnmapMarkSnapChainRemoved: true,
			RebuildConcurrency: 3},
		Replicas: []*enginev1.Replica{
			{Address: "tcp://10.0.0.1:10000", Mode: enginev1.Mode_MODE_RW,
				Purge: &enginev1.Purge{Running: true, Progress: 40, State: "in_progress"}},
			{Address: "tcp://10.0.0.2:10000", Mode: enginev1.Mode_MODE_WO,
				Rebuild: &enginev1.Rebuild{Running: true, Progress: 50, State: "in_progress", FromAddress: "tcp://10.0.0.1:10000"}},
			{Address: "tcp://10.0.0.3:10000", Mode: enginev1.Mode(77)},
		},
		Snapshots: map[string]*enginev1.Snapshot{"volume-head": {Name: "volume-head", Parent: "s", Size: 4096},
			"s": {Name: "s", Children: map[string]bool{"volume-head": true}}}}
	e := r.engineRequest()
	v, err := r.c.VolumeGet(t.Context(), e)
	want := &ptypes.Volume{Name: "demo", Size: 1 << 30, ReplicaCount: 3, Endpoint: "/dev/longhorn/demo",
		Frontend: "tgt-blockdev", FrontendState: "up",
		IsExpanding: true, LastExpansionError: "full", UnmapMarkSnapChainRemoved: true, SnapshotMaxCount: 9,
		SnapshotMaxSize: 10}
	if err != nil || !proto.Equal(v.GetVolume(), want) {
		t.Errorf("%v %v", v, err)
	}
	list, err := r.c.ReplicaList(t.Context(), e)
	if err != nil || list.GetReplicaList().GetReplicas()[0].GetMode() != ptypes.ReplicaMode_RW ||
		list.GetReplicaList().GetReplicas()[2].GetMode() != ptypes.ReplicaMode_ERR {
		t.Errorf("%v %v", list, err)
	}
	rebuilds, err := r.c.ReplicaRebuildingStatus(t.Context(), e)
	if b := rebuilds.GetStatus()["tcp://10.0.0.2:10000"]; err != nil || !b.GetIsRebuilding() || b.GetProgress() != 50 ||
		b.GetFromReplicaAddress() != "tcp://10.0.0.1:10000" ||
		!reflect.DeepEqual(b.GetFromReplicaAddressList(), []string{"tcp://10.0.0.1:10000"}) {
		t.Errorf("%v %v", rebuilds, err)
	}
	snapshots, err := r.c.SnapshotList(t.Context(), e)
	if head := snapshots.GetDisks()["volume-head"]; err != nil || head.GetSize() != "4096" || head.GetParent() != "s" ||
		len(snapshots.GetDisks()) != 2 {
		t.Errorf("%v %v", snapshots, err)
	}
	purges, err := r.c.SnapshotPurgeStatus(t.Context(), e)
	if p := purges.GetStatus()["tcp://10.0.0.1:10000"]; err != nil || !p.GetIsPurging() || p.GetProgress() != 40 ||
		len(purges.GetStatus()) != 3 {
		t.Errorf("%v %v", purges, err)
	}
	version, err := r.c.ServerVersionGet(t.Context(), e)
	if err != nil || version.GetVersion().GetVersion() != "v9" || version.GetVersion().GetCliAPIVersion() != 10 {
		t.Errorf("%v %v", version, err)
	}
	metrics, err := r.c.MetricsGet(t.Context(), e)
	if err != nil || !proto.Equal(metrics.GetMetrics(),
		&ptypes.Metrics{ReadThroughput: 3, WriteThroughput: 4, ReadLatency: 5, WriteLatency: 6, ReadIOPS: 1, WriteIOPS: 2}) {
		t.Errorf("%v %v", metrics, err)
	}
	limit, err := r.c.ReplicaRebuildConcurrentSyncLimitGet(t.Context(), e)
	if err != nil || limit.GetLimit() != 3 {
		t.Errorf("%v %v", limit, err)
	}
	if _, err := r.c.ReplicaVerifyRebuild(t.Context(),
		&imrpc.EngineReplicaVerifyRebuildRequest{ProxyEngineRequest: e, ReplicaAddress: "10.0.0.1:10000"}); err != nil {
		t.Error(err)
	}
	if _, err := r.c.ReplicaVerifyRebuild(t.Context(),
		&imrpc.EngineReplicaVerifyRebuildRequest{ProxyEngineRequest: e,
			ReplicaAddress: "10.0.0.2:10000"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a replica that is being rebuilt counts as rebuilt: %v", err)
	}
}

// TestReplicaAddWaits: the answer comes when the rebuild is over, and says how it ended.
func TestReplicaAddWaits(t *testing.T) {
	const address = "tcp://10.0.0.2:10000"
	at := func(mode enginev1.Mode, running bool, text string) *enginev1.State {
		return &enginev1.State{Replicas: []*enginev1.Replica{{Address: address, Mode: mode, Error: text,
			Rebuild: &enginev1.Rebuild{Running: running}}}}
	}
	for _, row := range []struct {
		name   string
		states []*enginev1.State
		want   codes.Code
		says   string
	}{
		{"rebuilt", []*enginev1.State{at(enginev1.Mode_MODE_UNSPECIFIED, true, ""), at(enginev1.Mode_MODE_WO, true, ""),
			at(enginev1.Mode_MODE_RW, false, "")}, codes.OK, ""},
		{"failed", []*enginev1.State{at(enginev1.Mode_MODE_WO, true, ""),
			at(enginev1.Mode_MODE_ERR, false, "disk is full")}, codes.Aborted, "disk is full"},
		{"removed", []*enginev1.State{at(enginev1.Mode_MODE_WO, true, ""), {}}, codes.Aborted, "removed"},
		{"engine gone", []*enginev1.State{at(enginev1.Mode_MODE_WO, true, "")}, codes.Unknown, "EOF"},
	} {
		r := newRig(t)
		r.states = row.states
		_, err := r.c.ReplicaAdd(t.Context(), &imrpc.EngineReplicaAddRequest{ProxyEngineRequest: r.engineRequest(),
			ReplicaAddress: "10.0.0.2:10000"})
		if status.Code(err) != row.want || !strings.Contains(status.Convert(err).Message(), row.says) {
			t.Errorf("%s: %v", row.name, err)
		}
		if !reflect.DeepEqual(r.asked, []string{"ReplicaAdd address=" + address}) {
			t.Errorf("%s asked for %q", row.name, r.asked)
		}
	}
}

// TestRefusals is the table of bad requests; none reaches the engine.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	e, c := r.engineRequest(), r.c
	other := proto.Clone(e).(*imrpc.ProxyEngineRequest)
	other.VolumeName = "other"
	v2 := proto.Clone(e).(*imrpc.ProxyEngineRequest)
	v2.DataEngine = imrpc.DataEngine_DATA_ENGINE_V2
	get := func(q *imrpc.ProxyEngineRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.VolumeGet(ctx, q); return err }
	}
	for _, row := range []struct {
		name string
		call func(context.Context) error
		want codes.Code
		says string
	}{
		{"no engine", func(ctx context.Context) error {
			_, err := c.VolumeExpand(ctx, &imrpc.EngineVolumeExpandRequest{})
			return err
		}, codes.InvalidArgument, "proxy_engine_request"},
		{"no address", get(&imrpc.ProxyEngineRequest{}), codes.InvalidArgument, "IP:PORT"},
		{"a name for an address", get(&imrpc.ProxyEngineRequest{Address: "localhost:10000"}), codes.InvalidArgument,
			`"localhost:10000"`},
		{"another volume's engine", get(other), codes.FailedPrecondition, "this is demo, not other"},
		{"data engine v2", get(v2), codes.Unimplemented, "v2"},
		{"nobody there", get(&imrpc.ProxyEngineRequest{Address: "127.0.0.1:1"}), codes.Unavailable, "refused"},
		{"a mode that promises data", func(ctx context.Context) error {
			_, err := c.ReplicaModeUpdate(ctx, &imrpc.EngineReplicaModeUpdateRequest{ProxyEngineRequest: e,
				ReplicaAddress: "10.0.0.1:1", Mode: ptypes.ReplicaMode_RW})
			return err
		}, codes.InvalidArgument, "RW"},
		{"a negative bandwidth", func(ctx context.Context) error {
			_, err := c.ReplicaRebuildingQosSet(ctx,
				&imrpc.EngineReplicaRebuildingQosSetRequest{ProxyEngineRequest: e, QosLimitMbps: -1})
			return err
		}, codes.InvalidArgument, "qos_limit_mbps -1"},
		{"more than fits", func(ctx context.Context) error {
			_, err := c.ReplicaRebuildingQosSet(ctx,
				&imrpc.EngineReplicaRebuildingQosSetRequest{ProxyEngineRequest: e, QosLimitMbps: 1 << 60})
			return err
		}, codes.InvalidArgument, "MiB"},
		{"replica without a port", func(ctx context.Context) error {
			_, err := c.ReplicaAdd(ctx, &imrpc.EngineReplicaAddRequest{ProxyEngineRequest: e, ReplicaAddress: "10.0.0.1"})
			return err
		}, codes.InvalidArgument, "replica"},
		{"a backup of no snapshot", func(ctx context.Context) error {
			_, err := c.SnapshotBackup(ctx, &imrpc.EngineSnapshotBackupRequest{ProxyEngineRequest: e})
			return err
		}, codes.InvalidArgument, "snapshot_name"},
		{"unknown method", func(ctx context.Context) error {
			return r.conn.Invoke(ctx, "/imrpc.ProxyEngineService/Fly", &emptypb.Empty{}, &emptypb.Empty{})
		}, codes.Unimplemented, "Fly"},
		{"unknown service", func(ctx context.Context) error {
			return r.conn.Invoke(ctx, "/other.Service/Get", &emptypb.Empty{}, &emptypb.Empty{})
		}, codes.Unimplemented, "other.Service"},
		{"engine's service without an address", func(ctx context.Context) error {
			_, err := enginev1.NewEngineClient(r.conn).Get(ctx, &enginev1.GetRequest{})
			return err
		}, codes.InvalidArgument, proxy.KeyAddress},
	} {
		err := row.call(t.Context())
		if status.Code(err) != row.want || !strings.Contains(status.Convert(err).Message(), row.says) {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
	if len(r.asked) > 0 {
		t.Errorf("the engine was asked for %q", r.asked)
	}
}

// TestRemoveTriesAll: one snapshot that is gone does not keep the others; its error is told.
func TestRemoveTriesAll(t *testing.T) {
	r := newRig(t)
	_, err := r.c.SnapshotRemove(t.Context(),
		&imrpc.EngineSnapshotRemoveRequest{ProxyEngineRequest: r.engineRequest(), Names: []string{"gone", "s2"}})
	if status.Code(err) != codes.NotFound || !reflect.DeepEqual(r.asked, []string{"SnapshotRemove name=s2"}) {
		t.Errorf("%v, asked for %q", err, r.asked)
	}
}

// TestPassedOn: the engine's own service travels as it is, streams and refusals included.
func TestPassedOn(t *testing.T) {
	r := newRig(t)
	r.state = &enginev1.State{Generation: 7}
	r.states = []*enginev1.State{{Generation: 1}, {Generation: 2}}
	c := enginev1.NewEngineClient(r.conn)
	to := func(volume string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), proxy.KeyAddress, r.address, "volume-name", volume)
	}
	if state, err := c.Expand(to("demo"), &enginev1.ExpandRequest{Size: 4096}); err != nil || state.GetGeneration() != 7 ||
		!reflect.DeepEqual(r.asked, []string{"Expand size=4096"}) {
		t.Errorf("%v %v, asked for %q", state, err, r.asked)
	}
	if _, err := c.Get(to("other"), &enginev1.GetRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another volume's engine: %v", err)
	}
	watch, err := c.Watch(to("demo"), &enginev1.GetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{1, 2} {
		if state, err := watch.Recv(); err != nil || state.GetGeneration() != want {
			t.Errorf("%v %v", state, err)
		}
	}
	if _, err := watch.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the stream: %v", err)
	}
}
