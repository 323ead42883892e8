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
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/controlplane/naming"
	imclient "ankole.storage/instancemanager/client"
	imwitness "ankole.storage/instancemanager/witness"
	"ankole.storage/test/wait"
)

// TestEveryNodeHasSubstitutes: whichever managers are ready, an instance manager is served by the
// manager of its own node and by two others, or by all others if there are fewer; and no manager
// serves more than its own and two other instance managers while all are ready.
func TestEveryNodeHasSubstitutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := make([]string, rapid.IntRange(1, 40).Draw(t, "nodes"))
		var ready []string
		for i := range nodes {
			nodes[i] = fmt.Sprintf("rack-%d", i)
			if rapid.IntRange(0, 2).Draw(t, "ready") > 0 {
				ready = append(ready, nodes[i])
			}
		}
		r, all := newRing(ready), newRing(nodes)
		load := map[string]int{}
		for _, im := range nodes {
			substitutes := 0
			for _, m := range ready {
				if m != im && r.serves(m, im) {
					substitutes++
				}
			}
			foreign := len(ready)
			if slices.Contains(ready, im) {
				foreign--
			}
			if want := min(others, foreign); substitutes != want {
				t.Fatalf("%s is served by %d others of %v, want %d", im, substitutes, ready, want)
			}
			if !r.serves(im, im) {
				t.Fatalf("%s is not served by its own manager", im)
			}
			for _, m := range nodes {
				if all.serves(m, im) {
					load[m]++
				}
			}
		}
		for m, n := range load {
			if n > 1+others {
				t.Fatalf("the manager of %s serves %d instance managers", m, n)
			}
		}
	})
}

// bed is instance managers and managers, one of each per node.
type bed struct {
	pods   client.Client
	relays map[string]*imwitness.Relay
	asks   map[string]witnessv1.WitnessClient
	addrs  map[string]string // of an instance manager, by its Pod's address
	nodes  []string
	all    []*Relay
}

func podOf(name, component, node, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
			Labels: map[string]string{naming.LabelComponent: component}},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func newBed(t *testing.T, count int) *bed {
	b := &bed{relays: map[string]*imwitness.Relay{}, asks: map[string]witnessv1.WitnessClient{},
		addrs: map[string]string{}}
	h := handler(t, fromWire(record("u", 1, 1, "a")), interceptor.Funcs{})
	builder := fake.NewClientBuilder()
	for i := range count {
		node, ip := fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.0.%d", i+1)
		b.nodes = append(b.nodes, node)
		b.instanceManager(t, node, ip)
		builder = builder.WithObjects(podOf("im-"+node, naming.ComponentInstanceManager, node, ip),
			podOf("manager-"+node, naming.ComponentManager, node, ""))
	}
	b.pods = builder.Build()
	for _, node := range b.nodes {
		r := &Relay{Name: "manager-" + node, NodeName: node, Handler: h, client: b.pods,
			streams: map[client.ObjectKey]*attachment{},
			Connect: func(address string) (*imclient.Client, error) {
				ip, _, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				return imclient.Dial(b.addrs[ip], nil)
			}}
		b.all = append(b.all, r)
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

// ready changes whether a manager's Pod is ready.
func (b *bed) ready(t *testing.T, node string, status corev1.ConditionStatus) {
	t.Helper()
	p := &corev1.Pod{}
	if err := b.pods.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "manager-" + node}, p); err != nil {
		t.Fatal(err)
	}
	p.Status.Conditions[0].Status = status
	if err := b.pods.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// TestWitnessIsThereWhileManagersAreReplaced: the managers of five nodes are replaced one after the
// other, as an upgrade does, and engines of the node whose manager is away are answered.
func TestWitnessIsThereWhileManagersAreReplaced(t *testing.T) {
	b := newBed(t, 5)
	stops := map[string]func(){}
	for _, r := range b.all {
		stops[r.NodeName] = b.run(t, r)
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for _, r := range b.all {
		wait.Until(t, r.NodeName+" is served by three managers", func() bool {
			return len(b.relays[r.NodeName].Managers()) == 1+others
		})
		stops[r.NodeName]()
		b.ready(t, r.NodeName, corev1.ConditionFalse)
		question := &witnessv1.GetRequest{VolumeName: "v", EngineName: "v-e-0"}
		if _, err := b.asks[r.NodeName].Get(t.Context(), question); err != nil {
			t.Errorf("an engine of %s while the manager there is away: %v; attached are %v", r.NodeName, err,
				b.relays[r.NodeName].Managers())
		}
		b.ready(t, r.NodeName, corev1.ConditionTrue)
		stops[r.NodeName] = b.run(t, r)
	}
}

// TestSubstitutesChange: a manager that stays away is replaced as a substitute, and the one that
// took its place disconnects when it is back.
func TestSubstitutesChange(t *testing.T) {
	b := newBed(t, 6)
	for _, r := range b.all {
		defer b.run(t, r)()
	}
	const im = "n0"
	who := func() []string {
		names := b.relays[im].Managers()
		slices.Sort(names)
		return names
	}
	wait.Until(t, "three managers", func() bool { return len(who()) == 1+others })
	before := who()
	away := before[slices.IndexFunc(before, func(m string) bool { return m != "manager-"+im })]
	b.ready(t, away[len("manager-"):], corev1.ConditionFalse)
	for _, r := range b.all {
		b.look(t, r)
	}
	wait.Until(t, away+" is replaced", func() bool {
		return len(who()) == 1+others && !slices.Contains(who(), away)
	})
	b.ready(t, away[len("manager-"):], corev1.ConditionTrue)
	for _, r := range b.all {
		b.look(t, r)
	}
	wait.Until(t, "the first ones are back", func() bool { return slices.Equal(who(), before) })
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
		"not ready":   {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"ends":        {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"new address": {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" }, true},
		"ended":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"another Pod": {func(p *corev1.Pod) { p.UID = "other" }, true},
		"placed":      {func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, true},
		"has started": {func(p *corev1.Pod) { p.Labels[naming.LabelComponent] = "x" }, true},
	} {
		before := podOf("m", naming.ComponentManager, "n1", "10.0.0.1")
		after := before.DeepCopy()
		c.edit(after)
		if got := matters(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
