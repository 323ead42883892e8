package standalonetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

const (
	// waitTimeout of every request: generous, because the machine runs other tests too.
	waitTimeout = 60 * time.Second
	testImage   = "test/pod:1"
)

// work is a folder of this run: the built program and the images.
var work string

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(testpod(os.Args[1:]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if work, err = os.MkdirTemp("", "ankole-st-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "standalonetest:", err)
		return 1
	}
	code := m.Run()
	shared.stop()
	return code
}

// prepare builds the program under test, unless one is named, and an image made of this test
// binary.
func prepare() error {
	if os.Getenv(testcluster.BinVariable) == "" {
		bin := filepath.Join(work, "bin")
		build := exec.Command("go", "build", "-o", filepath.Join(bin, testcluster.ProgramName), "../cmd/ankole-standalone")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build: %w", err)
		}
		if err := os.Setenv(testcluster.BinVariable, bin); err != nil {
			return err
		}
	}
	dir := filepath.Join(images(), "test-pod-1")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join(dir, "bin", "testpod")); err != nil {
		return err
	}
	data, err := json.Marshal(map[string][]string{
		"entrypoint": {"testpod"}, "cmd": {"serve"}, "env": {roleVariable + "=1"},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "image.json"), data, 0o644)
}

func images() string { return filepath.Join(work, "images") }

// sharedCluster lives as long as the test binary.
type sharedCluster struct {
	once   sync.Once
	tb     *cleanupTB
	c      *testcluster.Cluster
	client kubernetes.Interface
}

var shared sharedCluster

// cleanupTB collects the clean-ups of something that outlives a single test.
type cleanupTB struct {
	testing.TB
	cleanups []func()
}

func (c *cleanupTB) Cleanup(fn func()) { c.cleanups = append(c.cleanups, fn) }

func (s *sharedCluster) stop() {
	if s.tb == nil {
		return
	}
	for i := len(s.tb.cleanups) - 1; i >= 0; i-- {
		s.tb.cleanups[i]()
	}
}

// space is a namespace of the shared cluster that belongs to one test.
type space struct {
	t      *testing.T
	c      *testcluster.Cluster
	client kubernetes.Interface
	name   string
}

// newSpace gives a test its namespace on the shared cluster.
func newSpace(t *testing.T) *space {
	t.Helper()
	shared.once.Do(func() {
		shared.tb = &cleanupTB{TB: t}
		shared.c = testcluster.Start(shared.tb, testcluster.Options{
			Nodes: 2, Images: images(), StopGrace: 2 * time.Second, Permit: []string{testcluster.Restarts},
		})
		shared.client = clientOf(t, shared.c)
	})
	if shared.client == nil {
		t.Fatal("the shared cluster did not start")
	}
	return spaceOn(t, shared.c, shared.client)
}

// spaceOn makes a namespace on any cluster and waits for its service account.
func spaceOn(t *testing.T, c *testcluster.Cluster, client kubernetes.Interface) *space {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 40)] + "-"}}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &space{t: t, c: c, client: client, name: ns.Name}
	wait.For(t, "service account default", func() error {
		_, err := client.CoreV1().ServiceAccounts(s.name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	t.Cleanup(func() {
		zero := int64(0)
		_ = client.CoreV1().Pods(s.name).DeleteCollection(context.Background(),
			metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
	})
	return s
}

func clientOf(t *testing.T, c *testcluster.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// option changes a Pod before it is created.
type option func(*v1.Pod)

// pod creates a Pod of one container that runs testpod with args.
func (s *space) pod(name string, args []string, opts ...option) *v1.Pod {
	s.t.Helper()
	p := podSpec(name, args, opts...)
	created, err := s.client.CoreV1().Pods(s.name).Create(s.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return created
}

func podSpec(name string, args []string, opts ...option) *v1.Pod {
	grace := int64(2)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []v1.Container{{Name: "main", Image: testImage, Args: args}},
		},
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

// waitPod waits until a Pod meets a condition and returns it.
func (s *space) waitPod(name, what string, ok func(*v1.Pod) bool) *v1.Pod {
	s.t.Helper()
	var got *v1.Pod
	wait.For(s.t, "pod "+name+" "+what, func() error {
		p, err := s.client.CoreV1().Pods(s.name).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !ok(p) {
			status, _ := json.Marshal(p.Status)
			return fmt.Errorf("status %s", status)
		}
		got = p
		return nil
	})
	return got
}

func (s *space) waitGone(name string) {
	s.t.Helper()
	wait.For(s.t, "pod "+name+" gone", func() error {
		p, err := s.client.CoreV1().Pods(s.name).Get(s.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("still there, phase %s", p.Status.Phase)
	})
}

func ready(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func main0(p *v1.Pod) v1.ContainerStatus {
	if len(p.Status.ContainerStatuses) == 0 {
		return v1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[0]
}

// logs of a Pod's container as `kubectl logs` gets them.
func (s *space) logs(name string, o v1.PodLogOptions) (string, error) {
	data, err := s.client.CoreV1().Pods(s.name).GetLogs(name, &o).DoRaw(s.t.Context())
	return string(data), err
}

// waitLog waits until the log of a Pod contains text and returns it.
func (s *space) waitLog(name, text string) string {
	s.t.Helper()
	var log string
	wait.For(s.t, fmt.Sprintf("log of %s with %q", name, text), func() error {
		var err error
		log, err = s.logs(name, v1.PodLogOptions{})
		if err == nil && !strings.Contains(log, text) {
			err = fmt.Errorf("log is %q", log)
		}
		return err
	})
	return log
}

func policy(p v1.RestartPolicy) option { return func(pod *v1.Pod) { pod.Spec.RestartPolicy = p } }

func on(node string) option { return func(pod *v1.Pod) { pod.Spec.NodeName = node } }

// waitEvent waits for an event about a Pod.
func (s *space) waitEvent(pod, reason, text string) {
	s.t.Helper()
	wait.For(s.t, "event "+reason+" of "+pod, func() error {
		list, err := s.client.CoreV1().Events(s.name).List(s.t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("events: %s", strings.Join(seen, "; "))
	})
}

var resourceMilli = resource.MustParse("1m")

func resourceQuantity(s string) resource.Quantity { return resource.MustParse(s) }
