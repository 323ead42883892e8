package cli

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: plain
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1"}}
contexts:
- {name: plain, context: {cluster: c, user: token}}
- {name: file, context: {cluster: c, user: file}}
- {name: plugin, context: {cluster: c, user: plugin}}
- {name: silent, context: {cluster: c, user: silent}}
- {name: failing, context: {cluster: c, user: failing}}
- {name: certificate, context: {cluster: c, user: certificate}}
- {name: stray, context: {cluster: c, user: gone}}
users:
- {name: token, user: {token: of-admin}}
- {name: file, user: {tokenFile: token}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: ./plugin, args: [of], env: [{name: WHO, value: admin}]}}}
- {name: silent, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: ./plugin, args: ["", silent]}}}
- {name: failing, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: ./plugin, args: ["", failing]}}}
- {name: certificate, user: {client-certificate-data: eA==, client-key-data: eA==}}
`

const pluginText = `#!/bin/sh
case "$2" in
silent) echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{}}'; exit ;;
failing) echo 'no browser' >&2; exit 3 ;;
esac
case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 4 ;; esac
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'$1-$WHO'"}}'
`

// TestCredentials: every way to name a token, and what is said without one or the right.
func TestCredentials(t *testing.T) {
	reviews := &resttest.Reviews{Rights: map[string][]string{"admin": {"*"}, "reader": {"list volumes"}}}
	c := resttest.Client(t, reviews.Funcs(), cluster()...)
	s, err := rest.New(rest.Config{Config: serve.Config{Client: c, Logger: slog.New(slog.DiscardHandler),
		Judge:    access.NewJudge(c, lh.Namespace, nil),
		Sessions: &access.Sessions{Keys: &access.Keyring{Client: c, Namespace: lh.Namespace}}}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	b := &bed{t: t, url: web.URL}
	dir := t.TempDir()
	for name, text := range map[string]string{"config": kubeconfigText, "plugin": pluginText, "token": "of-admin\n",
		"empty": "\n", "broken": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	in := func(args string) string { return strings.ReplaceAll(args, "@", dir+"/") }
	var refused strings.Builder
	for _, tt := range []struct {
		args, env string
		status    int
	}{
		{"volume list", "", 1},
		{"volume list", "of-reader", 0},
		{"volume list", "of-stranger", 1},
		{"volume list", "wrong", 1},
		{"volume delete busy", "of-reader", 1},
		{"volume list --token-file @token", "", 0},
		{"volume list --token-file @token", "of-stranger", 0},
		{"volume list --token-file @none", "", 1},
		{"volume list --token-file @empty", "", 1},
		{"volume list --kubeconfig @config", "", 0},
		{"volume list --kubeconfig @config --context file", "", 0},
		{"volume list --kubeconfig @config --context plugin", "", 0},
		{"volume list --kubeconfig @config --context silent", "", 2},
		{"volume list --kubeconfig @config --context failing", "", 2},
		{"volume list --kubeconfig @config --context certificate", "", 2},
		{"volume list --kubeconfig @config --context stray", "", 2},
		{"volume list --kubeconfig @config --context none", "", 2},
		{"volume list --kubeconfig @broken", "", 2},
		{"volume list --kubeconfig @none", "", 2},
		{"volume list --context plain", "", 2},
		{"volume list --kubeconfig @config --token-file @token", "", 2},
	} {
		t.Setenv(EnvToken, tt.env)
		r := b.run(strings.Fields(in(tt.args))...)
		if r.status != tt.status || r.status == exitOK && !strings.Contains(r.out, "busy") {
			t.Errorf("%s with %q: status %d\n%s%s", tt.args, tt.env, r.status, r.out, r.err)
		}
		if r.status != exitOK {
			fmt.Fprintf(&refused, "$ ANKOLE_TOKEN=%s ankole %s\n%s[%d]\n\n", tt.env, tt.args,
				strings.ReplaceAll(r.err, dir+"/", "@"), r.status)
		}
	}
	golden(t, "errors-of-credentials", refused.String())
	t.Setenv(EnvToken, "")
	t.Setenv(EnvTokenFile, in("@none"))
	if r := b.run("volume", "list"); r.status != exitError || !strings.Contains(r.err, in("@none")) {
		t.Errorf("a file that is not there: status %d\n%s%s", r.status, r.out, r.err)
	}
	t.Setenv(EnvTokenFile, in("@token"))
	if r := b.run("volume", "list"); r.status != exitOK {
		t.Errorf("the file that is named: status %d\n%s%s", r.status, r.out, r.err)
	}
	t.Setenv(EnvToken, "wrong")
	if r := b.run("volume", "list"); r.status != exitError {
		t.Errorf("a token comes before a file that is named: status %d\n%s", r.status, r.out)
	}
}
