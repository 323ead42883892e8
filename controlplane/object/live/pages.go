// Package live reads lists from the API server past every cache.
package live

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PageSize is how many objects are read at a time: what the API server and this process hold of a
// long list at once.
const PageSize = 500

// Pages reads a list page by page and calls each with every page. Pages are not used again, so that
// items may be kept.
func Pages[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, r client.Reader, each func(P), opts ...client.ListOption) error {
	for next := ""; ; {
		// Each page is decoded into a list of its own. One that was used before keeps whatever the
		// next page leaves out: fields of its items, and the token, so that the last page would be
		// read for ever.
		page := P(new(L))
		all := make([]client.ListOption, 0, len(opts)+2)
		all = append(append(all, opts...), client.Limit(PageSize), client.Continue(next))
		if err := r.List(ctx, page, all...); err != nil {
			return fmt.Errorf("list %T: %w", page, err)
		}
		each(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
