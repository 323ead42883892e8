package witness_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// TestManagersThatCannotAnswerGoToTheBack: more managers than one question can be put to are cut
// off, from here or from the cluster, and stay attached. One is well, behind all others: it is
// found by asking again.
func TestManagersThatCannotAnswerGoToTheBack(t *testing.T) {
	quiet, _ := silent()
	for name, bad := range map[string]struct {
		handler handler
		count   int
	}{
		"silent":               {quiet, 6},
		"without the cluster":  {refuses(codes.Unavailable), 20},
		"without, and refused": {refuses(codes.PermissionDenied), 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 300*time.Millisecond, 100*time.Millisecond)
			for i := range bad.count {
				r.attach(t, fmt.Sprintf("m%d", i), bad.handler)
			}
			r.attach(t, "good", answers(7))
			var err error
			for range bad.count {
				if _, err = r.engine.Get(t.Context(), question); err == nil {
					return
				}
			}
			t.Errorf("asked %d times: %v; %v are asked first", bad.count, err, r.relay.Managers())
		})
	}
}
