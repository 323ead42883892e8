package command

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

func (e *engine) CloneSource(ctx context.Context, r *enginev1.CloneSourceRequest) (*enginev1.CloneGrant, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_, err := e.order(ctx, "grant "+r.GetSnapshot()+" to "+r.GetForVolumeUuid()+" by "+
		strings.Join(md.Get("instance-name"), ","))
	if r.GetSnapshot() == "gone" {
		err = status.Error(codes.NotFound, "no snapshot gone")
	}
	return &enginev1.CloneGrant{VolumeName: "demo", Snapshot: r.GetSnapshot(),
		Replicas: []string{"tcp://10.0.0.1:10000"}}, err
}

func (e *engine) SnapshotClone(ctx context.Context, r *enginev1.SnapshotCloneRequest) (*enginev1.State, error) {
	return e.order(ctx, "clone "+r.GetFrom().GetSnapshot()+" from "+strings.Join(r.GetFrom().GetReplicas(), ","))
}

// TestClone: the verb asks the other engine for a grant, its own for the clone, and waits for the
// end.
func TestClone(t *testing.T) {
	source := &engine{}
	from := serve(t, source)
	for _, row := range []struct {
		name, args, target, says string
		end                      *enginev1.Clone
	}{
		{name: "complete", args: "--snapshot-name s1", target: "clone s1 from tcp://10.0.0.1:10000",
			end: &enginev1.Clone{State: "complete"}},
		{name: "failed", args: "--snapshot-name s1", target: "clone s1 from tcp://10.0.0.1:10000",
			end:  &enginev1.Clone{State: "error", Error: "no room"},
			says: "code: Aborted\nerror: volume was not cloned: snapshot s1 of volume demo: no room"},
		{name: "no snapshot", args: "--snapshot-name gone", says: "code: NotFound\n"},
		{name: "no name", says: "--snapshot-name"},
		{name: "a backing image", args: "--snapshot-name s1 --export-backing-image-if-exist", says: "backing"},
	} {
		target := &engine{watched: []*enginev1.State{{Clone: &enginev1.Clone{Running: true}}, {Clone: row.end}}}
		args := "--url " + serve(t, target) + " snapshots clone --from-controller-address " + from +
			" --from-volume-name demo --from-controller-instance-name demo-e-0 " +
			"--file-sync-http-client-timeout 30 --grpc-timeout-seconds 100 " + row.args
		out, errs, ok := run(t, strings.Fields(args)...)
		if got := strings.Join(target.ordered, ", "); ok != (row.says == "") || got != row.target || out != "" ||
			!strings.Contains(errs, row.says) {
			t.Errorf("%s: ordered %q and printed %q, %q, want %q and %q", row.name, got, out, errs, row.target, row.says)
		}
	}
	if got := strings.Join(source.ordered, ", "); got != "grant s1 to u-demo by demo-e-0, grant s1 to u-demo by "+
		"demo-e-0, grant gone to u-demo by demo-e-0" {
		t.Errorf("the source was asked for %q", got)
	}
}
