package access

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
)

const (
	// keysFresh is how old a copy of the keys may be: what ending a session takes until it holds on
	// every manager.
	keysFresh = 5 * time.Second
	// keysPause is the least time between two looks that strangers can cause, by showing cookies that
	// no key opens.
	keysPause = time.Second
	// maxEnded bounds the sessions that are remembered as ended. When it is reached a new key ends
	// all.
	maxEnded = 1024

	keyBytes   = 32
	keyField   = "key"
	endedField = "ended"
)

// Keyring is the key of sessions and those that were ended before their time, in Secret
// longhorn-rest-session, which only managers can read. Deleting the Secret ends all sessions. It is
// safe for concurrent use.
type Keyring struct {
	Client    client.Client
	Namespace string

	// loading has those who ask at the same time ask the API server once.
	loading singleflight.Group

	mu   sync.Mutex
	have keys
	read time.Time
	// ends counts the sessions that were ended here: keys that were read before have them not.
	ends int
}

// keys is what the Secret holds.
type keys struct {
	key []byte
	// ended has the time at which each session would have ended by itself.
	ended   map[string]time.Time
	version string
}

// get returns the keys, from a copy that is not too old, or newer than version where that is what
// has failed. It waits for the API server no longer than reviewTimeout, nor than ctx.
func (k *Keyring) get(ctx context.Context, now time.Time, failed string) (keys, error) {
	if have, ok := k.copied(now, failed); ok {
		return have, nil
	}
	loaded := k.loading.DoChan("", func() (any, error) {
		// Others wait for it too, whatever becomes of this request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		k.mu.Lock()
		ends := k.ends
		k.mu.Unlock()
		have, err := k.load(ctx)
		if err != nil {
			return keys{}, fmt.Errorf("%w: the key of sessions cannot be read: %w", ErrUnavailable, err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.ends == ends {
			k.have, k.read = have, now
		}
		return have, nil
	})
	wait, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case r := <-loaded:
		return r.Val.(keys), r.Err
	case <-wait.Done():
		return keys{}, fmt.Errorf("%w: the key of sessions cannot be read: %w", ErrUnavailable, wait.Err())
	}
}

// copied returns the copy if it is good enough.
func (k *Keyring) copied(now time.Time, failed string) (keys, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := now.Sub(k.read)
	fresh := k.have.key != nil && age >= 0 && age < keysFresh
	return k.have, fresh && (failed == "" || k.have.version != failed || age < keysPause)
}

// load reads the Secret, and makes it if nobody has yet.
func (k *Keyring) load(ctx context.Context) (keys, error) {
	secret := &corev1.Secret{}
	at := client.ObjectKey{Namespace: k.Namespace, Name: naming.SecretRESTSession}
	err := k.Client.Get(ctx, at, secret)
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name},
			Data: map[string][]byte{keyField: newKey()}}
		if err = k.Client.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			err = k.Client.Get(ctx, at, secret)
		}
	}
	if err != nil {
		return keys{}, err
	}
	return parseKeys(secret)
}

func newKey() []byte {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // it never fails
	return key
}

func parseKeys(secret *corev1.Secret) (keys, error) {
	have := keys{key: secret.Data[keyField], ended: map[string]time.Time{}, version: secret.ResourceVersion}
	if len(have.key) != keyBytes {
		return keys{}, fmt.Errorf("secret %s holds no key of %d bytes; delete it, which ends all sessions", secret.Name,
			keyBytes)
	}
	if text := secret.Data[endedField]; len(text) > 0 {
		if err := json.Unmarshal(text, &have.ended); err != nil {
			return keys{}, fmt.Errorf("secret %s: sessions that were ended: %w; delete it, which ends all sessions",
				secret.Name, err)
		}
	}
	return have, nil
}

// end notes that a session has ended before its time. It waits no longer than reviewTimeout.
func (k *Keyring) end(ctx context.Context, now time.Time, id string, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	err := conflict.Retry(func() error {
		secret := &corev1.Secret{}
		at := client.ObjectKey{Namespace: k.Namespace, Name: naming.SecretRESTSession}
		if err := k.Client.Get(ctx, at, secret); err != nil {
			return client.IgnoreNotFound(err) // without the key no session goes on
		}
		have, err := parseKeys(secret)
		if err != nil {
			return err
		}
		for old, end := range have.ended {
			if !now.Before(end) {
				delete(have.ended, old)
			}
		}
		have.ended[id] = until.UTC()
		if len(have.ended) > maxEnded {
			have.ended, secret.Data[keyField] = map[string]time.Time{}, newKey()
		}
		text, err := json.Marshal(have.ended)
		if err != nil {
			return err
		}
		secret.Data[endedField] = text
		return k.Client.Update(ctx, secret)
	})
	k.mu.Lock()
	k.read = time.Time{}
	k.ends++
	k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: the end of the session cannot be written: %w", ErrUnavailable, err)
	}
	return nil
}

func ignoreUnauthenticated(err error) error {
	if errors.Is(err, ErrUnauthenticated) {
		return nil
	}
	return err
}
