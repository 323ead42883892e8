package standalonetest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/testcluster"
)

// serveManager plays the manager: it answers on the Pod's address and says on which node it is.
func serveManager(args []string) int {
	fmt.Println("manager", strings.Join(args, " "))
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/where", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, os.Getenv("NODE_NAME"))
	})
	fmt.Println(http.ListenAndServe(os.Getenv("POD_IP")+":9500", mux))
	return 1
}

// TestManager: the cluster deploys the manager on every node, is ready when all answer, and keeps
// one address in front of them whichever of them lives.
func TestManager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	image := filepath.Join(dir, "ankole-manager-dev")
	if err := os.MkdirAll(filepath.Join(image, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(image, "bin", "manager")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "image.json"), []byte(`{"env":["`+roleVariable+`=1"]}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	c := testcluster.Start(t, testcluster.Options{Nodes: 2, Images: dir, Manager: true, NodeGrace: 6 * time.Second,
		StopGrace: time.Second})
	where := func() string {
		client := &http.Client{Timeout: waitTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get(c.API + "/where")
		if err != nil {
			return err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	first := where()
	if first != "node-1" && first != "node-2" {
		t.Fatalf("the API's address answered %q", first)
	}
	k := 1
	if first == "node-2" {
		k = 2
	}
	c.KillNode(t, k)
	// A connection that was under way to the lost node may break; the next one goes to the other.
	second := where()
	for deadline := time.Now().Add(waitTimeout); (!strings.HasPrefix(second, "node-") || second == first) &&
		time.Now().Before(deadline); {
		second = where()
	}
	if !strings.HasPrefix(second, "node-") || second == first {
		t.Errorf("after the loss of %s the answer is %q", first, second)
	}
	c.StartNode(t, k)
	c.Stop(t)
	c.Restart(t)
	if w := where(); !strings.HasPrefix(w, "node-") {
		t.Errorf("after a restart the answer is %q", w)
	}
	client := clientOf(t, c)
	pods, err := client.CoreV1().Pods("longhorn-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 2 {
		t.Fatalf("%d manager Pods, %v", len(pods.Items), err)
	}
	log, err := os.ReadFile(filepath.Join(c.Dir, "nodes", pods.Items[0].Spec.NodeName, "logs",
		"longhorn-system_"+pods.Items[0].Name, "longhorn-manager.log"))
	want := "manager daemon --engine-image ankole/engine:dev --instance-manager-image ankole/instance-manager:dev " +
		"--manager-image ankole/manager:dev --service-account longhorn-service-account --webhook-url https://127.0.0.1:"
	if err != nil || !strings.Contains(string(log), want) {
		t.Errorf("the manager was started as %q, %v", log, err)
	}
}
