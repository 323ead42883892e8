package serve_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/test/wait"
)

// TestStreamsEndWithTheRight: a stream goes on while its caller may follow it, and while nobody can
// tell, and ends when its token does.
func TestStreamsEndWithTheRight(t *testing.T) {
	reviews := &resttest.Reviews{Rights: apitest.Users}
	var ahead atomic.Int64 // no answer of the API server is remembered over a step of the clock
	f := guarded(t, reviews, "none", func(c *rest.Config) {
		c.Limits.Judged = time.Millisecond
		c.Judge = access.NewJudge(c.Client, lh.Namespace, func() time.Time {
			return time.Now().Add(time.Duration(ahead.Add(int64(time.Minute))))
		})
	})
	h := http.Header{}
	h.Set("Authorization", "Bearer of-reader")
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+"/v1/ws/volumes", h)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := conn.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				ended <- err
				return
			}
		}
	}()
	asked := func(what string) {
		t.Helper()
		begin := ahead.Load()
		wait.Until(t, what+": the caller is judged again", func() bool {
			select {
			case err := <-ended:
				t.Fatalf("%s: the stream has ended: %v", what, err)
			default:
			}
			return ahead.Load() > begin+int64(20*time.Minute)
		})
	}
	asked("allowed")
	reviews.Away.Store(true)
	asked("the API server is away")
	reviews.Away.Store(false)
	reviews.Revoked.Store(true)
	wait.Receive(t, "the end of the stream", ended)
}
