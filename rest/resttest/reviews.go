package resttest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Reviews answers questions about callers as an API server does: token "of-alice" is user alice's,
// and Rights says what users may do. Tests of what the real one says are on clusters.
type Reviews struct {
	// Rights has "verb resource" or "verb resource/name" by user; "*" stands for every verb with
	// every resource.
	Rights map[string][]string
	// Away makes every question fail, Revoked has every token and right refused.
	Away, Revoked atomic.Bool
}

// Funcs intercepts the questions.
func (r *Reviews) Funcs() interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		switch o := o.(type) {
		case *authenticationv1.TokenReview:
			if r.Away.Load() {
				return errors.New("connection refused")
			}
			o.Status.User.Username, o.Status.Authenticated = strings.CutPrefix(o.Spec.Token, "of-")
			o.Status.Authenticated = o.Status.Authenticated && !r.Revoked.Load()
			return nil
		case *authorizationv1.SubjectAccessReview:
			if r.Away.Load() {
				return errors.New("connection refused")
			}
			a := o.Spec.ResourceAttributes
			for _, right := range r.Rights[o.Spec.User] {
				o.Status.Allowed = o.Status.Allowed || right == "*" || right == a.Verb+" "+a.Resource ||
					right == a.Verb+" "+a.Resource+"/"+a.Name
			}
			return nil
		}
		return c.Create(ctx, o, opts...)
	}}
}
