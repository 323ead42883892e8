package manager

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
)

// TestPlaintext is the table of what new instance managers may do without a certificate.
func TestPlaintext(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	files := authority.Files(t, mtlstest.Named(mtls.PeerName, ""))
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
		holds   bool // the process still has a certificate
		objects []client.Object
		want    instancemanager.Plaintext
	}{
		{"switched off", false, false, []client.Object{node, older},
			instancemanager.Plaintext{For: "managers without --mutual-tls"}},
		{"about to be made", true, false, []client.Object{node, looks}, instancemanager.Plaintext{Wait: true}},
		{"beside an older manager", true, false, []client.Object{node, looks, older},
			instancemanager.Plaintext{For: "ankole/manager:1"}},
		{"there", true, false, []client.Object{node, looks, older, secret}, instancemanager.Plaintext{}},
		{"deleted since", true, true, []client.Object{node, looks}, instancemanager.Plaintext{Wait: true}},
	} {
		scheme, err := newScheme()
		if err != nil {
			t.Fatal(err)
		}
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(row.objects...).Build()
		dir := t.TempDir()
		if row.holds {
			authority.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
		}
		p := &control{base: base{live: live}, certificates: mtls.Open(dir, slog.New(slog.DiscardHandler)),
			certificateWanted: make(chan struct{}, 1)}
		p.cfg.Namespace, p.cfg.MutualTLS = naming.Namespace, row.on
		if got, err := p.plaintext(t.Context()); err != nil || got != row.want {
			t.Errorf("%s: %+v, %v, want %+v", row.name, got, err, row.want)
		}
		if told := len(p.certificateWanted) == 1; told != row.want.Wait {
			t.Errorf("%s: whoever makes the certificate is told of it: %v", row.name, told)
		}
	}
}
