package peerkeys

import (
	"bytes"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/controlplane/object/naming"
)

// TestUserSecretIsCopiedAtOnce: controllers have what a user puts into the Secret of nodes before
// any time has passed; nodes that have it take no orders from them before.
func TestUserSecretIsCopiedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.k.Make = false
		go func() { _ = c.k.Start(t.Context()) }()
		synctest.Wait()
		users := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: naming.SecretGRPCTLS},
			Data: map[string][]byte{authoritiesFile: []byte("first"), "tls.crt": []byte("c"), "tls.key": []byte("k")}}
		if err := c.k.Client.Create(t.Context(), users); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"first", "second"} {
			users.Data[authoritiesFile] = []byte(want)
			if err := c.k.Client.Update(t.Context(), users); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := c.secret(naming.SecretGRPCControl).Data[authoritiesFile]; !bytes.Equal(got, []byte(want)) {
				t.Errorf("controllers have authority %q, want %q", got, want)
			}
		}
	})
}
