package proxy_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

// sourceEngine is the engine of the volume that is cloned.
type sourceEngine struct {
	enginev1.UnimplementedEngineServer
	asked []string
}

func (e *sourceEngine) CloneSource(ctx context.Context, r *enginev1.CloneSourceRequest) (*enginev1.CloneGrant, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	e.asked = append(e.asked, compact(r)+" of "+
		strings.Join(append(md.Get("volume-name"), md.Get("instance-name")...), " "))
	if r.GetSnapshot() == "gone" {
		return nil, status.Error(codes.NotFound, "volume source has no snapshot gone")
	}
	return &enginev1.CloneGrant{VolumeName: "source", VolumeUuid: "u-source", Snapshot: r.GetSnapshot(),
		ForVolumeUuid: r.GetForVolumeUuid(),
		Key:           []byte("k"), Replicas: []string{"tcp://10.0.0.9:10000"}}, nil
}

func (e *engine) SnapshotClone(ctx context.Context, r *enginev1.SnapshotCloneRequest) (*enginev1.State, error) {
	f := r.GetFrom()
	return e.note(ctx,
		"SnapshotClone "+
			strings.Join([]string{f.GetVolumeName(), f.GetSnapshot(), f.GetForVolumeUuid(), string(f.GetKey()),
				f.GetReplicas()[0]}, " "),
		&enginev1.GetRequest{})
}

// TestSnapshotClone: the source's engine is asked for a grant to this volume, this volume's engine
// gets it, and the answer comes when the clone is over, and says how it ended.
func TestSnapshotClone(t *testing.T) {
	cloning := &enginev1.State{Clone: &enginev1.Clone{Running: true, State: "in_progress", Incomplete: true}}
	for name, row := range map[string]struct {
		end  *enginev1.Clone
		snap string
		want codes.Code
		says string
	}{
		"complete": {end: &enginev1.Clone{State: "complete", Progress: 100}, snap: "s1"},
		"failed": {end: &enginev1.Clone{State: "error", Error: "no room", Incomplete: true}, snap: "s1",
			want: codes.Aborted, says: "snapshot s1 of volume source: no room"},
		"no snapshot": {snap: "gone", want: codes.NotFound, says: "no snapshot gone"},
	} {
		t.Run(name, func(t *testing.T) {
			r, from := newRig(t), &sourceEngine{}
			g := grpc.NewServer()
			enginev1.RegisterEngineServer(g, from)
			r.state = &enginev1.State{VolumeUuid: "u-demo"}
			r.states = []*enginev1.State{cloning, {Clone: row.end}}
			_, err := r.c.SnapshotClone(t.Context(),
				&imrpc.EngineSnapshotCloneRequest{ProxyEngineRequest: r.engineRequest(), FromEngineAddress: serve(t, g),
					SnapshotName: row.snap, FromEngineName: "source-e-0", FromVolumeName: "source"})
			if status.Code(err) != row.want || !strings.Contains(status.Convert(err).Message(), row.says) {
				t.Fatalf("%v", err)
			}
			if want := []string{"snapshot=" + row.snap +
				" for_volume_uuid=u-demo of source source-e-0"}; !reflect.DeepEqual(from.asked, want) {
				t.Errorf("the source was asked %q, want %q", from.asked, want)
			}
			want := []string{"Get", "SnapshotClone source s1 u-demo k tcp://10.0.0.9:10000"}
			if row.snap == "gone" {
				want = want[:1]
			}
			if !reflect.DeepEqual(r.asked, want) {
				t.Errorf("the engine was asked %q, want %q", r.asked, want)
			}
		})
	}
}

func TestSnapshotCloneRefuses(t *testing.T) {
	r := newRig(t)
	for name, row := range map[string]struct {
		change func(q *imrpc.EngineSnapshotCloneRequest)
		want   codes.Code
	}{
		"no snapshot": {func(q *imrpc.EngineSnapshotCloneRequest) { q.SnapshotName = "" }, codes.InvalidArgument},
		"no source":   {func(q *imrpc.EngineSnapshotCloneRequest) { q.FromEngineAddress = "" }, codes.InvalidArgument},
		"a linked one": {func(q *imrpc.EngineSnapshotCloneRequest) {
			q.CloneMode = imrpc.CloneMode_CLONE_MODE_LINKED_CLONE
		}, codes.Unimplemented},
		"backing image": {func(q *imrpc.EngineSnapshotCloneRequest) {
			q.ExportBackingImageIfExist = true
		}, codes.Unimplemented},
		"no engine": {func(q *imrpc.EngineSnapshotCloneRequest) { q.ProxyEngineRequest = nil }, codes.InvalidArgument},
		"source is gone": {func(q *imrpc.EngineSnapshotCloneRequest) {
			q.FromEngineAddress = "127.0.0.1:1"
		}, codes.Unavailable},
	} {
		q := &imrpc.EngineSnapshotCloneRequest{ProxyEngineRequest: r.engineRequest(), FromEngineAddress: r.address,
			SnapshotName: "s1"}
		row.change(q)
		if _, err := r.c.SnapshotClone(t.Context(), q); status.Code(err) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSnapshotCloneStatus(t *testing.T) {
	r := newRig(t)
	r.state = &enginev1.State{Clone: &enginev1.Clone{Running: true, State: "in_progress", Progress: 30,
		FromAddress: "tcp://10.0.0.9:10000", Snapshot: "s1"},
		Replicas: []*enginev1.Replica{{Address: "tcp://10.0.0.1:10000", Mode: enginev1.Mode_MODE_RW},
			{Address: "tcp://10.0.0.2:10000", Mode: enginev1.Mode_MODE_ERR}}}
	got, err := r.c.SnapshotCloneStatus(t.Context(), r.engineRequest())
	want := &imrpc.EngineSnapshotCloneStatusProxyResponse{Status: map[string]*ptypes.SnapshotCloneStatusResponse{
		"tcp://10.0.0.1:10000": {IsCloning: true, State: "in_progress", Progress: 30,
			FromReplicaAddress: "tcp://10.0.0.9:10000", SnapshotName: "s1"},
		"tcp://10.0.0.2:10000": {}}}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
}
