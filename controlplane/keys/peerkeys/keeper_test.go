package peerkeys

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
)

const image = "ankole/manager:2"

// manager is the Pod of a manager on a node, with these arguments.
func manager(name, node, image string, args ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: name,
		Labels: map[string]string{"app": naming.AppManager}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: image, Command: args}}}}
}

// part is another Pod of this release: of an agent, or of a controller.
func part(app, component string, args ...string) *corev1.Pod {
	p := manager("part", "n", image, args...)
	p.Labels = map[string]string{naming.LabelApp: app, naming.LabelComponent: component}
	return p
}

// nodeOf is a node whose condition Ready is this.
func nodeOf(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

// TestWithout is the table of managers that look for no Secret.
func TestWithout(t *testing.T) {
	ended := func(p *corev1.Pod) *corev1.Pod { p.Status.Phase = corev1.PodFailed; return p }
	up := nodeOf("n", corev1.ConditionTrue)
	for _, row := range []struct {
		name    string
		objects []client.Object
		want    string
	}{
		{"all look", []client.Object{up, manager("a", "n", image, "--mutual-tls")}, "[]"},
		{"one of another image looks too", []client.Object{up, manager("a", "n", image, "--mutual-tls"),
			manager("b", "n", "ankole/manager:1", "daemon", "--mutual-tls")}, "[]"},
		{"older ones", []client.Object{up, manager("a", "n", "ankole/manager:1"), manager("b", "n", "ankole/manager:1"),
			manager("c", "n", "ankole/manager:0")}, "[ankole/manager:0 ankole/manager:1]"},
		{"agents speak to none", []client.Object{up, part(naming.AppManager, naming.ComponentManager, "daemon")}, "[]"},
		{"controllers look", []client.Object{up,
			part(naming.AppController, naming.ComponentController, "control", "--mutual-tls")}, "[]"},
		{"controllers do not", []client.Object{up, part(naming.AppController, naming.ComponentController, "control")},
			"[ankole/manager:2]"},
		{"it has ended", []client.Object{up, ended(manager("a", "n", "ankole/manager:1"))}, "[]"},
		{"its node is lost", []client.Object{nodeOf("n", corev1.ConditionUnknown),
			manager("a", "n", "ankole/manager:1")}, "[]"},
		{"its node is gone", []client.Object{manager("a", "n", "ankole/manager:1")}, "[]"},
		{"its node is not ready", []client.Object{nodeOf("n", corev1.ConditionFalse), manager("a", "n", "ankole/manager:1")},
			"[ankole/manager:1]"},
	} {
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(row.objects...).Build()
		if got, err := Without(t.Context(), c, naming.Namespace); err != nil || fmt.Sprint(got) != row.want {
			t.Errorf("%s: %v, %v, want %s", row.name, got, err, row.want)
		}
	}
}

// cluster is an API server with a clock; failing writes of a Secret of this name fail.
type cluster struct {
	t       *testing.T
	k       *Keeper
	at      time.Time
	failing string
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	c := &cluster{t: t, at: began}
	refuse := func(o client.Object) error {
		if o.GetName() == c.failing {
			return errors.New("refused")
		}
		return nil
	}
	inner := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
	c.k = &Keeper{Namespace: naming.Namespace, Make: true, now: func() time.Time { return c.at },
		Client: interceptor.NewClient(inner, interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return errors.Join(refuse(o), orNil(refuse(o) == nil, func() error { return w.Create(ctx, o, opts...) }))
			},
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return errors.Join(refuse(o), orNil(refuse(o) == nil, func() error { return w.Update(ctx, o, opts...) }))
			},
		})}
	return c
}

func orNil(do bool, f func() error) error {
	if !do {
		return nil
	}
	return f()
}

func (c *cluster) look() bool {
	c.t.Helper()
	present, err := c.k.look(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return present
}

func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	s := &corev1.Secret{}
	if err := c.k.Client.Get(c.t.Context(), client.ObjectKey{Namespace: naming.Namespace, Name: name}, s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// seen is what a process has after it has read the peers' Secret.
func (c *cluster) seen() state {
	c.t.Helper()
	peers, control := c.secret(naming.SecretGRPCTLS), c.secret(naming.SecretGRPCControl)
	for _, s := range []*corev1.Secret{peers, control} {
		if _, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"]); err != nil {
			c.t.Fatal(err)
		}
		if key := c.secret(naming.SecretGRPCCA).Data["tls.key"]; len(s.Data) != 3 ||
			len(key) > 0 && bytes.Contains(s.Data["tls.key"], key) {
			c.t.Errorf("the authority's key is in Secret %s", s.Name)
		}
	}
	s := decode(&stored{}, &stored{Secret: *peers}, &stored{Secret: *control})
	return state{former: peers.Data["ca.crt"], peer: s.peer, control: s.control}
}

// TestMadeWhenAllManagersAreNew: not while an older manager runs, nor where it is switched off.
func TestMadeWhenAllManagersAreNew(t *testing.T) {
	old := manager("old", "n", "ankole/manager:1")
	c := newCluster(t, nodeOf("n", corev1.ConditionTrue), manager("new", "n", image, "--mutual-tls"), old)
	if c.look() {
		t.Error("made while an older manager runs")
	}
	if err := c.k.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	c.k.Make = false
	if c.look() {
		t.Error("made though switched off")
	}
	c.k.Make = true
	if !c.look() {
		t.Fatal("not made")
	}
	first := c.seen()
	if err := accepts(first, first, c.at); err != nil {
		t.Error(err)
	}
	c.k.Make, c.at = false, c.at.Add(certificate.Life-time.Hour)
	c.look()
	if again := c.seen(); bytes.Equal(first.peer.Cert, again.peer.Cert) || accepts(first, again, c.at) != nil {
		t.Error("not renewed after it was switched off, or not accepted then")
	}
}

// TestUsersSecretStays: one that a user has made is never touched, and controllers show what it
// has. What a user has made for controllers is not replaced.
func TestUsersSecretStays(t *testing.T) {
	users := func(name, cert string) *corev1.Secret {
		return &corev1.Secret{Data: map[string][]byte{"tls.crt": []byte(cert)},
			ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: name}}
	}
	c := newCluster(t, manager("new", "n", image, "--mutual-tls"), users(naming.SecretGRPCTLS, "x"))
	for _, cert := range []string{"x", "y"} {
		s := c.secret(naming.SecretGRPCTLS)
		s.Data["tls.crt"] = []byte(cert)
		if err := c.k.Client.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if !c.look() || string(c.secret(naming.SecretGRPCTLS).Data["tls.crt"]) != cert {
			t.Error("a user's Secret was changed")
		}
		if got := string(c.secret(naming.SecretGRPCControl).Data["tls.crt"]); got != cert {
			t.Errorf("controllers show %q, the user has made %q", got, cert)
		}
	}
	c = newCluster(t, manager("new", "n", image, "--mutual-tls"), users(naming.SecretGRPCControl, "x"))
	if _, err := c.k.look(t.Context()); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("somebody else's Secret in the way: %v", err)
	}
}

// TestEveryWriteMayFail: for decades, with writes of either Secret that fail for days, processes
// accept each other whatever of the last day they have seen.
func TestEveryWriteMayFail(t *testing.T) {
	c := newCluster(t, manager("new", "n", image, "--mutual-tls"))
	c.look()
	var h history
	h.add(t, c.seen(), c.at)
	for i := 0; c.at.Before(began.Add(certificate.AuthorityLife)); i++ {
		step := 5 * 24 * time.Hour
		of := c.at.Sub(began)%certificate.AuthorityLife - (certificate.AuthorityLife - certificate.ReplaceBefore)
		if of > -24*time.Hour && of < 90*24*time.Hour {
			step = 6 * time.Hour // authorities change
		}
		c.at = c.at.Add(step)
		c.failing = []string{"", naming.SecretGRPCTLS, "", naming.SecretGRPCCA}[i/10%4]
		if _, err := c.k.look(t.Context()); err != nil && c.failing == "" {
			t.Fatal(err)
		}
		h.add(t, c.seen(), c.at)
	}
	if h.trusted < 4 {
		t.Errorf("%d kinds of trust, want one authority, the next one too, its place taken, the former one gone", h.trusted)
	}
}

// TestAuthoritysSecretIsLost: it is made anew, and nobody is refused meanwhile.
func TestAuthoritysSecretIsLost(t *testing.T) {
	c := newCluster(t, manager("new", "n", image, "--mutual-tls"))
	c.look()
	before := c.seen()
	if err := c.k.Client.Delete(t.Context(), c.secret(naming.SecretGRPCCA)); err != nil {
		t.Fatal(err)
	}
	c.look()
	between := c.seen()
	c.at = c.at.Add(spread)
	c.look()
	after := c.seen()
	for _, pair := range [][2]state{{before, between}, {between, before}, {between, after}, {after, between}} {
		if err := accepts(pair[0], pair[1], c.at); err != nil {
			t.Error(err)
		}
	}
	if bytes.Equal(before.peer.Cert, after.peer.Cert) {
		t.Error("still the certificate of the authority that was lost")
	}
}

// TestAuthoritiesChangeByOneClock: another leader, whose clock is a day ahead, takes no authority's
// place before it has seen for ten minutes that everybody is told of the next one.
func TestAuthoritiesChangeByOneClock(t *testing.T) {
	c := newCluster(t, manager("new", "n", image, "--mutual-tls"))
	c.look()
	c.at = c.at.Add(certificate.AuthorityLife - certificate.ReplaceBefore)
	c.look() // the next authority
	told := c.secret(naming.SecretGRPCTLS).Data["ca.crt"]
	c.k = &Keeper{Namespace: c.k.Namespace, Make: true, Client: c.k.Client, now: c.k.now}
	c.at = c.at.Add(spread + time.Hour)
	for range 2 {
		c.look()
		if !bytes.Equal(c.secret(naming.SecretGRPCTLS).Data["ca.crt"], told) {
			t.Fatal("the next authority took the place at once")
		}
		c.at = c.at.Add(firstseen.Least - time.Second)
	}
	c.at = c.at.Add(time.Second)
	c.look()
	if bytes.Equal(c.secret(naming.SecretGRPCTLS).Data["ca.crt"], told) {
		t.Error("the next authority never takes the place")
	}
}
