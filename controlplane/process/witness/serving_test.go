package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/controlplane/object/naming"
	imclient "ankole.storage/instancemanager/client"
	imwitness "ankole.storage/instancemanager/witness"
	"ankole.storage/test/wait"
)

// bed is an instance manager and an agent on each node, and controllers.
type bed struct {
	relays      map[string]*imwitness.Relay
	asks        map[string]witnessv1.WitnessClient
	addrs       map[string]string // of an instance manager, by its Pod's address
	nodes       []string
	pods        client.Client // of all nodes
	agents      map[string]*Relay
	controllers []*Relay
}

func podOf(name, node, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
			Labels: map[string]string{naming.LabelComponent: naming.ComponentInstanceManager}},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
}

func newBed(t *testing.T, nodes, controllers int) *bed {
	b := &bed{relays: map[string]*imwitness.Relay{}, asks: map[string]witnessv1.WitnessClient{},
		addrs: map[string]string{}, agents: map[string]*Relay{}}
	h := handler(t, fromWire(record("u", 1, 1, "a")), interceptor.Funcs{})
	relay := func(name string, sees client.Client) *Relay {
		return &Relay{Name: name, Handler: h, client: sees, streams: map[client.ObjectKey]*attachment{},
			Connect: func(pod *corev1.Pod) (*grpc.ClientConn, error) {
				return imclient.Conn(b.addrs[pod.Status.PodIP], nil)
			}}
	}
	all := fake.NewClientBuilder()
	for i := range nodes {
		node, ip := fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.0.%d", i+1)
		b.nodes = append(b.nodes, node)
		b.instanceManager(t, node, ip)
		all = all.WithObjects(podOf("im-"+node, node, ip))
		own := fake.NewClientBuilder().WithObjects(podOf("im-"+node, node, ip)).Build()
		b.agents[node] = relay("agent-"+node, own)
	}
	b.pods = all.Build()
	for i := range controllers {
		b.controllers = append(b.controllers, relay(fmt.Sprintf("controller-%d", i), b.pods))
	}
	return b
}

// instanceManager serves both sides of the witness of one node.
func (b *bed) instanceManager(t *testing.T, node, ip string) {
	relay := imwitness.NewRelay(slog.New(slog.DiscardHandler))
	socket := filepath.Join(t.TempDir(), "w")
	unix, err := imwitness.ListenUnix(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for l, register := range map[net.Listener]func(grpc.ServiceRegistrar){
		unix: relay.RegisterWitness, tcp: relay.RegisterRelay} {
		s := grpc.NewServer(grpc.WaitForHandlers(true))
		register(s)
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Stop()
			if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				t.Error(err)
			}
		})
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b.relays[node], b.asks[node], b.addrs[ip] = relay, witnessv1.NewWitnessClient(conn), tcp.Addr().String()
}

// run starts a manager's relay; stop ends it, as when its Pod ends.
func (b *bed) run(t *testing.T, r *Relay) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	r.start(ctx)
	b.look(t, r)
	return func() {
		cancel()
		r.end()
		r.streams = map[client.ObjectKey]*attachment{}
	}
}

func (b *bed) look(t *testing.T, r *Relay) {
	t.Helper()
	if err := r.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWhoIsTheWitness: an engine is answered by the agent of its node, by no other agent, and by a
// controller while that agent is away; and the other way round.
func TestWhoIsTheWitness(t *testing.T) {
	b := newBed(t, 3, 2)
	stops := map[*Relay]func(){}
	start := func(r *Relay) { stops[r] = b.run(t, r) }
	for _, r := range b.agents {
		start(r)
	}
	for _, r := range b.controllers {
		start(r)
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	attached := func(node string, want ...string) {
		t.Helper()
		slices.Sort(want)
		wait.Until(t, fmt.Sprintf("%s is answered by %v", node, want), func() bool {
			have := b.relays[node].Managers()
			slices.Sort(have)
			return slices.Equal(have, want)
		})
		question := &witnessv1.GetRequest{VolumeName: "v", EngineName: "v-e-0"}
		if _, err := b.asks[node].Get(t.Context(), question); err != nil {
			t.Errorf("an engine of %s: %v; attached are %v", node, err, want)
		}
	}
	for _, node := range b.nodes {
		attached(node, "agent-"+node, "controller-0", "controller-1")
		stops[b.agents[node]]()
		attached(node, "controller-0", "controller-1")
		start(b.agents[node])
	}
	for _, r := range b.controllers {
		stops[r]()
	}
	for _, node := range b.nodes {
		attached(node, "agent-"+node)
	}
	for _, r := range b.controllers {
		start(r)
	}
	// A Pod that ends is left, and its successor of the same name connected to.
	pod := podOf("im-n0", "n0", "10.0.0.1")
	if err := b.pods.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.controllers {
		b.look(t, r)
	}
	attached("n0", "agent-n0")
	pod = podOf("im-n0", "n0", "10.0.0.1")
	pod.UID = "next"
	if err := b.pods.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.controllers {
		b.look(t, r)
	}
	attached("n0", "agent-n0", "controller-0", "controller-1")
}

// TestChangesThatMatter: a look costs a list of all Pods, so that it is made only for changes by
// which somebody else may be served.
func TestChangesThatMatter(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want bool
	}{
		"nothing":     {func(*corev1.Pod) {}, false},
		"annotation":  {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		"ends":        {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, false},
		"new address": {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" }, true},
		"ended":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"another Pod": {func(p *corev1.Pod) { p.UID = "other" }, true},
		"has started": {func(p *corev1.Pod) { p.Labels[naming.LabelComponent] = "x" }, true},
	} {
		before := podOf("m", "n1", "10.0.0.1")
		after := before.DeepCopy()
		c.edit(after)
		if got := matters(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
