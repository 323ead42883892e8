package e2e

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
	"ankole.storage/ui"
)

// webUI: what ui/browser/run.mjs does with the web UI in a browser holds on a cluster.
func webUI(t *testing.T, c *cluster) { browse(t, c, "run", "VIEWER="+viewerToken(t, c)) }

// browse runs a script of ui/browser. Variable ANKOLE_SHOTS names a folder for pictures of the
// pages.
func browse(t *testing.T, c *cluster, script string, environment ...string) {
	t.Helper()
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
	cmd := exec.CommandContext(t.Context(), node, "browser/"+script+".mjs")
	cmd.Dir = project
	cmd.Env = append(os.Environ(), "URL="+c.page(), "TOKEN="+strings.TrimSpace(string(token)), "LOGIN="+c.LoginPage,
		"CHROME="+chrome, "SHOTS="+os.Getenv("ANKOLE_SHOTS"), fmt.Sprintf("LIMIT=%d", int(longest.Seconds())))
	cmd.Env = append(cmd.Env, environment...)
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

// page is the address of the web UI, without a slash.
func (c *cluster) page() string { return strings.TrimSuffix(strings.TrimSuffix(c.API, "/"), "/v1") }

// TestWebUIActions: what ui/browser/actions.mjs does with volumes, nodes and backups holds, the
// locality of a volume among it; the test kills the process of a replica for it. So does what
// kind.mjs does without a mouse and on a narrow screen, what images.mjs and imagebackups.mjs do
// with backing images, encryption.mjs with encrypted volumes and images, and others.mjs what is
// done more seldom; that removes a node in the end.
// apiproxy.mjs uses the page through the proxy of an API server, frames.mjs measures long lists and
// what streams carry while nothing changes, and pictures.mjs takes pictures of every page.
func TestWebUIActions(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Images: engineImages(t)})
	c.managersRun()
	c.addEngineImages(engineNext)
	c.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	c.setting("replica-replenishment-wait-interval", "5")
	nodes := httptest.NewServer(onNodes(c))
	defer nodes.Close()
	viewer := "VIEWER=" + viewerToken(t, c)
	t.Run("D14", func(t *testing.T) {
		browse(t, c, "actions", "KILL="+nodes.URL+"/kill", "STORE="+t.TempDir(), "IMAGE="+engineNext)
	})
	t.Run("Kind", func(t *testing.T) { browse(t, c, "kind") })
	t.Run("Frames", func(t *testing.T) { browse(t, c, "frames") })
	t.Run("Images", func(t *testing.T) {
		web, _ := serveImage(t)
		browse(t, c, "images", "WEB="+web, viewer)
	})
	t.Run("Encryption", func(t *testing.T) {
		keys := &imageTest{cluster: c}
		keys.secret("webui-key", map[string]string{luks.SecretValue: passphrase, luks.SecretPBKDF: "pbkdf2",
			luks.SecretIterations: "1000"})
		keys.permit("webui-key")
		browse(t, c, "encryption", "STORE="+t.TempDir(), "SECRET=webui-key", "KEYOF="+nodes.URL+"/keyof")
	})
	t.Run("APIProxy", func(t *testing.T) {
		c.setting("api-host-names", apiServerName) // as docs/design/ui.md says
		browse(t, c, "apiproxy", "FRONT="+apiProxy(t, c.page()))
	})
	t.Run("ImageBackups", func(t *testing.T) { browse(t, c, "imagebackups", "STORE="+t.TempDir(), viewer) })
	// Variable ANKOLE_PICTURES names a folder for what docs/guide/ui.md shows.
	pictures := cmp.Or(os.Getenv("ANKOLE_PICTURES"), t.TempDir())
	t.Run("Pictures", func(t *testing.T) { browse(t, c, "pictures", "STORE="+t.TempDir(), "PICTURES="+pictures) })
	t.Run("Others", func(t *testing.T) {
		browse(t, c, "others", "STRAY="+nodes.URL+"/stray", "GONE="+nodes.URL+"/gone", "STORE="+t.TempDir())
	})
}

// onNodes does for scripts what they cannot do on nodes: /kill ends a replica's process, /stray
// leaves a directory of no replica beside one and, with gone, tells whether it is there no more;
// /gone ends a node and removes it from Kubernetes; /keyof names the Secret with the key of a
// PersistentVolume.
func onNodes(c *cluster) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/kill", func(_ http.ResponseWriter, r *http.Request) {
		c.kill(c.directoryOn(r.URL.Query().Get("volume"), r.URL.Query().Get("node")))
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, r *http.Request) {
		node := r.URL.Query().Get("node")
		c.StopNode(c.t, c.number(node))
		err := kubernetesOf(c.t, c).CoreV1().Nodes().Delete(r.Context(), node, metav1.DeleteOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/keyof", func(w http.ResponseWriter, r *http.Request) {
		volumes := kubernetesOf(c.t, c).CoreV1().PersistentVolumes()
		pv, err := volumes.Get(r.Context(), r.URL.Query().Get("volume"), metav1.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%s/%s", pv.Spec.CSI.NodeStageSecretRef.Namespace, pv.Spec.CSI.NodeStageSecretRef.Name)
	})
	mux.HandleFunc("/stray", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		own := c.directoryOn(q.Get("volume"), q.Get("node"))
		for _, dir := range c.replicaDirs(q.Get("volume")) {
			if filepath.Base(dir) != own {
				continue
			}
			stray := filepath.Join(filepath.Dir(dir), "lost-volume-1a2b3c4d")
			if q.Has("gone") {
				if _, err := os.Stat(stray); err == nil {
					http.Error(w, "it is there", http.StatusConflict)
				}
				return
			}
			hour := time.Now().Add(-time.Hour) // what was just changed is left alone
			if err := errors.Join(os.CopyFS(stray, os.DirFS(dir)), os.Chtimes(stray, hour, hour)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, filepath.Base(stray))
		}
	})
	return mux
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
