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

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// apiServer answers reviews as a test says. The real one is asked by the tests on clusters.
type apiServer struct {
	tokens, rights atomic.Int32
	away           atomic.Bool
	// hold, if not nil, is waited for before every answer.
	hold chan struct{}
	// noAudiences is an API server that does not know them.
	noAudiences bool
}

var errAway = errors.New("connection refused")

func (a *apiServer) client() client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o.(type) {
			case *authenticationv1.TokenReview, *authorizationv1.SubjectAccessReview:
			default:
				return c.Create(ctx, o, opts...)
			}
			if a.hold != nil {
				select {
				case <-a.hold:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if a.away.Load() {
				return errAway
			}
			switch o := o.(type) {
			case *authenticationv1.TokenReview:
				a.tokens.Add(1)
				user, good := strings.CutPrefix(o.Spec.Token, "good-")
				o.Status.Authenticated, o.Status.User.Username = good, user
				if o.Spec.Audiences != nil {
					o.Status.Authenticated, o.Status.User.Username = true, "aimed"
					if !a.noAudiences {
						o.Status.Audiences = o.Spec.Audiences
					}
				}
			case *authorizationv1.SubjectAccessReview:
				a.rights.Add(1)
				r := o.Spec.ResourceAttributes
				o.Status.Allowed = r.Verb == "list" && r.Namespace == "ns" || r.Resource == "volumes" && r.Subresource == "status"
				o.Status.Reason = "a test"
			}
			return nil
		}}).Build()
}

func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestTokens(t *testing.T) {
	a := &apiServer{}
	j := NewJudge(a.client(), "ns", nil)
	for _, tt := range []struct {
		token, user string
		err         error
	}{
		{"good-alice", "alice", nil},
		{"bad", "", ErrUnauthenticated},
		{"good-", "", ErrUnauthenticated}, // a user without a name is nobody
		{"", "", ErrUnauthenticated},
		{strings.Repeat("x", maxTokenBytes+1), "", ErrUnauthenticated},
		{jwt(`{"aud":"longhorn-backend"}`), "aimed", nil},
		{jwt(`{"aud":["other","longhorn-backend"]}`), "aimed", nil},
		{jwt(`{"aud":["vault"]}`), "", ErrUnauthenticated},
		{jwt(`{"aud":7}`), "", ErrUnauthenticated},
		{jwt(`nonsense`), "", ErrUnauthenticated},
	} {
		c, err := j.Token(t.Context(), "10.0.0.1", tt.token)
		if c.User != tt.user || !errors.Is(err, tt.err) || c.Anonymous {
			t.Errorf("%.40q: %+v, %v", tt.token, c, err)
		}
	}
	j = NewJudge((&apiServer{noAudiences: true}).client(), "ns", nil)
	if _, err := j.Token(t.Context(), "10.0.0.1", jwt(`{"aud":"longhorn-backend"}`)); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("an API server that does not confirm the audience: %v", err)
	}
}

// TestRights: a refusal names the right that is missing, and how to give it.
func TestRights(t *testing.T) {
	j := NewJudge((&apiServer{}).client(), "ns", nil)
	alice := Caller{User: "alice"}
	robot := Caller{User: "system:serviceaccount:ci:robot", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	for _, tt := range []struct {
		c    Caller
		n    Need
		want string
	}{
		{alice, Need{Verb: "list", Group: "longhorn.io", Resource: "volumes"}, ""},
		{alice, Need{}, ""},
		{alice, Need{Verb: "update", Group: "longhorn.io", Resource: "volumes/status"}, ""},
		{alice, Need{Verb: "get", Group: "longhorn.io", Resource: "volumes", Name: "demo"},
			`user "alice" may not get volumes.longhorn.io "demo" in namespace ns (a test); grant it with: kubectl -n ns ` +
				`create rolebinding NAME --clusterrole=longhorn-view --user="alice"`},
		{robot, Need{Verb: "delete", Group: "longhorn.io", Resource: "volumes"},
			"--clusterrole=longhorn-admin --serviceaccount=ci:robot"},
		// The fake server allows lists in the namespace only.
		{alice, Need{Verb: "list", Resource: "persistentvolumes", Everywhere: true},
			`user "alice" may not list persistentvolumes in the whole cluster (a test); grant it with a ClusterRole that has ` +
				`this right and: kubectl create clusterrolebinding NAME --clusterrole=ROLE --user="alice"`},
	} {
		err := j.Allowed(t.Context(), tt.c, tt.n)
		if tt.want == "" && err != nil ||
			tt.want != "" && (!errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s, %s: %v", tt.c, tt.n, err)
		}
	}
}

// TestAnswersAreKeptForSeconds: and in bounded number; what could not be answered is not kept.
func TestAnswersAreKeptForSeconds(t *testing.T) {
	a, clock := &apiServer{}, time.Now()
	j := NewJudge(a.client(), "ns", func() time.Time { return clock })
	list := Need{Verb: "list", Resource: "volumes"}
	ask := func() {
		t.Helper()
		c, err := j.Token(t.Context(), "10.0.0.1", "good-alice")
		if err != nil || j.Allowed(t.Context(), c, list) != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		ask()
	}
	if n, m := a.tokens.Load(), a.rights.Load(); n != 1 || m != 1 {
		t.Errorf("%d and %d questions for 50 requests", n, m)
	}
	a.away.Store(true)
	clock = clock.Add(rememberYes - time.Millisecond)
	ask()
	clock = clock.Add(2 * time.Millisecond)
	for range 2 {
		if _, err := j.Token(t.Context(), "10.0.0.1", "good-alice"); !errors.Is(err, ErrUnavailable) ||
			!strings.Contains(err.Error(), "API server does not answer") {
			t.Errorf("API server away: %v", err)
		}
		if err := j.Allowed(t.Context(), Caller{User: "alice"}, list); !errors.Is(err, ErrUnavailable) {
			t.Errorf("API server away: %v", err)
		}
	}
	a.away.Store(false)
	ask()
	// Each from its own address, so that the share of one caller does not matter.
	for i := range rememberedTokens + 10 {
		_, _ = j.Token(t.Context(), fmt.Sprint("10.0.1.", i), fmt.Sprint("bad-", i))
	}
	if n := len(j.tokens.Keys()); n > rememberedTokens {
		t.Errorf("%d answers are kept", n)
	}
}

// TestEqualQuestionsAreOne: many requests with one token at a time ask once, and an API server that
// hangs does not hold them for ever.
func TestEqualQuestionsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{hold: make(chan struct{})}
		j := NewJudge(a.client(), "ns", nil)
		var asking sync.WaitGroup
		failed := atomic.Int32{}
		for range 200 {
			asking.Go(func() {
				if _, err := j.Token(t.Context(), "10.0.0.1", "good-alice"); err != nil {
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		close(a.hold)
		asking.Wait()
		if n := a.tokens.Load(); n != 1 {
			t.Errorf("%d questions", n)
		}
		if n := failed.Load(); n != 200-callerBurst {
			t.Errorf("%d of 200 were told to wait; a caller may ask %d at once", n, callerBurst)
		}
		a.hold = make(chan struct{})
		began := time.Now()
		_, err := j.Token(t.Context(), "10.0.0.2", "good-bob")
		if took := time.Since(began); !errors.Is(err, ErrUnavailable) || took != reviewTimeout {
			t.Errorf("an API server that hangs: %v after %s", err, took)
		}
	})
}

// TestShareOfOneCaller: whoever tries many tokens is stopped, and nobody else is.
func TestShareOfOneCaller(t *testing.T) {
	a, clock := &apiServer{}, time.Now()
	j := NewJudge(a.client(), "ns", func() time.Time { return clock })
	busy := 0
	for i := range 1000 {
		if _, err := j.Token(t.Context(), "10.0.0.1", fmt.Sprint("guess-", i)); errors.Is(err, ErrBusy) {
			busy++
		}
	}
	if n := a.tokens.Load(); n != callerBurst || busy != 1000-callerBurst {
		t.Errorf("%d questions were put to the API server for 1000 guesses, %d refused", n, busy)
	}
	if _, err := j.Token(t.Context(), "10.0.0.2", "good-alice"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	clock = clock.Add(time.Second)
	if _, err := j.Token(t.Context(), "10.0.0.1", "good-bob"); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

func TestModes(t *testing.T) {
	read, change := Need{Verb: "watch", Resource: "volumes"}, Need{Verb: "update", Resource: "volumes"}
	for mode, want := range map[Mode][3]bool{
		ModeNone: {}, ModeReadOnly: {true, true, false}, ModeAll: {true, true, true}, "other": {}, "": {},
	} {
		if got := [3]bool{mode.Allows(Need{}), mode.Allows(read), mode.Allows(change)}; got != want {
			t.Errorf("mode %q allows %v, want %v", mode, got, want)
		}
	}
}

func TestCallerHeader(t *testing.T) {
	for _, c := range []Caller{Nobody, {User: "alice\n\"", UID: "1", Groups: []string{"a", "b"},
		Extra: map[string][]string{"k": {"v"}}, Session: true}} {
		got, err := ParseHeader(c.Header())
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c) {
			t.Errorf("%+v became %+v, %v", c, got, err)
		}
	}
	for _, text := range []string{"", "!", "e30", Caller{User: "a", Anonymous: true}.Header(),
		base64.RawURLEncoding.EncodeToString([]byte("[]"))} {
		if c, err := ParseHeader(text); err == nil {
			t.Errorf("%q is a caller: %+v", text, c)
		}
	}
}

func TestKnownHost(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:9500": true, "127.0.1.7": true, "[::1]:9500": true, "::1": true, "[fe80::1%25eth0]:9500": true,
		"10.1.2.3:9500": true, "localhost:9500": true, "LOCALHOST": true, "localhost.": true, "a.localhost": true,
		"": true, "longhorn-backend:9500": true, "longhorn-backend.ns": true, "longhorn-backend.ns.svc:9500": true,
		"longhorn-frontend.ns.svc.cluster.local": true, "ui.example": true, "UI.example:443": true,
		"evil.example:9500": false, "evil.example": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false,
		"longhorn-backend.evil.example": false, "longhorn-backend.ns.svc.evil.example": false, "notlocalhost": false,
		"longhorn-backend.other": false, "x.ui.example": false, "ui.example.evil.example:443": false, "127.0.0.1x": false,
	} {
		if got := KnownHost(host, "ns", []string{"ui.example"}); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
	if !KnownHost("evil.example", "ns", []string{AnyHost}) {
		t.Error("an asterisk does not stand for every name")
	}
}
