package conflict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRetry: only conflicts are repeated, and every other end is the caller's, that of a context
// above all.
func TestRetry(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "volumes"}, "v", errors.New("changed"))
	other := errors.New("no")
	for name, tt := range map[string]struct {
		ends []error
		want error
		runs int
	}{
		"at once":        {[]error{nil}, nil, 1},
		"after others":   {[]error{conflict, conflict, nil}, nil, 3},
		"another error":  {[]error{conflict, other}, other, 2},
		"always":         {append(slices.Repeat([]error{conflict}, attempts.Steps), nil), conflict, attempts.Steps},
		"time is up":     {[]error{fmt.Errorf("put: %w", context.DeadlineExceeded)}, context.DeadlineExceeded, 1},
		"caller is gone": {[]error{conflict, context.Canceled}, context.Canceled, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			err := Retry(func() error { runs++; return tt.ends[runs-1] })
			if !errors.Is(err, tt.want) || runs != tt.runs {
				t.Errorf("%s: %v after %d runs", name, err, runs)
			}
		})
	}
}
