package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/wait"
)

// TestLogs is the table of ways to name a log, and of what is said when there is none.
func TestLogs(t *testing.T) {
	instances := resttest.StartInstances(t)
	objects := append(cluster(), resttest.InstanceManager("im-1", "node-1"))
	s, err := rest.New(rest.Config{Connect: instances.Connect, Config: serve.Config{Open: true,
		Client: resttest.Client(t, interceptor.Funcs{}, objects...), Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	b := &bed{t: t, url: web.URL}
	for name, text := range map[string]string{"busy-e-0": "engine", "busy-r-11111111": "replica",
		"gone-e-3": "of a deleted volume"} {
		instances.Run(t, name, "echo first; echo "+text+"; exec sleep 1000")
	}
	for _, row := range []struct {
		args string
		want result
	}{
		{"engine logs busy --tail 1", result{out: "engine\n"}},
		{"engine logs busy", result{out: "first\nengine\n"}},
		{"engine logs busy-e-0", result{out: "first\nengine\n"}},
		{"replica logs busy-r-11111111", result{out: "first\nreplica\n"}},
		{"engine logs gone-e-3 --node node-1", result{out: "first\nof a deleted volume\n"}},
		{"engine logs gone-e-3",
			result{1, "", "there is no engine and no replica gone-e-3; if there was one, name the node where it ran"}},
		{"engine logs demo", result{1, "", "engine demo-e-0 does not run: volume demo is not attached; name the node"}},
		{"engine logs demo --node node-1", result{1, "", "node node-1 has no log of demo-e-0"}},
		{"engine logs busy --node node-2", result{1, "", "no instance manager runs on node-2"}},
		{"engine logs", result{2, "", "the name of the volume or engine is missing"}},
		{"engine logs busy --tail 0", result{2, "", "--tail 0: want a number of lines"}},
		{"engine log busy", result{2, "", "did you mean logs?"}},
	} {
		// A process is listed before what it prints is in its log.
		wait.For(t, "ankole "+row.args, func() error {
			got := b.run(strings.Fields(row.args)...)
			if got.status != row.want.status || got.out != row.want.out || !strings.Contains(got.err, row.want.err) {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}

	t.Run("following", func(t *testing.T) {
		var out safeBuffer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"--server", b.url, "engine", "logs", "busy", "--follow"}, strings.NewReader(""),
				&out, &out)
		}()
		wait.Until(t, "what it has to print", func() bool {
			select {
			case status := <-ended:
				t.Fatalf("ended with %d: %s", status, out.String())
			default:
			}
			return out.String() == "first\nengine\n"
		})
		cancel()
		if status := <-ended; status != exitOK || out.String() != "first\nengine\n" {
			t.Errorf("interrupted: %d %s", status, out.String())
		}
	})
}

// safeBuffer is written by one goroutine and read by another.
type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
