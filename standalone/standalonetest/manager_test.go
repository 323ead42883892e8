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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

// serveManager plays a controller or an agent: it answers on the Pod's address and says on which
// node it is.
func serveManager(args []string) int {
	fmt.Println("manager", strings.Join(args, " "))
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/where", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, os.Getenv("NODE_NAME"))
	})
	go func() { fmt.Println(http.ListenAndServe(os.Getenv("POD_IP")+":9504", mux)) }()
	fmt.Println(http.ListenAndServe(os.Getenv("POD_IP")+":9500", mux))
	return 1
}

// TestManager: the cluster deploys agents on every node and controllers, is ready when all answer,
// and keeps one address in front of the controllers whichever of them lives.
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
		StopGrace: time.Second, Args: []string{"--no-kinds"}})
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
	wait.For(t, "after the loss of "+first+" the other one answers", func() error {
		if second := where(); !strings.HasPrefix(second, "node-") || second == first {
			return fmt.Errorf("the answer is %q", second)
		}
		return nil
	})
	c.StartNode(t, k)
	c.Stop(t)
	c.Restart(t)
	wait.For(t, "after a restart a manager answers", func() error {
		if w := where(); !strings.HasPrefix(w, "node-") {
			return fmt.Errorf("the answer is %q", w)
		}
		return nil
	})
	client := clientOf(t, c)
	wait.For(t, "every manager has logged how it was started", func() error {
		pods, err := client.CoreV1().Pods("longhorn-system").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 4 {
			return fmt.Errorf("%d Pods of agents and controllers, %v", len(pods.Items), err)
		}
		for i := range pods.Items {
			if err := startedAsManager(c.Dir, &pods.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// startedAsManager says by its log whether a Pod was started with the arguments of an agent or a
// controller.
func startedAsManager(dir string, pod *corev1.Pod) error {
	log, err := os.ReadFile(filepath.Join(dir, "nodes", pod.Spec.NodeName, "logs",
		"longhorn-system_"+pod.Name, pod.Spec.Containers[0].Name+".log"))
	want := "manager daemon\n"
	if pod.Labels["app"] == "longhorn-ui" {
		want = "manager control --engine-image ankole/engine:dev --instance-manager-image ankole/instance-manager:dev " +
			"--backing-image-manager-image ankole/backing-image-manager:dev --manager-image ankole/manager:dev " +
			"--service-account longhorn-service-account --webhook-url https://127.0.0.1:"
	}
	if err == nil && !strings.Contains(string(log), want) {
		err = fmt.Errorf("%s was started as %q", pod.Name, log)
	}
	return err
}
