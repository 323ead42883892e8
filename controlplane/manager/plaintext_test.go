package manager

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/instancemanager"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/peerkeys"
	"ankole.storage/instancemanager/mtls"
	"ankole.storage/instancemanager/mtls/mtlstest"
)

// TestPlaintext is the table of what new instance managers may do without a certificate.
func TestPlaintext(t *testing.T) {
	files := mtlstest.NewAuthority(t).Files(t, mtlstest.Named(mtls.PeerName, ""))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: naming.SecretGRPCTLS},
		Data: files}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	of := func(name string, command ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: name,
			Labels: map[string]string{"app": naming.AppManager}}, Spec: corev1.PodSpec{NodeName: "n",
			Containers: []corev1.Container{{Image: "ankole/manager:" + name, Command: command}}}}
	}
	looks, older := of("2", "--mutual-tls"), of("1")
	for _, row := range []struct {
		name    string
		on      bool
		objects []client.Object
		want    instancemanager.Plaintext
	}{
		{"switched off", false, []client.Object{node, older},
			instancemanager.Plaintext{For: "managers without --mutual-tls"}},
		{"about to be made", true, []client.Object{node, looks}, instancemanager.Plaintext{Wait: true}},
		{"beside an older manager", true, []client.Object{node, looks, older},
			instancemanager.Plaintext{For: "ankole/manager:1"}},
		{"there", true, []client.Object{node, looks, older, secret}, instancemanager.Plaintext{}},
	} {
		scheme, err := newScheme()
		if err != nil {
			t.Fatal(err)
		}
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(row.objects...).Build()
		p := &process{live: live, certificates: mtls.Open(t.TempDir(), slog.New(slog.DiscardHandler))}
		p.cfg.Namespace, p.cfg.MutualTLS = naming.Namespace, row.on
		if row.on {
			p.certificates.FetchWith(peerkeys.Read(live, naming.Namespace))
		}
		if got, err := p.plaintext(t.Context()); err != nil || got != row.want {
			t.Errorf("%s: %+v, %v, want %+v", row.name, got, err, row.want)
		}
	}
}
