package snapshot

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
)

// TestEnginesThatHang: looks at snapshots of volumes whose engines do not answer end soon, however
// many there are, each engine has one order, and the outcome is remembered when it comes.
func TestEnginesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{}, nil)
		release, calls := make(chan struct{}), map[string]int{}
		take := func(volume string, call func(context.Context) error) time.Duration {
			s, g := world()
			s.Spec.Volume, s.Name, s.UID = volume, "s-"+volume, types.UID(volume)
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // the context of a look ends with it
			if err := r.apart(ctx, s, func(ctx context.Context) error { return r.noted(s, g.Engine, call(ctx)) }); err != nil {
				t.Errorf("%s: %v", volume, err)
			}
			return time.Since(began)
		}
		for range 2 {
			for i := range 11 {
				volume := fmt.Sprint("hung-", i)
				if d := take(volume, func(ctx context.Context) error {
					calls[volume]++
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-release:
						return engineclient.ErrPrecondition
					}
				}); d > answerWait {
					t.Errorf("a look at %s took %s", volume, d)
				}
				if calls[volume] != 1 || !r.unanswered(volume) {
					t.Errorf("%s: %d orders, unanswered %v", volume, calls[volume], r.unanswered(volume))
				}
			}
		}
		taken := false
		if d := take("sound", func(context.Context) error { taken = true; return nil }); !taken || d != 0 {
			t.Errorf("taken %v after %s", taken, d)
		}
		close(release)
		synctest.Wait()
		for i := range 11 {
			volume := fmt.Sprint("hung-", i)
			s := &v1beta2.Snapshot{ObjectMeta: metav1.ObjectMeta{UID: types.UID(volume)}}
			if r.unanswered(volume) || r.attempt(s).Refusal == "" {
				t.Errorf("%s: unanswered %v, %+v", volume, r.unanswered(volume), r.attempt(s))
			}
		}
	})
}
