package node

import (
	"context"
	"log/slog"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
	"ankole.storage/test/wait"
)

// TestNodeInfo: a node tells of itself what the setting allows.
func TestNodeInfo(t *testing.T) {
	for keys, want := range map[string]map[string]string{
		"": nil, request.LabelZone: {request.LabelZone: "zone-1"},
		request.LabelZone + "," + request.LabelHost + ",other": {
			request.LabelZone: "zone-1", request.LabelHost: "node-1"}} {
		f := newManager()
		f.settings[request.TopologySetting] = keys
		info, err := New("node-1", f, 1, slog.New(slog.DiscardHandler)).NodeGetInfo(context.Background(),
			&spec.NodeGetInfoRequest{})
		if err != nil || info.NodeId != "node-1" || !reflect.DeepEqual(info.AccessibleTopology.GetSegments(), want) {
			t.Errorf("%q: %v, %v", keys, info, err)
		}
	}
}

// TestNodeInfoWithoutManager: the kubelet gets an answer although the manager is away, the last
// one if there was one; when the manager is back and says something else, the driver is registered
// again.
func TestNodeInfoWithoutManager(t *testing.T) {
	f := newManager()
	f.settings[request.TopologySetting] = request.LabelZone
	file := filepath.Join(t.TempDir(), placeFile)
	ask := func(away bool) (map[string]string, *place) {
		t.Helper()
		n := New("node-1", f, time.Minute, slog.New(slog.DiscardHandler))
		n.place.file, f.away = file, away
		info, err := n.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
		if err != nil || info.NodeId != "node-1" {
			t.Fatalf("%v, %v", info, err)
		}
		return info.AccessibleTopology.GetSegments(), n.place
	}
	again := func(p *place) bool {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.review(ctx, time.Millisecond) }()
		wait.Until(t, "the place is known for sure", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return !p.unsure
		})
		cancel()
		<-done
		select {
		case <-p.changed:
			return true
		default:
			return false
		}
	}
	got, p := ask(true)
	if len(got) != 0 {
		t.Errorf("nothing is known, yet: %v", got)
	}
	f.mu.Lock()
	f.away = false
	f.mu.Unlock()
	if !again(p) {
		t.Error("the zone is known, and the kubelet is not told")
	}
	if got, p = ask(true); got[request.LabelZone] != "zone-1" {
		t.Errorf("the last answer is forgotten: %v", got)
	}
	f.mu.Lock()
	f.away = false
	f.mu.Unlock()
	if again(p) {
		t.Error("nothing has changed, and the driver is registered again")
	}
	if got, _ = ask(false); got[request.LabelZone] != "zone-1" {
		t.Errorf("%v", got)
	}
}

// TestNodeOfNoManager: the kubelet is refused the driver on a node that the managers do not know,
// whatever was said before, and asked again when they know it; one that was told an old answer is
// told so when the managers are back.
func TestNodeOfNoManager(t *testing.T) {
	f := newManager()
	n := New("elsewhere", f, time.Minute, slog.New(slog.DiscardHandler))
	n.place.file = filepath.Join(t.TempDir(), placeFile)
	if err := n.place.remember(map[string]string{request.LabelZone: "zone-1"}); err != nil {
		t.Fatal(err)
	}
	_, err := n.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
	csitest.Wants(t, err, codes.FailedPrecondition)
	csitest.Says(t, err, "elsewhere", "longhorn-manager")
	f.away = true
	if _, err := n.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{}); err != nil {
		t.Errorf("nobody says that there is none: %v", err)
	}
	f.away = false
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.place.review(ctx, time.Millisecond) }()
	<-n.place.changed
	cancel()
	<-done
	f.nodes = append(f.nodes, resource.Node{Name: "elsewhere"})
	if _, err := n.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{}); err != nil {
		t.Error(err)
	}
}
