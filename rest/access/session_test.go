package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// clock is a time that tests move.
type clock struct{ time.Time }

func (c *clock) now() time.Time       { return c.Time }
func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

// managers are the sessions of managers of one cluster, with one clock.
func managers(n int) (out []*Sessions, c client.Client, now *clock) {
	c = fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	now = &clock{time.Now()}
	for range n {
		out = append(out, &Sessions{Keys: &Keyring{Client: c, Namespace: "ns"}, Now: now.now})
	}
	return out, c, now
}

// TestSessionOnEveryManager: whichever manager made it, all open it; ended at one of them, it has
// ended at all within keysFresh.
func TestSessionOnEveryManager(t *testing.T) {
	m, _, now := managers(2)
	cookie, end, err := m[0].Begin(t.Context(), "secret-token")
	if err != nil || end != now.Add(SessionLife).Truncate(time.Second) {
		t.Fatal(end, err)
	}
	if strings.Contains(cookie, "secret") {
		t.Error("the cookie shows the token")
	}
	for i, s := range m {
		if token, _, err := s.Token(t.Context(), cookie); token != "secret-token" || err != nil {
			t.Errorf("manager %d: %q, %v", i, token, err)
		}
	}
	other, _, err := m[1].Begin(t.Context(), "secret-token")
	if err != nil || other == cookie {
		t.Errorf("a second session is the first one: %v", err)
	}
	if err := m[0].End(t.Context(), cookie); err != nil {
		t.Fatal(err)
	}
	now.pass(keysFresh)
	for i, s := range m {
		if _, _, err := s.Token(t.Context(), cookie); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("manager %d goes on with an ended session: %v", i, err)
		}
		if _, _, err := s.Token(t.Context(), other); err != nil {
			t.Errorf("manager %d: another session: %v", i, err)
		}
	}
	if err := m[1].End(t.Context(), cookie); err != nil {
		t.Errorf("ending again: %v", err)
	}
	now.pass(SessionLife)
	if _, _, err := m[1].Token(t.Context(), other); !errors.Is(err, ErrUnauthenticated) ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("an old session: %v", err)
	}
}

// TestSessionsEndWithTheKey: who deletes the Secret ends them, and new ones begin.
func TestSessionsEndWithTheKey(t *testing.T) {
	m, c, now := managers(2)
	cookie, _, err := m[0].Begin(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-rest-session"}}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	now.pass(keysFresh)
	if _, _, err := m[0].Token(t.Context(), cookie); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("without its key: %v", err)
	}
	// The other manager has read the new key already, the first one looks again when it meets a
	// cookie that it cannot open.
	fresh, _, err := m[1].Begin(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	proof, err := m[1].Page(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	now.pass(keysPause)
	if ok, err := m[0].IsPage(t.Context(), fresh, proof); !ok || err != nil {
		t.Errorf("a page of the new key: %v, %v", ok, err)
	}
	if ok, err := m[0].IsPage(t.Context(), cookie, proof); ok || err != nil {
		t.Errorf("a proof of another session: %v, %v", ok, err)
	}
	if _, _, err := m[0].Token(t.Context(), fresh); err != nil {
		t.Errorf("a session of the new key: %v", err)
	}
}

func TestSessionEndsWithItsToken(t *testing.T) {
	m, _, _ := managers(1)
	expiry := time.Now().Add(time.Hour).Truncate(time.Second)
	_, end, err := m[0].Begin(t.Context(), jwt(fmt.Sprintf(`{"exp":%d}`, expiry.Unix())))
	if err != nil || !end.Equal(expiry) {
		t.Errorf("a session ends at %s, its token at %s: %v", end, expiry, err)
	}
	if _, _, err := m[0].Begin(t.Context(), strings.Repeat("x", maxSessionToken+1)); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a token that no cookie holds: %v", err)
	}
	cookie, _, err := m[0].Begin(t.Context(), strings.Repeat("x", maxSessionToken))
	if err != nil || len(cookie) > 4000 {
		t.Errorf("the largest cookie has %d bytes: %v", len(cookie), err)
	}
}

// TestForgedCookies: whatever is changed in a cookie, it is none.
func TestForgedCookies(t *testing.T) {
	m, _, _ := managers(1)
	cookie, _, err := m[0].Begin(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		t.Fatal(err)
	}
	forged := []string{"", "!", "AAAA", cookie + "AA", cookie[:len(cookie)-4]}
	for i := range raw {
		changed := append([]byte{}, raw...)
		changed[i] ^= 1
		forged = append(forged, base64.RawURLEncoding.EncodeToString(changed))
	}
	stranger, _, _ := managers(1)
	foreign, _, err := stranger[0].Begin(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(forged, foreign) {
		if token, _, err := m[0].Token(t.Context(), c); !errors.Is(err, ErrUnauthenticated) || token != "" {
			t.Errorf("%q is a session: %v", c, err)
		}
	}
	if _, _, err := m[0].Token(t.Context(), cookie); err != nil {
		t.Error(err)
	}
}

// TestEndedSessionsAreBounded: too many of them, and a new key ends all.
func TestEndedSessionsAreBounded(t *testing.T) {
	m, c, _ := managers(1)
	k := m[0].Keys
	cookie, end, err := m[0].Begin(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	at := client.ObjectKey{Namespace: "ns", Name: "longhorn-rest-session"}
	if err := c.Get(t.Context(), at, secret); err != nil {
		t.Fatal(err)
	}
	var many strings.Builder
	for i := range maxEnded {
		fmt.Fprintf(&many, `,"%d":%q`, i, end.UTC().Format(time.RFC3339))
	}
	secret.Data["ended"] = []byte(`{"old":"2001-01-01T00:00:00Z"` + many.String() + "}")
	before := string(secret.Data["key"])
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := k.end(t.Context(), time.Now(), "one more", end); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), at, secret); err != nil {
		t.Fatal(err)
	}
	if string(secret.Data["key"]) == before || string(secret.Data["ended"]) != "{}" {
		t.Errorf("%d bytes about ended sessions, key changed: %v", len(secret.Data["ended"]),
			string(secret.Data["key"]) != before)
	}
	if _, _, err := m[0].Token(t.Context(), cookie); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a session of the former key: %v", err)
	}
}

// TestSessionsWhileTheAPIServerHangs: an API server that takes requests and does not answer them
// costs each session's request reviewTimeout at most, however many there are, and asks once.
func TestSessionsWhileTheAPIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		hang := func(ctx context.Context) error {
			asked.Add(1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return errors.New("too late")
			}
		}
		var away atomic.Bool
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if away.Load() {
					return hang(ctx)
				}
				return c.Get(ctx, key, o, opts...)
			}}).Build()
		s := &Sessions{Keys: &Keyring{Client: c, Namespace: "ns"}}
		cookie, _, err := s.Begin(t.Context(), "token")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Token(t.Context(), cookie); err != nil {
			t.Fatal(err)
		}
		away.Store(true)
		ended := make(chan error, 1)
		go func() { ended <- s.End(t.Context(), cookie) }() // the copy of the key is fresh
		if err := <-ended; !errors.Is(err, ErrUnavailable) {
			t.Errorf("ending a session: %v", err)
		}
		<-time.After(keysFresh)
		asked.Store(0)
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, _, err := s.Token(t.Context(), cookie); !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { // a browser that goes away
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _, _ = s.Token(ctx, cookie)
			if took := time.Since(began); took != time.Second {
				t.Errorf("who has gone is kept for %v", took)
			}
		})
		wg.Wait()
		if took := time.Since(began); took != reviewTimeout || asked.Load() != 1 {
			t.Errorf("%v, %d questions", took, asked.Load())
		}
	})
}
