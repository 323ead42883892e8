package access

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/naming"
)

// Audience is what a token may be issued for to be good here and nowhere else. Tokens for the API
// server are good here too, since Pods have no others unless somebody asks for them.
const Audience = naming.TokenAudience

// Bounds of what callers can cause.
const (
	// rememberYes and rememberNo are how long an answer of the API server holds. They are what a
	// withdrawn token or right goes on for.
	rememberYes = 10 * time.Second
	rememberNo  = 5 * time.Second
	// rememberedTokens and rememberedRights bound the answers kept; an entry takes some hundred
	// bytes.
	rememberedTokens = 1024
	rememberedRights = 8192
	// maxTokenBytes is far above the tokens of any issuer.
	maxTokenBytes = 16 << 10
	// reviewTimeout bounds one question to the API server.
	reviewTimeout = 5 * time.Second
	// reviewsAtOnce bounds the questions under way, so that strangers cannot take the API server's
	// share of this manager.
	reviewsAtOnce = 16
	// callerRate and callerBurst bound the questions a second because of one caller: a page of the
	// UI needs about fifteen rights, which hold for rememberYes.
	callerRate  = 20
	callerBurst = 100
	// callersKnown bounds the callers whose questions are counted, and callerForgotten is when one
	// of them that asks nothing is forgotten: its bucket is full again by then.
	callersKnown    = 4096
	callerForgotten = time.Minute
)

// Judge asks the API server who callers are and what they may do. It is safe for concurrent use.
type Judge struct {
	client    client.Client
	namespace string
	now       func() time.Time
	tokens    *cache.LRUExpireCache
	rights    *cache.LRUExpireCache
	callers   *cache.LRUExpireCache
	asking    singleflight.Group
	slots     chan struct{}
}

// clockFunc is a clock out of a function.
type clockFunc func() time.Time

// Now gives the time.
func (f clockFunc) Now() time.Time { return f() }

// NewJudge returns a judge of requests about the objects of a namespace. c must know the kinds of
// authentication.k8s.io and authorization.k8s.io. now may be nil.
func NewJudge(c client.Client, namespace string, now func() time.Time) *Judge {
	if now == nil {
		now = time.Now
	}
	return &Judge{client: c, namespace: namespace, now: now,
		tokens:  cache.NewLRUExpireCacheWithClock(rememberedTokens, clockFunc(now)),
		rights:  cache.NewLRUExpireCacheWithClock(rememberedRights, clockFunc(now)),
		callers: cache.NewLRUExpireCacheWithClock(callersKnown, clockFunc(now)),
		slots:   make(chan struct{}, reviewsAtOnce)}
}

// verdict is an answer of the API server.
type verdict struct {
	caller Caller
	// refused is why not; nil: yes.
	refused error
}

// Token tells whose token it is. from is the address that shows it, for the bound on questions.
func (j *Judge) Token(ctx context.Context, from, token string) (Caller, error) {
	if token == "" || len(token) > maxTokenBytes {
		return Caller{}, fmt.Errorf("%w: a bearer token has 1 to %d bytes, this one has %d", ErrUnauthenticated,
			maxTokenBytes, len(token))
	}
	// The digest is kept, not the token: a dump of this process shows no credentials of callers
	// who are gone.
	digest := sha256.Sum256([]byte(token))
	v, err := j.ask(ctx, j.tokens, string(digest[:]), "address "+from, func(ctx context.Context) (verdict, error) {
		return j.reviewToken(ctx, token)
	})
	if err != nil {
		return Caller{}, err
	}
	return v.caller, v.refused
}

// Allowed returns nil if the caller may do what needs n.
func (j *Judge) Allowed(ctx context.Context, c Caller, n Need) error {
	if n.Verb == "" {
		return nil
	}
	key := c.Header() + " " + n.String()
	v, err := j.ask(ctx, j.rights, key, c.String(), func(ctx context.Context) (verdict, error) {
		return j.reviewRight(ctx, c, n)
	})
	if err != nil {
		return err
	}
	return v.refused
}

// ask returns what is remembered, or asks the API server; who pays for the question with its share.
func (j *Judge) ask(ctx context.Context, remembered *cache.LRUExpireCache, key, who string,
	review func(context.Context) (verdict, error)) (verdict, error) {
	if v, ok := remembered.Get(key); ok {
		return v.(verdict), nil
	}
	if !j.mayAsk(who) {
		return verdict{}, fmt.Errorf("%w: %s asks more than %d new things a second; wait and ask again",
			ErrBusy, who, callerRate)
	}
	answer := j.asking.DoChan(key, func() (any, error) {
		// Others may wait for the same answer: the end of the first one's request is not theirs.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		select {
		case j.slots <- struct{}{}:
			defer func() { <-j.slots }()
		case <-ctx.Done():
			return verdict{}, fmt.Errorf("%w: %d questions to the API server are under way", ErrBusy, reviewsAtOnce)
		}
		v, err := review(ctx)
		if err != nil {
			return verdict{}, fmt.Errorf("%w: the Kubernetes API server does not answer, retry in a few seconds: %w",
				ErrUnavailable, err)
		}
		long := rememberYes
		if v.refused != nil {
			long = rememberNo
		}
		remembered.Add(key, v, long)
		return v, nil
	})
	select {
	case a := <-answer:
		return a.Val.(verdict), a.Err
	case <-ctx.Done():
		return verdict{}, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// mayAsk takes one question from a caller's share.
func (j *Judge) mayAsk(who string) bool {
	share, ok := j.callers.Get(who)
	if !ok {
		share = rate.NewLimiter(callerRate, callerBurst)
	}
	j.callers.Add(who, share, callerForgotten)
	return share.(*rate.Limiter).AllowN(j.now(), 1)
}

func (j *Judge) reviewToken(ctx context.Context, token string) (verdict, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if Aimed(token) {
		review.Spec.Audiences = []string{Audience}
	}
	if err := j.client.Create(ctx, review); err != nil {
		return verdict{}, err
	}
	s := review.Status
	switch {
	case !s.Authenticated || s.User.Username == "":
		reason := s.Error
		if reason == "" {
			reason = "it is unknown, has expired, was withdrawn, or was issued for somebody else"
		}
		return verdict{refused: fmt.Errorf("%w: the API server does not accept the bearer token: %s", ErrUnauthenticated,
			reason)}, nil
	case len(review.Spec.Audiences) > 0 && !slices.Contains(s.Audiences, Audience):
		// An API server that knows no audiences leaves them out, and may have judged the token as one
		// for itself.
		return verdict{refused: fmt.Errorf("%w: the API server does not confirm that the token is for %s",
			ErrUnauthenticated, Audience)}, nil
	}
	c := Caller{User: s.User.Username, UID: s.User.UID, Groups: s.User.Groups}
	for k, v := range s.User.Extra {
		if c.Extra == nil {
			c.Extra = map[string][]string{}
		}
		c.Extra[k] = v
	}
	return verdict{caller: c}, nil
}

func (j *Judge) reviewRight(ctx context.Context, c Caller, n Need) (verdict, error) {
	namespace := j.namespace
	if n.Everywhere {
		namespace = ""
	}
	kind, part, _ := strings.Cut(n.Resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: c.User, UID: c.UID, Groups: c.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: n.Verb, Group: n.Group,
			Resource: kind, Subresource: part, Name: n.Name},
	}}
	for k, v := range c.Extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[k] = v
	}
	if err := j.client.Create(ctx, review); err != nil {
		return verdict{}, err
	}
	if review.Status.Allowed && !review.Status.Denied {
		return verdict{caller: c}, nil
	}
	return verdict{refused: j.lacking(c, n, review.Status)}, nil
}

// lacking says which right is missing and how to give it.
func (j *Judge) lacking(c Caller, n Need, s authorizationv1.SubjectAccessReviewStatus) error {
	why := ""
	if text := strings.Join(slices.DeleteFunc([]string{s.Reason, s.EvaluationError},
		func(t string) bool { return t == "" }), "; "); text != "" {
		why = " (" + text + ")"
	}
	if n.Everywhere {
		return fmt.Errorf("%w: %s may not %s in the whole cluster%s; grant it with a ClusterRole that has this right and: "+
			"kubectl create clusterrolebinding NAME --clusterrole=ROLE %s", ErrForbidden, c, n, why, subject(c.User))
	}
	role := RoleAdmin
	if n.Reads() {
		role = RoleView
	}
	return fmt.Errorf("%w: %s may not %s in namespace %s%s; grant it with: kubectl -n %s create rolebinding NAME "+
		"--clusterrole=%s %s", ErrForbidden, c, n, j.namespace, why, j.namespace, role, subject(c.User))
}

// Roles that an installation has for users of the API.
const (
	// RoleView allows reading.
	RoleView = "longhorn-view"
	// RoleAdmin allows everything.
	RoleAdmin = "longhorn-admin"
)

const serviceAccountPrefix = "system:serviceaccount:"

// subject is the flag of kubectl that names a user.
func subject(user string) string {
	if account, ok := strings.CutPrefix(user, serviceAccountPrefix); ok {
		return "--serviceaccount=" + account
	}
	return fmt.Sprintf("--user=%q", user)
}

// Aimed tells whether a token says that it is for the managers. Whether that is true the API server
// judges.
func Aimed(token string) bool { return slices.Contains(audiences(token), Audience) }

// audiences reads what a token says it is for, unverified: it only chooses what the API server is
// asked. Tokens that are no JWT say nothing.
func audiences(token string) []string {
	claims, err := unverifiedClaims(token)
	if err != nil {
		return nil
	}
	var one string
	if json.Unmarshal(claims.Audience, &one) == nil {
		return []string{one}
	}
	var many []string
	if json.Unmarshal(claims.Audience, &many) == nil {
		return many
	}
	return nil
}

// Expiry reads when a token ends by its own words; the zero time if it does not say. Only the API
// server's word counts: this spares a browser a session that is longer than its token.
func Expiry(token string) time.Time {
	claims, err := unverifiedClaims(token)
	if err != nil || claims.Expiry <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expiry), 0)
}

type claims struct {
	Audience json.RawMessage `json:"aud"`
	Expiry   float64         `json:"exp"`
}

func unverifiedClaims(token string) (c claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("no JWT")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}
