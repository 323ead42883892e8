package e2e

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
	"ankole.storage/ui"
)

// webUI: what ui/browser/run.mjs does with the web UI in a browser holds on a cluster. Variable
// ANKOLE_SHOTS names a folder for pictures of the pages.
func webUI(t *testing.T, c *cluster) {
	node, err := exec.LookPath("node")
	if err != nil {
		lack.Skip(t, "the web UI in a browser: Node is missing")
	}
	var chrome string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chrome = path
			break
		}
	}
	if chrome == "" {
		lack.Skip(t, "the web UI in a browser: chromium is missing (apt-get install chromium)")
	}
	project := filepath.Join("..", "..", "ui")
	if _, err := os.Stat(filepath.Join(project, "node_modules", "playwright-core")); err != nil || !ui.Built() {
		lack.Skip(t, "the web UI in a browser: it is not built, or its packages are not installed (make build)")
	}
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSuffix(strings.TrimSuffix(c.API, "/"), "/v1")
	cmd := exec.CommandContext(t.Context(), node, "browser/run.mjs")
	cmd.Dir = project
	cmd.Env = append(os.Environ(), "URL="+address, "TOKEN="+strings.TrimSpace(string(token)), "LOGIN="+c.LoginPage,
		"VIEWER="+viewerToken(t, c),
		"CHROME="+chrome, "SHOTS="+os.Getenv("ANKOLE_SHOTS"), fmt.Sprintf("LIMIT=%d", int(longest.Seconds())))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var why string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		if strings.HasPrefix(lines.Text(), "FAILED: ") {
			why = lines.Text()
		}
	}
	if err := cmd.Wait(); err != nil {
		if strings.Contains(why, "Timeout ") {
			wait.RanOut(t, "the web UI")
		}
		t.Fatal(cmp.Or(why, err.Error()))
	}
}

// viewerToken is one of an account that may read and nothing else.
func viewerToken(t *testing.T, c *cluster) string {
	t.Helper()
	clients, meta := kubernetesOf(t, c), metav1.ObjectMeta{Name: "webui-viewer", Namespace: namespace}
	accounts := clients.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = clients.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "longhorn-view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: meta.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := authenticationv1.TokenRequestSpec{Audiences: []string{"longhorn-backend"}}
	r, err := accounts.CreateToken(t.Context(), meta.Name, &authenticationv1.TokenRequest{Spec: spec},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}
