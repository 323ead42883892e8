package serving

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/controlplane/object/naming"
)

// Keys is what a manager serves with.
type Keys struct {
	// AuthorityPEM is what the API server is told to trust: the authority's certificate and, after it
	// was renewed, the former one, which other managers may still serve with.
	AuthorityPEM []byte
	// CertificatePEM and KeyPEM are the server's.
	CertificatePEM, KeyPEM []byte
}

// formerKey is where the authority's Secret keeps the certificate before the present one.
const formerKey = "former.crt"

// pair is a certificate with its key.
type pair struct {
	certificate.Pair
	// former is the certificate that an authority took the place of; managers that have not seen the
	// change yet serve with what it signed.
	former []byte
}

// EnsureKeys returns keys for a server known under names, from the two Secrets; it writes them
// where they are missing or do not serve. Names already covered stay covered, since other managers
// may be known under them.
func EnsureKeys(ctx context.Context, c client.Client, namespace string, names []string, now time.Time) (Keys, error) {
	ca, err := ensureSecret(ctx, c, client.ObjectKey{Namespace: namespace, Name: naming.SecretWebhookCA},
		func(present pair) (pair, error) {
			if present.Lasts(now, certificate.ReplaceBefore) {
				return present, nil
			}
			made, err := certificate.NewAuthority("longhorn-webhook-ca", now)
			if _, unreadable := present.Certificate(); unreadable != nil {
				return pair{Pair: made}, err
			}
			return pair{Pair: made, former: present.Cert}, err
		})
	if err != nil {
		return Keys{}, err
	}
	server, err := ensureSecret(ctx, c, client.ObjectKey{Namespace: namespace, Name: naming.SecretWebhookTLS},
		func(present pair) (pair, error) {
			if present.Serves(names, ca.Pair, now) {
				return present, nil
			}
			all := slices.Concat(names, present.Names())
			slices.Sort(all)
			made, err := ca.Issue(slices.Compact(all), now)
			return pair{Pair: made}, err
		})
	if err != nil {
		return Keys{}, err
	}
	return Keys{AuthorityPEM: slices.Concat(ca.Cert, ca.former), CertificatePEM: server.Cert, KeyPEM: server.Key}, nil
}

// ensureSecret reads a pair from a Secret, asks make what it should be, and writes it if that
// differs. Another writer in between makes it look again.
func ensureSecret(ctx context.Context, c client.Client, key client.ObjectKey,
	make func(present pair) (pair, error)) (pair, error) {
	const attempts = 10 // each of a handful of managers starting at once needs to win once
	var err error
	for range attempts {
		var got pair
		got, err = tryEnsureSecret(ctx, c, key, make)
		if err == nil {
			return got, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return pair{}, fmt.Errorf("keep webhook keys in Secret %s: %w", key, err)
}

func tryEnsureSecret(ctx context.Context, c client.Client, key client.ObjectKey,
	make func(present pair) (pair, error)) (pair, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, key, secret)
	exists := err == nil
	if client.IgnoreNotFound(err) != nil {
		return pair{}, err
	}
	present := pair{former: secret.Data[formerKey],
		Pair: certificate.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}}
	wanted, err := make(present)
	if err != nil {
		return pair{}, err
	}
	if exists && bytes.Equal(wanted.Cert, present.Cert) && bytes.Equal(wanted.Key, present.Key) {
		return present, nil
	}
	data := map[string][]byte{corev1.TLSCertKey: wanted.Cert, corev1.TLSPrivateKeyKey: wanted.Key}
	if len(wanted.former) > 0 {
		data[formerKey] = wanted.former
	}
	if exists {
		secret.Data = data
		return wanted, c.Update(ctx, secret)
	}
	return wanted, c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Type:       corev1.SecretTypeTLS,
		Data:       data,
	})
}
