package standalonetest

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// TestEnvironment: the downward API, references, ConfigMaps and Secrets.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.configMap("settings", map[string]string{"colour": "red", "shape": "round"})
	s.secret("keys", map[string]string{"password": "hunter2"})
	yes := true
	s.pod("env", []string{"env"}, on("node-2"), func(p *v1.Pod) {
		p.Labels = map[string]string{"app": "x"}
		p.Annotations = map[string]string{"note": "hello"}
		c := &p.Spec.Containers[0]
		c.EnvFrom = []v1.EnvFromSource{
			{Prefix: "CM_",
				ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "absent"}, Optional: &yes}},
		}
		c.Env = []v1.EnvVar{
			field("NAME", "metadata.name"), field("NAMESPACE", "metadata.namespace"), field("UID", "metadata.uid"),
			field("NODE", "spec.nodeName"), field("IP", "status.podIP"), field("HOST", "status.hostIP"),
			field("ACCOUNT", "spec.serviceAccountName"), field("APP", "metadata.labels['app']"),
			field("NOTE", "metadata.annotations['note']"),
			{Name: "COMPOSED", Value: "$(NAME) on $(NODE) $$(LITERAL) $(UNKNOWN)"},
			{Name: "SECRET",
				ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "password",
					LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}}},
			{Name: "CPUS",
				ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.cpu",
					Divisor: resourceMilli}}},
		}
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resourceQuantity("25m")}
	})
	addr := s.c.Nodes[1].Address
	log := "\n" + s.waitLog("env", "end of env")
	for _, want := range []string{
		"NAME=env", "NAMESPACE=" + s.name, "NODE=node-2", "IP=" + addr, "HOST=" + addr, "ACCOUNT=default", "APP=x",
		"NOTE=hello", "COMPOSED=env on node-2 $(LITERAL) $(UNKNOWN)", "CM_colour=red", "CM_shape=round",
		"SECRET=hunter2", "CPUS=25",
	} {
		if !strings.Contains(log, "\n"+want+"\n") {
			t.Errorf("environment lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}

// TestSecretVolume: a Pod waits for its Secret, sees its content, and sees it change.
func TestSecretVolume(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("reader", []string{"cat", "/keys/password"}, secretVolume("later", false))
	s.waitEvent("reader", "FailedMount", `secret "later" not found`)
	s.secret("later", map[string]string{"password": "one"})
	s.waitLog("reader", "content: one")
	sec, err := s.client.CoreV1().Secrets(s.name).Get(t.Context(), "later", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sec.Data["password"] = []byte("two")
	if _, err := s.client.CoreV1().Secrets(s.name).Update(t.Context(), sec, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitLog("reader", "content: two")
	s.pod("optional", []string{"cat", "/keys/password"}, secretVolume("never", true))
	s.waitLog("optional", "content: missing")
}

// TestMissingKey: a variable that cannot be filled is a configuration error, until it can.
func TestMissingKey(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("needs", []string{"env"}, func(p *v1.Pod) {
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X",
			ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
				Key: "k", LocalObjectReference: v1.LocalObjectReference{Name: "absent"}}}}}
	})
	p := s.waitPod("needs", "waits", func(p *v1.Pod) bool {
		return main0(p).State.Waiting != nil && main0(p).State.Waiting.Reason == "CreateContainerConfigError"
	})
	if m := main0(p).State.Waiting.Message; !strings.Contains(m, `"absent" not found`) {
		t.Errorf("message %q", m)
	}
	s.configMap("absent", map[string]string{"k": "v"})
	s.waitPod("needs", "is ready", ready)
}

// TestHostPath: the same host directory for Pods of one node, another one on the other node.
func TestHostPath(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	dir := "/var/lib/" + s.name
	s.pod("writer", []string{"count", "/host" + dir + "/n"}, on("node-1"), policy(v1.RestartPolicyOnFailure),
		hostPath(dir, "/x"), hostPath("/", "/host"))
	s.waitPod("writer", "succeeds", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded })
	s.pod("same", []string{"cat", "/data/n"}, on("node-1"), hostPath(dir, "/data"))
	s.waitLog("same", "content: xxx")
	s.pod("other", []string{"cat", "/data/n"}, on("node-2"), hostPath(dir, "/data"))
	s.waitLog("other", "content: missing")
}

// TestServiceAccount: a Pod's own credentials work, through KUBECONFIG.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	if _, err := s.client.CoreV1().ServiceAccounts(s.name).Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pod("robot", []string{"api"}, policy(v1.RestartPolicyNever), func(p *v1.Pod) { p.Spec.ServiceAccountName = "robot" })
	s.waitLog("robot", "I am system:serviceaccount:"+s.name+":robot")
}

// TestLogs: what `kubectl logs` can ask for, through the API server.
func TestLogs(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("talker", []string{"-c", "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2; sleep 1000"},
		func(p *v1.Pod) {
			p.Spec.Containers[0].Command = []string{"sh"}
		})
	s.waitLog("talker", "oops")
	two := int64(2)
	// Two outputs are two pipes: their order is not defined, so only stdout's own order is checked.
	all, err := s.logs("talker", v1.PodLogOptions{})
	if err != nil || !strings.Contains(all, "line 1\nline 2\n") {
		t.Errorf("log %q, %v", all, err)
	}
	tail, err := s.logs("talker", v1.PodLogOptions{TailLines: &two})
	if err != nil || strings.Count(tail, "\n") != 2 {
		t.Errorf("tail %q, %v", tail, err)
	}
	stamped, err := s.logs("talker", v1.PodLogOptions{Timestamps: true, TailLines: &two})
	if err != nil || !strings.HasPrefix(stamped, "20") {
		t.Errorf("with timestamps %q, %v", stamped, err)
	}
	if _, err := s.logs("talker", v1.PodLogOptions{Previous: true}); err == nil {
		t.Error("there is no previous run, but its log was given")
	}

	s.pod("restarting", []string{"count", "/data/n"}, policy(v1.RestartPolicyOnFailure), emptyDir("/data"))
	s.waitPod("restarting", "succeeds", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded })
	prev, err := s.logs("restarting", v1.PodLogOptions{Previous: true})
	if err != nil || prev != "run 2\n" {
		t.Errorf("previous log %q, %v; want run 2", prev, err)
	}
}

// TestFollowLogs ends when the container ends, with everything it said.
func TestFollowLogs(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("short", []string{"-c", "for i in 1 2 3; do echo line $i; sleep 0.3; done"}, policy(v1.RestartPolicyNever),
		func(p *v1.Pod) {
			p.Spec.Containers[0].Command = []string{"sh"}
		})
	s.waitLog("short", "line 1")
	got, err := s.logs("short", v1.PodLogOptions{Follow: true})
	if err != nil || got != "line 1\nline 2\nline 3\n" {
		t.Errorf("followed %q, %v", got, err)
	}
}

func (s *space) configMap(name string, data map[string]string) {
	s.t.Helper()
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	if _, err := s.client.CoreV1().ConfigMaps(s.name).Create(s.t.Context(), cm, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) secret(name string, data map[string]string) {
	s.t.Helper()
	sec := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if _, err := s.client.CoreV1().Secrets(s.name).Create(s.t.Context(), sec, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func secretVolume(name string, optional bool) option {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "keys", VolumeSource: v1.VolumeSource{
			Secret: &v1.SecretVolumeSource{SecretName: name, Optional: &optional}}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "keys", MountPath: "/keys"})
	}
}

// TestExec: `kubectl exec` runs in the container's environment and reports the exit code.
func TestExec(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.pod("box", nil, podIP)
	p := s.waitPod("box", "is ready", ready)
	for _, tc := range []struct {
		script, in, out string
		code            int
	}{
		{"echo $POD_IP", "", p.Status.PodIP + "\n", 0},
		{"cat; exit 5", "typed", "typed", 5},
	} {
		out, err := s.exec("box", []string{"sh", "-c", tc.script}, tc.in)
		code := 0
		if exit, ok := err.(utilexec.CodeExitError); ok {
			code = exit.Code
		} else if err != nil {
			t.Fatal(err)
		}
		if out != tc.out || code != tc.code {
			t.Errorf("%s: %q and code %d, want %q and %d", tc.script, out, code, tc.out, tc.code)
		}
	}
}

func (s *space) exec(pod string, command []string, in string) (string, error) {
	s.t.Helper()
	req := s.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.name).Name(pod).SubResource("exec").
		VersionedParams(&v1.PodExecOptions{Container: "main", Command: command, Stdin: true, Stdout: true,
			Stderr: true}, scheme.ParameterCodec)
	ex, err := remotecommand.NewWebSocketExecutor(s.c.RESTConfig(s.t), "GET", req.URL().String())
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	err = ex.StreamWithContext(s.t.Context(),
		remotecommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs})
	return out.String() + errs.String(), err
}

// TestKubeletEndpointIsClosed to all but the API server, the cluster's administrator included.
func TestKubeletEndpointIsClosed(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	cfg := s.c.RESTConfig(t)
	url := "https://" + s.c.Nodes[0].Address + ":10250/pods"
	admin, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := admin.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("the administrator got %s", resp.Status)
	}
	anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := anonymous.Get(url); err == nil {
		_ = resp.Body.Close()
		t.Errorf("a client without certificate got %s", resp.Status)
	}
}
