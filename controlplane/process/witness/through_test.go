package witness

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/dataplane/daemon"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
	imwitness "ankole.storage/instancemanager/witness"
	"ankole.storage/instancemanager/witness/relayclient"
	"ankole.storage/test/wait"
)

// through serves a handler as a manager does, over an instance manager's relay, and gives the way
// on which engines dial it.
func through(t *testing.T, h Handler) (address string) {
	t.Helper()
	relay := imwitness.NewRelay(slog.New(slog.DiscardHandler))
	socket := filepath.Join(t.TempDir(), "w.sock")
	unix, err := imwitness.ListenUnix(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended []chan error
	serve := func(l net.Listener, register func(grpc.ServiceRegistrar)) *grpc.Server {
		s, done := grpc.NewServer(), make(chan error, 1)
		register(s)
		go func() { done <- s.Serve(l) }()
		ended = append(ended, done)
		return s
	}
	engines, managers := serve(unix, relay.RegisterWitness), serve(tcp, relay.RegisterRelay)
	conn, err := grpc.NewClient(tcp.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- relayclient.Serve(ctx, conn, "m1", h) }()
	t.Cleanup(func() {
		cancel()
		<-served // with the reason why it ended
		conn.Close()
		engines.Stop()
		managers.Stop()
		for _, done := range ended {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	wait.Until(t, "the manager is attached", func() bool { return len(relay.Managers()) > 0 })
	return "unix:" + socket
}

// TestOrdersThroughTheRelay: on the whole way from the Engine object to an engine's core a swap of
// the newest order is carried out, one that expects another record gets the present one, and one of
// an older order learns that it was replaced.
func TestOrdersThroughTheRelay(t *testing.T) {
	h := handler(t, nil, interceptor.Funcs{})
	e := &v1beta2.Engine{}
	if err := h.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "v-e-0"}, e); err != nil {
		t.Fatal(err)
	}
	e.UID = "uid"
	if err := h.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	e.Status.Order = "uid/2"
	if err := h.Client.Status().Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	address := through(t, h)
	dial := func(order string) engine.Witness {
		w, err := daemon.DialWitness(address, daemon.WitnessCaller{Volume: "v", VolumeUUID: "u", Engine: "v-e-0",
			Order: order})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	of := func(epoch uint64) quorum.WitnessRecord {
		return quorum.WitnessRecord{Epoch: epoch, Engine: "v-e-0",
			Record: quorum.Record{Epoch: epoch, Generation: 1, Members: []string{"a", "b"}}}
	}
	newest, older := dial("uid/2"), dial("uid/1")
	if _, swapped, err := older.Swap(quorum.WitnessRecord{}, of(1)); swapped || !errors.Is(err, engine.ErrSuperseded) ||
		!strings.Contains(err.Error(), "uid/2 is the newest") {
		t.Errorf("an older order, before there is a record: %v, %v", swapped, err)
	}
	if _, swapped, err := newest.Swap(quorum.WitnessRecord{}, of(2)); err != nil || !swapped {
		t.Fatalf("the newest order: %v, %v", swapped, err)
	}
	if now, swapped, err := newest.Swap(of(1), of(3)); err != nil || swapped || now.Epoch != 2 {
		t.Errorf("the newest order expects another record: %v, %v, %v", now, swapped, err)
	}
	for _, expected := range []quorum.WitnessRecord{{}, of(1), of(2)} {
		if _, swapped, err := older.Swap(expected, of(4)); swapped || !errors.Is(err, engine.ErrSuperseded) {
			t.Errorf("an older order that expects epoch %d: %v, %v", expected.Epoch, swapped, err)
		}
	}
}
