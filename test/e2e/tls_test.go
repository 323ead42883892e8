package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
	"ankole.storage/test/rig"
)

// scenarioC9: the secret appears in a running cluster, is renewed with another authority, becomes
// useless and good again. A writer sees no error, plaintext is refused from the first on, and
// volumes attach all the time. Scenarios after it run with the secret.
func scenarioC9(t *testing.T, c *cluster) {
	ks := kubernetesOf(t, c)
	secrets := ks.CoreV1().Secrets(namespace)
	set := func(files map[string][]byte) {
		t.Helper()
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "longhorn-grpc-tls", Namespace: namespace},
			Type: corev1.SecretTypeTLS, Data: files}
		if _, err := secrets.Update(context.Background(), s, metav1.UpdateOptions{}); err == nil {
			return
		}
		if _, err := secrets.Create(context.Background(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.create("c9", 64*mib, 2)
	d := c.device(c.attach("c9", "node-1", 2))
	w := rig.StartLoad(t, d, 64*mib, 9)

	set(mtlstest.NewAuthority(t).Files(t, mtlstest.Named(mtls.PeerName, "")))
	c.eventually("plaintext is refused", func(ctx context.Context) error {
		for _, n := range c.Nodes {
			for _, port := range []string{"8500", "8501", "8503"} {
				if address := net.JoinHostPort(n.Address, port); askPlain(ctx, address) == nil {
					return fmt.Errorf("%s serves plaintext", address)
				}
			}
		}
		return nil
	})
	c.strangersReachNoInstance(t, "c9")
	use := func(name string) {
		t.Helper()
		c.create(name, 64*mib, 3)
		c.attach(name, "node-2", 3)
		c.detach(name)
		c.remove(name)
	}
	use("c9-secured")
	c.tlsIsRemembered(t)
	second := mtlstest.NewAuthority(t).Files(t, mtlstest.Named(mtls.PeerName, ""))
	set(second)
	use("c9-renewed")

	set(map[string][]byte{"ca.crt": []byte("nothing"), "tls.crt": second["tls.crt"], "tls.key": second["tls.key"]})
	c.eventually("a bad secret is told", c.certificates(longhorn.ConditionFalse))
	set(second)
	c.eventually("a good secret is told", c.certificates(longhorn.ConditionTrue))

	w.AwaitMore(t, 100)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach("c9")
	c.remove("c9")
}

// answersNobodyInPlaintext: with a certificate from the beginning no instance manager may speak
// plaintext, and none does.
func (c *cluster) answersNobodyInPlaintext(t *testing.T) {
	t.Helper()
	pods, err := kubernetesOf(t, c).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: naming.LabelComponent + "=" + naming.ComponentInstanceManager})
	if err != nil || len(pods.Items) != len(c.Nodes) {
		t.Fatalf("%d instance managers on %d nodes: %v", len(pods.Items), len(c.Nodes), err)
	}
	for _, p := range pods.Items {
		if slices.Contains(p.Spec.Containers[0].Args, "--allow-plaintext") {
			t.Errorf("%s may speak plaintext", p.Name)
		}
		for _, port := range []string{"8500", "8501", "8503"} {
			if address := net.JoinHostPort(p.Status.PodIP, port); askPlain(t.Context(), address) == nil {
				t.Errorf("%s serves plaintext at %s", p.Name, address)
			}
		}
	}
}

// certificateIsMadeAgain: the Secret is deleted, and then the Pod of an instance manager. Its next
// Pod finds a certificate again, and volumes attach on its node.
func (c *cluster) certificateIsMadeAgain(t *testing.T) {
	t.Helper()
	ks, pod := kubernetesOf(t, c), c.instanceManagerOf("node-1")
	before, err := ks.CoreV1().Pods(namespace).Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = ks.CoreV1().Secrets(namespace).Delete(t.Context(), naming.SecretGRPCTLS, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ks.CoreV1().Pods(namespace).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("another Pod runs", func(ctx context.Context) error {
		p, err := ks.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && p.UID == before.UID {
			err = errors.New("the one before is still there")
		}
		return err
	})
	c.create("secured", 64*mib, 3)
	c.attach("secured", "node-1", 3)
	c.answersNobodyInPlaintext(t)
	c.detach("secured")
	c.remove("secured")
}

// strangersReachNoInstance: engine and replicas of an attached volume answer nobody in plaintext.
func (c *cluster) strangersReachNoInstance(t *testing.T, volume string) {
	e := c.engine(volume)
	instances := map[string]string{e.Name: net.JoinHostPort(e.Status.StorageIP, strconv.Itoa(e.Status.Port))}
	for _, r := range c.replicasOf(volume) {
		instances[r.Name] = net.JoinHostPort(r.Status.StorageIP, strconv.Itoa(r.Status.Port))
	}
	for name, address := range instances {
		if err := askPlain(t.Context(), address); err == nil || !strings.Contains(err.Error(), "connection") {
			t.Errorf("a stranger asks %s at %s in plaintext: %v", name, address, err)
		}
	}
}

// tlsIsRemembered: that a Pod has shown a certificate is on the Pod, so that a manager that was
// never there before does not speak plaintext to it; and is bound to the Pod's UID.
func (c *cluster) tlsIsRemembered(t *testing.T) {
	kube, err := client.New(c.RESTConfig(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pods := &instancemanager.Pods{Client: kube, Namespace: namespace}
	for _, n := range c.Nodes {
		pod, err := pods.At(t.Context(), n.Address)
		if err != nil || !pod.Secured {
			t.Errorf("Pod on %s: %+v, %v", n.Name, pod, err)
			continue
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(n.Address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		d := mtls.NewDialer(mtls.Open("", slog.Default()), pods, slog.Default())
		if _, err := d.Dial(t.Context(), l.Addr().String()); !errors.Is(err, mtls.ErrPlaintext) {
			t.Errorf("a new manager dials %s: %v, want %v", n.Name, err, mtls.ErrPlaintext)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := pods.NoteSecured(t.Context(), mtls.Pod{Name: pod.Name, UID: "another"}); !apierrors.IsInvalid(err) {
			t.Errorf("a note about another Pod of the name %s: %v, want it refused", pod.Name, err)
		}
	}
}

// certificates returns a check that every instance manager has that status of the condition.
func (c *cluster) certificates(want longhorn.ConditionStatus) func(context.Context) error {
	return func(context.Context) error {
		for _, m := range c.managers() {
			if got := longhorn.FindCondition(m.Status.Conditions,
				longhorn.InstanceManagerConditionCertificateUsable); got.Status != want {
				return fmt.Errorf("%s: %+v", m.Name, got)
			}
		}
		return nil
	}
}

func askPlain(ctx context.Context, address string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}
