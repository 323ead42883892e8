package standalonetest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ankole.storage/test/wait"
)

// TestRestartPolicy runs containers to their end under each policy.
func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	for _, tc := range []struct {
		name     string
		policy   v1.RestartPolicy
		args     []string
		phase    v1.PodPhase
		restarts int32 // at least
		code     int32 // of the last ended run
		reason   string
	}{
		{"never-ok", v1.RestartPolicyNever, []string{"exit", "0"}, v1.PodSucceeded, 0, 0, "Completed"},
		{"never-fail", v1.RestartPolicyNever, []string{"exit", "3"}, v1.PodFailed, 0, 3, "Error"},
		{"onfailure-ok", v1.RestartPolicyOnFailure, []string{"exit", "0"}, v1.PodSucceeded, 0, 0, "Completed"},
		{"onfailure-third", v1.RestartPolicyOnFailure, []string{"count", "/data/n"}, v1.PodSucceeded, 2, 0, "Completed"},
		{"always-ok", v1.RestartPolicyAlways, []string{"exit", "0"}, v1.PodRunning, 2, 0, "Completed"},
		{"always-fail", v1.RestartPolicyAlways, []string{"exit", "5"}, v1.PodRunning, 2, 5, "Error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &space{t: t, c: s.c, client: s.client, name: s.name}
			s.pod(tc.name, tc.args, policy(tc.policy), emptyDir("/data"))
			p := s.waitPod(tc.name, "reaches its end", func(p *v1.Pod) bool {
				return p.Status.Phase == tc.phase && main0(p).RestartCount >= tc.restarts && lastEnd(p) != nil
			})
			end := lastEnd(p)
			if end.ExitCode != tc.code || end.Reason != tc.reason {
				t.Errorf("ended with %d %s, want %d %s", end.ExitCode, end.Reason, tc.code, tc.reason)
			}
			if end.FinishedAt.Before(&end.StartedAt) || end.ContainerID == "" {
				t.Errorf("times or container ID missing: %+v", end)
			}
		})
	}
}

func lastEnd(p *v1.Pod) *v1.ContainerStateTerminated {
	c := main0(p)
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

func emptyDir(at string) option {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "empty",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "empty", MountPath: at})
	}
}

// TestOverwrittenStatus: what somebody else says of a Pod that runs is put right, as after a
// suspended machine's node was declared silent.
func TestOverwrittenStatus(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("steady", nil)
	s.waitPod("steady", "is ready", ready)
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","reason":"NodeNotReady"}]}}`, kind)
		p, err := s.client.CoreV1().Pods(s.name).Patch(t.Context(), "steady", types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		if c := conditionOf(p, kind); c != v1.ConditionFalse {
			t.Fatalf("%s is %s after the patch", kind, c)
		}
		s.waitPod("steady", string(kind)+" is true again", func(p *v1.Pod) bool {
			return conditionOf(p, kind) == v1.ConditionTrue
		})
	}
}

func conditionOf(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

// TestCrashLoopBackOff: a failing container waits between runs, and says so.
func TestCrashLoopBackOff(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("crash", []string{"exit", "1"})
	p := s.waitPod("crash", "is in back-off", func(p *v1.Pod) bool {
		w := main0(p).State.Waiting
		return w != nil && w.Reason == "CrashLoopBackOff"
	})
	if m := main0(p).State.Waiting.Message; !strings.Contains(m, "restarting failed container=main pod=crash_"+s.name) {
		t.Errorf("message %q", m)
	}
}

// TestRunningStatus checks what a plain running Pod reports.
func TestRunningStatus(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("plain", nil, on("node-2"))
	p := s.waitPod("plain", "is ready", ready)
	addr := s.c.Nodes[1].Address
	if p.Status.PodIP != addr || p.Status.HostIP != addr || len(p.Status.PodIPs) != 1 {
		t.Errorf("addresses %q %q, want %q", p.Status.PodIP, p.Status.HostIP, addr)
	}
	if p.Status.StartTime == nil || p.Status.Phase != v1.PodRunning {
		t.Errorf("start time %v, phase %s", p.Status.StartTime, p.Status.Phase)
	}
	c := main0(p)
	if !strings.HasPrefix(c.ContainerID, "ankole://") || c.Started == nil || !*c.Started || c.State.Running == nil {
		t.Errorf("container status %+v", c)
	}
	for _, want := range []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
		found := false
		for _, got := range p.Status.Conditions {
			found = found || got.Type == want && got.Status == v1.ConditionTrue
		}
		if !found {
			t.Errorf("condition %s is not True", want)
		}
	}
}

// TestInitContainers run in order, before the main container, which waits for them.
func TestInitContainers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("init", []string{"exit", "0", "main"}, policy(v1.RestartPolicyNever), func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{
			{Name: "first", Image: testImage, Args: []string{"exit", "0", "one"}},
			{Name: "second", Image: testImage, Args: []string{"exit", "0", "two"}},
		}
	})
	p := s.waitPod("init", "succeeds", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded })
	for i, name := range []string{"first", "second"} {
		st := p.Status.InitContainerStatuses[i]
		if st.Name != name || st.State.Terminated == nil || !st.Ready {
			t.Errorf("init container %s: %+v", name, st)
		}
	}
	s.pod("init-fails", nil, policy(v1.RestartPolicyNever), func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "bad", Image: testImage, Args: []string{"exit", "4"}}}
	})
	p = s.waitPod("init-fails", "fails", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if w := main0(p).State.Waiting; w == nil || w.Reason != "PodInitializing" {
		t.Errorf("main container %+v, want it waiting", main0(p).State)
	}
}

// TestProbes: liveness restarts, readiness only marks, startup holds the others back.
func TestProbes(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	root := s.c.Nodes[0].Root
	flag := filepath.Join(root, "probe", s.name)
	if err := os.MkdirAll(filepath.Dir(flag), 0o755); err != nil {
		t.Fatal(err)
	}
	touch := func() {
		if err := os.WriteFile(flag, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t, s.c.Nodes[0].Address)
	touch()
	s.pod("probed", []string{"http", fmt.Sprintf(":%d", port), "/probe/" + s.name}, on("node-1"),
		hostPath("/probe", "/probe"), podIP, func(p *v1.Pod) {
			c := &p.Spec.Containers[0]
			c.ReadinessProbe = httpProbe(port)
			c.StartupProbe = tcpProbe(port)
		})
	s.waitPod("probed", "is ready", ready)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	p := s.waitPod("probed", "is not ready", func(p *v1.Pod) bool { return !ready(p) })
	if main0(p).RestartCount != 0 {
		t.Error("a readiness probe restarted the container")
	}
	touch()
	s.waitPod("probed", "is ready again", ready)

	livePort := freePort(t, s.c.Nodes[0].Address)
	s.pod("live", []string{"http", fmt.Sprintf(":%d", livePort), "/probe/" + s.name}, on("node-1"),
		hostPath("/probe", "/probe"), podIP, func(p *v1.Pod) {
			// Without a startup probe the first liveness probe may come before the program listens,
			// and its one permitted failure restarts the container.
			c := &p.Spec.Containers[0]
			c.StartupProbe, c.LivenessProbe = tcpProbe(livePort), httpProbe(livePort)
		})
	s.waitPod("live", "is ready", ready)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	p = s.waitPod("live", "is restarted", func(p *v1.Pod) bool { return main0(p).RestartCount >= 1 })
	if end := lastEnd(p); end == nil || end.ExitCode != 128+15 {
		t.Errorf("last run ended %+v, want exit code 143", end)
	}
}

// TestExecProbe runs a command in the container's environment.
func TestExecProbe(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("exec", nil, func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = []v1.EnvVar{{Name: "ANSWER", Value: "42"}}
		c.ReadinessProbe = &v1.Probe{PeriodSeconds: 1,
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", `test "$ANSWER" = 42`}}}}
	})
	s.waitPod("exec", "is ready", ready)
	s.pod("exec-fails", nil, func(p *v1.Pod) {
		p.Spec.Containers[0].StartupProbe = &v1.Probe{PeriodSeconds: 1, FailureThreshold: 2,
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"false"}}}}
	})
	p := s.waitPod("exec-fails", "is restarted", func(p *v1.Pod) bool { return main0(p).RestartCount >= 1 })
	if end := lastEnd(p); end.ExitCode != 7 { // serve exits with 7 on SIGTERM
		t.Errorf("ended with %d, want the code the program chose on SIGTERM, 7", end.ExitCode)
	}
}

func httpProbe(port int) *v1.Probe {
	return &v1.Probe{PeriodSeconds: 1, FailureThreshold: 1,
		ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port)}}}
}

func tcpProbe(port int) *v1.Probe {
	return &v1.Probe{PeriodSeconds: 1, FailureThreshold: 30,
		ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}}
}

func freePort(t *testing.T, host string) int {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func hostPath(from, at string) option {
	return func(p *v1.Pod) {
		name := fmt.Sprintf("host-%d", len(p.Spec.Volumes))
		kind := v1.HostPathDirectoryOrCreate
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name,
			VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: from, Type: &kind}}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: at})
	}
}

func podIP(p *v1.Pod) {
	c := &p.Spec.Containers[0]
	c.Env = append(c.Env, field("POD_IP", "status.podIP"))
}

func field(name, path string) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
}

// TestGrace: SIGTERM first, SIGKILL after the grace period and not before. The polite one's grace
// is longer than the test waits.
func TestGrace(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	hour := int64(3600)
	s.pod("polite", nil, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &hour })
	s.pod("stubborn", []string{"stubborn"})
	s.waitLog("polite", "serving")
	s.waitLog("stubborn", "serving")
	for _, tc := range []struct {
		name string
		min  time.Duration
	}{
		{"polite", 0},
		{"stubborn", 2 * time.Second},
	} {
		began := time.Now()
		if err := s.client.CoreV1().Pods(s.name).Delete(t.Context(), tc.name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.waitGone(tc.name)
		if took := time.Since(began); took < tc.min {
			t.Errorf("%s was gone after %s, its grace is %s", tc.name, took, tc.min)
		}
	}
}

// TestContainerEndsWhole: when the first process of a container ends, so do all others.
func TestContainerEndsWhole(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("family", []string{"spawn"}, policy(v1.RestartPolicyNever))
	pid := grandchild(t, s, "family")
	if err := s.client.CoreV1().Pods(s.name).Delete(t.Context(), "family", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitGone("family")
	waitDead(t, pid)
}

func grandchild(t *testing.T, s *space, name string) int {
	t.Helper()
	var pid int
	log := s.waitLog(name, "grandchild")
	if _, err := fmt.Sscanf(log[strings.Index(log, "grandchild"):], "grandchild %d", &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatalf("grandchild %d is not alive", pid)
	}
	return pid
}

// alive says whether a process runs and is more than a zombie.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := string(data[strings.LastIndexByte(string(data), ')')+1:])
	return !strings.HasPrefix(after, " Z")
}

func waitDead(t *testing.T, pid int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("process %d ends", pid), func() error {
		if alive(pid) {
			return fmt.Errorf("alive")
		}
		return nil
	})
}

// TestMissingImage: the message names the directory to make; making it starts the Pod.
func TestMissingImage(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	image := "late/" + s.name
	s.pod("late", nil, func(p *v1.Pod) { p.Spec.Containers[0].Image = image })
	p := s.waitPod("late", "waits for its image", func(p *v1.Pod) bool {
		return main0(p).State.Waiting != nil && main0(p).State.Waiting.Message != ""
	})
	dir := filepath.Join(images(), "late-"+s.name)
	w := main0(p).State.Waiting
	if w.Reason != "ImagePullBackOff" || !strings.Contains(w.Message, dir) {
		t.Errorf("waiting %+v, want ImagePullBackOff naming %s", w, dir)
	}
	if p.Status.Phase != v1.PodPending {
		t.Errorf("phase %s", p.Status.Phase)
	}
	if err := os.Symlink(filepath.Join(images(), "test-pod-1"), dir); err != nil {
		t.Fatal(err)
	}
	s.waitPod("late", "is ready", ready)
}

// TestOutOfCPU: a Pod that reaches the node but does not fit is failed, as a kubelet does.
func TestOutOfCPU(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("huge", nil, on("node-1"), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
	})
	p := s.waitPod("huge", "is rejected", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if p.Status.Reason != "OutOfcpu" || !strings.Contains(p.Status.Message, "requested: 1000000") {
		t.Errorf("reason %q message %q", p.Status.Reason, p.Status.Message)
	}
	if err := s.client.CoreV1().Pods(s.name).Delete(t.Context(), "huge", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitGone("huge")
}

// TestActiveDeadline fails a Pod that runs too long.
func TestActiveDeadline(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	one := int64(1)
	s.pod("slow", nil, func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = &one })
	p := s.waitPod("slow", "is failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if p.Status.Reason != "DeadlineExceeded" {
		t.Errorf("reason %q", p.Status.Reason)
	}
}

// TestForcedDeletion: a Pod removed from the API at once leaves no process behind.
func TestForcedDeletion(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("forced", []string{"spawn"})
	pid := grandchild(t, s, "forced")
	zero := int64(0)
	if err := s.client.CoreV1().Pods(s.name).Delete(t.Context(), "forced",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	waitDead(t, pid)
	// The same name again gets a fresh start.
	s.pod("forced", nil)
	s.waitPod("forced", "is ready", ready)
}

// TestLabelsReachDownwardVolume: a changed label is seen in the Pod's file.
func TestLabelsReachDownwardVolume(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("labels", []string{"cat", "/info/colour"}, func(p *v1.Pod) {
		p.Labels = map[string]string{"colour": "red"}
		p.Spec.Volumes = []v1.Volume{{Name: "info", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "colour",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['colour']"}}},
		}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "info", MountPath: "/info"}}
	})
	s.waitLog("labels", "content: red")
	patch := []byte(`{"metadata":{"labels":{"colour":"blue"}}}`)
	if _, err := s.client.CoreV1().Pods(s.name).Patch(t.Context(), "labels", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitLog("labels", "content: blue")
}
