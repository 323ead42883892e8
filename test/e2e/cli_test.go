package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/cli"
	"ankole.storage/test/testcluster"
)

// ankole runs a command line against the cluster.
func (c *cluster) ankole(t *testing.T, args ...string) (status int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = cli.Main(append([]string{"--server", c.API, "--token-file", c.TokenFile}, args...), strings.NewReader(""),
		&stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// TestCommandLine is what a user does first, in the user's words: the demonstration, again after a
// restart of everything, and the life of a volume of one's own.
func TestCommandLine(t *testing.T) {
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace})
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
	t.Run("no warning", func(t *testing.T) { quietStart(t, c) })
	t.Run("demonstration", func(t *testing.T) { demo(t, "Creating volume demo", "Writing a tree of files") })
	t.Run("nobody is answered in plaintext", func(t *testing.T) { c.answersNobodyInPlaintext(t) })
	t.Run("strangers get nothing", func(t *testing.T) { c.strangerGetsNothing(t, "demo") })
	t.Run("demonstration after a restart", func(t *testing.T) {
		c.Stop(t)
		c.Restart(t)
		c.connect()
		demo(t, "is there from an earlier time", "Files of an earlier time are on it")
	})
	t.Run("deleted certificate", func(t *testing.T) { c.certificateIsMadeAgain(t) })
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

// quietStart: a fresh cluster on which nothing is wrong, with a volume that is made, attached,
// detached and deleted, warns of nothing, neither by events nor in the status.
func quietStart(t *testing.T, c *cluster) {
	c.managersRun()
	c.eventually("the cluster is healthy", func(context.Context) error {
		if status, out, stderr := c.ankole(t, "status", "--check"); status != 0 {
			return fmt.Errorf("status %d\n%s\n%s", status, out, stderr)
		}
		return nil
	})
	for _, step := range []string{"create quiet --size 64Mi", "attach quiet", "detach quiet", "delete quiet --yes"} {
		if status, out, stderr := c.ankole(t, append([]string{"volume"}, strings.Fields(step)...)...); status != 0 {
			t.Fatalf("volume %s: status %d\n%s\n%s", step, status, out, stderr)
		}
	}
	if _, out, _ := c.ankole(t, "status"); strings.Contains(out, "Recent warnings") {
		t.Errorf("the status of a healthy cluster warns:\n%s", out)
	}
	events, err := kubernetesOf(t, c).CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) == 0 {
		t.Error("there is no event at all: this shows nothing")
	}
	for _, e := range events.Items {
		// The kubelet says so of every container that is not ready at its first probe.
		if e.Type == corev1.EventTypeWarning && e.Reason != "Unhealthy" {
			t.Errorf("%s %s of %s warns: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Source.Component, e.Reason,
				e.Message)
		}
	}
}
