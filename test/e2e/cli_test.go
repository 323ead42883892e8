package e2e

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/cli"
	"ankole.storage/testcluster"
)

// ankole runs a command line against the cluster.
func (c *cluster) ankole(t *testing.T, args ...string) (status int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = cli.Main(append([]string{"--server", strings.TrimSuffix(c.API, "/v1")}, args...), strings.NewReader(""),
		&stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// TestCommandLine is what a user does first, in the user's words: the demonstration, again after a
// restart of everything, and the life of a volume of one's own.
func TestCommandLine(t *testing.T) {
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace,
		Args: []string{"--manager-arg=--mutual-tls"}})
	demo := func(t *testing.T, wanted ...string) {
		t.Helper()
		status, out, stderr := c.ankole(t, "demo")
		if status != 0 {
			t.Fatalf("status %d\n%s\n%s", status, out, stderr)
		}
		for _, want := range append(wanted, "SIGKILL to process", "healthy again after", "every byte is right",
			"every checksum is right", "Done.") {
			if !strings.Contains(out, want) {
				t.Errorf("the demonstration does not say %q:\n%s", want, out)
			}
		}
	}
	t.Run("demonstration", func(t *testing.T) { demo(t, "Creating volume demo", "Writing a tree of files") })
	t.Run("nobody is answered in plaintext", func(t *testing.T) { c.answersNobodyInPlaintext(t) })
	t.Run("demonstration after a restart", func(t *testing.T) {
		c.Stop(t)
		c.Restart(t)
		c.connect()
		demo(t, "is there from an earlier time", "Files of an earlier time are on it")
	})
	for _, step := range []struct {
		args   string
		status int
		text   string
	}{
		{"volume create mine --size 64Mi --replicas 2", 0, "volume mine created (64Mi, 2 replicas)"},
		{"volume create mine --size 64Mi", 1, "already exists"},
		{"volume attach mine --node node-2", 0, "volume mine attached to node-2"},
		{"volume attach mine --node node-1", 1, "already attached to node node-2"},
		{"volume get mine -o wide", 0, "node-2"},
		{"replica list mine", 0, "RW"},
		{"setting set default-replica-count 21", 1, "should be less than or equal to 20"},
		{"setting set replica-replenishment-wait-interval 30", 0, "is now 30"},
		{"volume detach mine", 0, "volume mine detached"},
		{"volume attach mine", 0, "volume mine attached to"},
		{"volume delete mine", 1, "add --yes to go on"},
		{"volume delete mine --yes", 0, "volume mine deleted"}, // While attached: that is allowed.
		{"volume get mine", 1, "list volumes with: ankole volume list"},
		{"node list", 0, "node-3"},
	} {
		status, out, stderr := c.ankole(t, strings.Fields(step.args)...)
		if status != step.status || !strings.Contains(out+stderr, step.text) {
			t.Errorf("ankole %s: status %d, want %d and %q\n%s%s", step.args, status, step.status, step.text, out, stderr)
		}
	}
}
