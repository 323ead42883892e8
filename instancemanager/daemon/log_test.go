package daemon_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"ankole.storage/host/logwriter/logwritertest"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// TestNobodyReadsTheLog: whether nobody reads the Pod's output, or nobody ever will, the instance
// manager and its instances go on, and stop when they are told to.
func TestNobodyReadsTheLog(t *testing.T) {
	for name, output := range map[string]func(testing.TB) *os.File{"full": logwritertest.FullPipe,
		"broken": logwritertest.BrokenPipe} {
		t.Run(name, func(t *testing.T) {
			p := launchWriting(t, output(t), instancetest.Host(), nil, []string{"--logs-dir", t.TempDir()})
			const lines = 5000
			if _, err := p.client.ProcessCreate(t.Context(),
				p.spec(t, "chatty-e-0", instancetest.Print, "", 0, "--count", fmt.Sprint(lines))); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				p.create(t, fmt.Sprintf("demo-r-%d", i), instancetest.Serve)
			}
			if got := len(p.instances(t)); got != 21 {
				t.Errorf("%d instances run", got)
			}
			wait.Until(t, "what an instance prints is in its log", func() bool {
				n := 0
				err := p.client.ProcessLog(t.Context(), "chatty-e-0", client.LogOptions{}, func(string) error { n++; return nil })
				return err == nil && n == lines
			})
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := p.awaitEnd(t); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
