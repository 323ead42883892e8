package cli

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/cli/kube/kubetest"
)

// runPlugin runs a command line as kubectl does.
func runPlugin(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, err bytes.Buffer
	a := newApp(&out, &err)
	a.plugin, a.now = true, func() time.Time { return testNow }
	return result{a.run(ctx, args, strings.NewReader("")), out.String(), err.String()}
}

// TestPlugin: with nothing but a kubeconfig, all commands work, streams too; failures say what to
// do in the words of kubectl.
func TestPlugin(t *testing.T) {
	b := newBed(t, cluster()...)
	s := kubetest.New(t, b.url)
	t.Setenv("KUBECONFIG", s.Kubeconfig())
	if r := runPlugin(t, "volume", "list"); r.status != exitOK || r.out != b.ok("volume", "list") {
		t.Errorf("%+v", r)
	}
	wg := b.attachSoon("demo", "/dev/longhorn/demo")
	r := runPlugin(t, "volume", "attach", "demo", "--timeout", "30s", "-n", "longhorn-system", "--context", "plugin")
	wg.Wait()
	if r.status != exitOK || !strings.Contains(r.out, "/dev/longhorn/demo") {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"volume get nope":                       "volume nope not found; list volumes with: kubectl ankole volume list\n",
		"volume list --context weak":            "needs the right to create serviceaccounts/token of longhorn-admin",
		"volume list --namespace other":         "namespace other of context admin has no managers; name another namespace",
		"volume list --context none":            `kubeconfig: context "none" does not exist`,
		"volume list --account gone":            "serviceaccounts gone not found",
		"volume list --server x --port-forward": "--server and --port-forward are two ways to the API; give one",
	} {
		if r := runPlugin(t, strings.Fields(args)...); r.status == exitOK || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if r := runPlugin(t, "volume", "lst"); !strings.Contains(r.err, "usage: kubectl ankole volume [flags]\nhelp: kubectl ankole volume --help") {
		t.Errorf("%+v", r)
	}
	if r := runPlugin(t, "status"); r.status != exitOK || !strings.Contains(r.out,
		"\n      kubectl ankole volume describe busy\n") ||
		!strings.Contains(r.out, "look at them with: kubectl ankole orphan list") {
		t.Errorf("%+v", r)
	}
	// A server that is named is asked itself.
	if r := runPlugin(t, "--server", "http://127.0.0.1:1", "volume", "list"); r.status == exitOK ||
		!strings.Contains(r.err,
			"no answer from http://127.0.0.1:1") {
		t.Errorf("%+v", r)
	}
	t.Setenv(EnvServer, b.url)
	before := s.Forwards()
	if r := runPlugin(t, "volume", "list", "-o", "name"); r.status != exitOK || s.Forwards() != before {
		t.Errorf("%+v, %d connections", r, s.Forwards()-before)
	}
}

// TestPortForward: the same without kubectl, and what it says where the managers ask for a token
// that the kubeconfig has not.
func TestPortForward(t *testing.T) {
	web := closedServer(t)
	s := kubetest.New(t, web)
	file := s.Kubeconfig()
	for _, tt := range []struct {
		args, token string
		status      int
		want        string
	}{
		{"", "", exitOK, "busy"},
		{" --context nobody", "", exitOK, "busy"},
		{" --context nobody --account viewer", "", exitOK, "busy"},
		{" --context weak", "", exitError, "needs the right to create serviceaccounts/token of longhorn-admin"},
		{" --context nobody", "of-admin", exitOK, "busy"},
	} {
		t.Setenv(EnvToken, tt.token)
		r := runArgs(t.Context(), strings.Fields("--port-forward --kubeconfig "+file+" volume list"+tt.args)...)
		if r.status != tt.status || !strings.Contains(r.out+r.err, tt.want) {
			t.Errorf("%q: %+v, want %q", tt.args, r, tt.want)
		}
	}
	t.Setenv(EnvToken, "")
	r := runArgs(t.Context(), "--port-forward", "--kubeconfig", file, "--account", "gone", "volume", "list")
	golden(t, "errors-of-tokens", fmt.Sprintf("$ ankole --port-forward --account gone volume list\n%s[%d]\n", r.err, r.status))
	for _, flag := range []string{"--namespace", "--account"} {
		if r := runArgs(t.Context(), "volume", "list", flag, "x"); r.status != exitUsage ||
			!strings.Contains(r.err, "parts of --port-forward, which is missing") {
			t.Errorf("%+v", r)
		}
	}
	for name, want := range map[string]bool{"/usr/bin/kubectl-ankole": true, "kubectl-ankole.exe": true, "ankole": false} {
		if isPlugin(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

// TestTLS: a server with https is trusted by the authorities of this machine, or those of a file.
func TestTLS(t *testing.T) {
	b := newBed(t, cluster()...)
	to, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to))
	t.Cleanup(web.Close)
	dir := t.TempDir()
	ca, empty := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "empty")
	for file, text := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: web.Certificate().Raw}), empty: nil} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := runArgs(t.Context(), "--server", web.URL, "--ca-file", ca, "volume", "list"); r.status != exitOK {
		t.Errorf("%+v", r)
	}
	there := strings.NewReplacer("SECURE", web.URL, "PLAIN", b.url, "DIR", dir)
	back := strings.NewReplacer(web.URL, "SECURE", b.url, "PLAIN", dir, "DIR")
	var all strings.Builder
	for _, args := range []string{"SECURE", "SECURE --ca-file DIR/empty", "SECURE --ca-file DIR/none",
		"PLAIN --ca-file DIR/ca.pem"} {
		command := "volume list --server " + args
		r := runArgs(t.Context(), strings.Fields(there.Replace(command))...)
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", command, back.Replace(r.err), r.status)
	}
	golden(t, "errors-of-tls", all.String())
	t.Setenv(EnvCA, ca)
	wg := b.attachSoon("demo", "/dev/longhorn/demo")
	r := runArgs(t.Context(), "--server", web.URL, "volume", "attach", "demo", "--timeout", "30s")
	wg.Wait()
	if r.status != exitOK {
		t.Errorf("streams: %+v", r)
	}
	if r := runArgs(t.Context(), "--server", b.url, "volume", "list"); r.status != exitOK {
		t.Errorf("a file named for other servers: %+v", r)
	}
}
