package standalonetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/host/patience"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

// ownCluster starts a cluster that the test may break.
func ownCluster(t *testing.T, o testcluster.Options) *space {
	t.Helper()
	o.Images = images()
	if o.StopGrace == 0 {
		o.StopGrace = 2 * time.Second
	}
	o.Permit = append(o.Permit, testcluster.Restarts)
	c := testcluster.Start(t, o)
	return spaceOn(t, c, clientOf(t, c))
}

func daemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(name, nil).Spec},
		},
	}
}

// waitDaemonSet waits until all Pods of a DaemonSet are ready and returns them by node.
func (s *space) waitDaemonSet(name string, want int) map[string]*v1.Pod {
	s.t.Helper()
	var out map[string]*v1.Pod
	wait.For(s.t, "daemonset "+name, func() error {
		list, err := s.client.CoreV1().Pods(s.name).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		out = map[string]*v1.Pod{}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp == nil && ready(p) {
				out[p.Spec.NodeName] = p
			}
		}
		if len(out) != want {
			return fmt.Errorf("%d of %d ready", len(out), want)
		}
		return nil
	})
	return out
}

// TestRestartKeepsEverything: objects, addresses and Pods survive a stop and a start; a bare Pod
// that must not restart is failed, as on a node that was rebooted.
func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	s := ownCluster(t, testcluster.Options{Nodes: 2})
	if _, err := s.client.AppsV1().DaemonSets(s.name).Create(t.Context(), daemonSet("agent"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pod("bare", nil, policy(v1.RestartPolicyNever))
	s.pod("done", []string{"exit", "0"}, policy(v1.RestartPolicyNever))
	s.waitPod("bare", "is ready", ready)
	s.waitPod("done", "succeeds", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded })
	before := s.waitDaemonSet("agent", 2)
	api := s.c.KubeAPI

	s.c.Stop(t)
	s.c.Restart(t)
	if s.c.KubeAPI != api {
		t.Errorf("API server moved from %s to %s", api, s.c.KubeAPI)
	}
	for node, old := range before {
		p := s.waitPod(old.Name, "runs again", func(p *v1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
		if p.UID != old.UID {
			t.Errorf("Pod on %s was replaced", node)
		}
		if end := main0(p).LastTerminationState.Terminated; end == nil || end.ExitCode != 255 || end.Reason != "Unknown" {
			t.Errorf("last state %+v, want what a reboot leaves", end)
		}
	}
	p := s.waitPod("bare", "is failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if end := main0(p).State.Terminated; end == nil || end.ExitCode != 255 {
		t.Errorf("state %+v", main0(p).State)
	}
	s.waitPod("done", "stays as it ended", func(p *v1.Pod) bool {
		return p.Status.Phase == v1.PodSucceeded && main0(p).State.Terminated.ExitCode == 0
	})
	t.Logf("start again took %.1f s", s.c.StartupSeconds)
}

// TestKill9LeavesNoOrphans: after SIGKILL of the whole cluster its containers die at once, and what
// escaped them dies at the next start.
func TestKill9LeavesNoOrphans(t *testing.T) {
	t.Parallel()
	s := ownCluster(t, testcluster.Options{Nodes: 1})
	s.pod("family", []string{"spawn"})
	grand := grandchild(t, s, "family")
	s.waitPod("family", "is known to run", ready)
	parent := parentOf(t, s)
	s.c.Kill9()
	waitDead(t, parent)
	s.c.Restart(t)
	waitDead(t, grand)
	s.waitPod("family", "runs again", func(p *v1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
}

// parentOf finds the first process of the only container of a cluster: the only child of the
// cluster's process.
func parentOf(t *testing.T, s *space) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		text := string(data)
		var state string
		var pid, parent int
		if _, err := fmt.Sscan(text, &pid); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(text[strings.LastIndexByte(text, ')')+1:], &state, &parent); err == nil && parent == s.c.PID {
			return pid
		}
	}
	t.Fatalf("process %d has no child", s.c.PID)
	return 0
}

// TestStopIsBounded: Pods that ignore SIGTERM do not hold up the end for longer than --stop-grace:
// Stop waits less than their hour.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	s := ownCluster(t, testcluster.Options{Nodes: 1})
	hour := int64(3600)
	s.pod("stubborn", []string{"stubborn"}, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &hour })
	s.waitLog("stubborn", "serving")
	child := parentOf(t, s)
	s.c.Stop(t)
	waitDead(t, child)
}

// TestDaemonSetsEndFirst: when a cluster stops, other Pods are told to end only when those of
// DaemonSets have ended.
func TestDaemonSetsEndFirst(t *testing.T) {
	t.Parallel()
	s := ownCluster(t, testcluster.Options{Nodes: 1, StopGrace: time.Minute})
	file := filepath.Join(t.TempDir(), "told")
	set := daemonSet("agent")
	set.Spec.Template.Spec = podSpec("agent", []string{"alone", file}).Spec
	if _, err := s.client.AppsV1().DaemonSets(s.name).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var agent string
	for _, p := range s.waitDaemonSet("agent", 1) {
		agent = p.Name
	}
	s.waitLog(agent, "serving")
	s.pod("other", []string{"tell", file})
	s.waitLog("other", "serving")
	s.c.Stop(t)
	logs, err := filepath.Glob(filepath.Join(s.c.Dir, "nodes", "*", "logs", s.name+"_"+agent, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%q, %v", logs, err)
	}
	out, err := os.ReadFile(logs[0])
	if err != nil || !strings.Contains(string(out), "alone: true") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the other Pod was not told to end: %v", err)
	}
}

// TestNodeLoss: a killed node becomes NotReady with its processes gone, and comes back.
func TestNodeLoss(t *testing.T) {
	t.Parallel()
	s := ownCluster(t, testcluster.Options{Nodes: 2, NodeGrace: 6 * time.Second})
	s.pod("victim", []string{"spawn"}, on("node-2"))
	pid := grandchild(t, s, "victim")
	s.waitPod("victim", "is known to run", ready)
	s.c.KillNode(t, 2)
	waitDead(t, pid)
	waitNode := func(what string, want v1.ConditionStatus) {
		t.Helper()
		wait.For(t, "node-2 "+what, func() error {
			n, err := s.client.CoreV1().Nodes().Get(context.Background(), "node-2", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range n.Status.Conditions {
				if c.Type == v1.NodeReady && c.Status == want {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", n.Status.Conditions)
		})
	}
	waitNode("is lost", v1.ConditionUnknown)
	s.waitPod("victim", "is not ready", func(p *v1.Pod) bool { return !ready(p) })
	s.c.StartNode(t, 2)
	waitNode("is back", v1.ConditionTrue)
	s.waitPod("victim", "runs again", func(p *v1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
}

// TestRefusals: each refused start says what to change.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	busy := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	network := s.c.Nodes[0].Address[:strings.LastIndexByte(s.c.Nodes[0].Address, '.')] + ".0"
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"same folder", []string{"--dir", s.c.Dir},
			[]string{"is served by another", "pid " + strconv.Itoa(s.c.PID), "--dir"}},
		{"busy port", []string{"--kube-port", busy}, []string{"port " + busy, "in use", "--kube-port"}},
		{"busy network", []string{"--node-network", network},
			[]string{"port 10250 on " + s.c.Nodes[0].Address, "--node-network"}},
		{"no nodes", []string{"--nodes", "0"}, []string{"--nodes 0"}},
		{"too many nodes", []string{"--nodes", "251"}, []string{"--nodes 251"}},
		{"public network", []string{"--node-network", "10.0.0.0"}, []string{"--node-network", "127.0.1.0"}},
		{"API's own network", []string{"--node-network", "127.0.0.0"}, []string{"--node-network"}},
		{"odd quantity", []string{"--node-cpu", "many"}, []string{"--node-cpu"}},
		{"odd port", []string{"--api-port", "70000"}, []string{"--api-port 70000"}},
		{"no images", []string{"--images", "/nonexistent"}, []string{"--images"}},
		{"odd output", []string{"--output", "xml"}, []string{"--output"}},
		{"short grace", []string{"--node-grace", "1s"}, []string{"--node-grace"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			program, err := testcluster.Program()
			if err != nil {
				t.Fatal(err)
			}
			dir, err := os.MkdirTemp("", "ankole-refuse-")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			args := append([]string{"--dir", dir, "--node-network", "127.250.1.0", "--no-manager"}, tc.args...)
			ctx, cancel := context.WithTimeout(t.Context(), patience.Of(waitTimeout))
			defer cancel()
			out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
			if ctx.Err() != nil {
				wait.RanOut(t, "the refusal")
			}
			if err == nil || ctx.Err() != nil {
				t.Fatalf("was not refused: %v\n%s", err, out)
			}
			for _, w := range tc.want {
				if !strings.Contains(string(out), w) {
					t.Errorf("message %q does not say %q", out, w)
				}
			}
		})
	}
}

// TestDamagedState: files that cannot be read are named, with what to do, and stay as they are.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Nodes: 1, Images: images()})
	c.Stop(t)
	args := slices.DeleteFunc(c.Arguments(), func(a string) bool { return a == "--exit-with-stdin" })
	for _, tc := range []struct {
		pattern string
		want    []string
	}{
		{"etcd/member/wal/*.wal", []string{"etcd cannot serve the data in", filepath.Join(c.Dir, "etcd"),
			"move the folder away"}},
		{"etcd/member/snap/db", []string{"etcd cannot serve the data in", filepath.Join(c.Dir, "etcd"),
			"move the folder away"}},
		{"pki/ca.crt", []string{"certificates", filepath.Join(c.Dir, "pki"), "remove the directory"}},
		{"ports.json", []string{"ports.json", "remove it"}},
	} {
		files, err := filepath.Glob(filepath.Join(c.Dir, tc.pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file %s, %v", tc.pattern, err)
		}
		file := files[0]
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(strings.Repeat("garbage!", 1024)), good...)[:max(len(good), 64)]
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		program, err := testcluster.Program()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience.Of(waitTimeout))
		out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		timedOut := ctx.Err() != nil
		cancel()
		if timedOut {
			wait.RanOut(t, "the refusal")
		}
		if err == nil || timedOut {
			t.Errorf("%s: was not refused: %v\n%s", tc.pattern, err, out)
		}
		for _, w := range tc.want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: message %q does not say %q", tc.pattern, out, w)
			}
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Restart(t)
}
