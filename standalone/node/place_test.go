package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func testAgent(t *testing.T) *Agent {
	t.Helper()
	return &Agent{
		cfg: Config{
			Name: "node-1", Place: Place{"127.9.9.1", []string{"127.9.9.4", "127.9.9.7"}}, StateDir: t.TempDir(),
			DeviceDir: "/devices",
			Capacity: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"),
				v1.ResourcePods: resource.MustParse("3"),
			},
		},
		admitted: map[types.UID]v1.ResourceList{}, workers: map[types.UID]*worker{},
	}
}

func TestHostPaths(t *testing.T) {
	a := testAgent(t)
	root := a.cfg.Root()
	for host, want := range map[string]string{
		"/":                      root,
		"/var/lib/longhorn":      root + "/var/lib/longhorn",
		"/var/../etc":            root + "/etc",
		"/dev":                   "/dev",
		"/dev/null":              "/dev/null",
		"/dev/longhorn":          "/devices",
		"/dev/longhorn/vol":      "/devices/vol",
		"/dev/longhornish":       "/dev/longhornish",
		"/proc/mounts":           "/proc/mounts",
		"/../../etc":             root + "/etc",
		"/devices":               root + "/devices",
		"/sys/block/loop0/queue": "/sys/block/loop0/queue",
	} {
		if got := a.resolveHost(host); got != want {
			t.Errorf("%s is at %s, want %s", host, got, want)
		}
	}
}

// TestMountsOfHostRoot: a Pod that mounts / also learns where the parts are that are not below the
// root.
func TestMountsOfHostRoot(t *testing.T) {
	a := testAgent(t)
	v := &volumes{a: a}
	pod := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	}}}
	pod.UID = "u"
	c := &v1.Container{VolumeMounts: []v1.VolumeMount{
		{Name: "host", MountPath: "/host/"}, {Name: "scratch", MountPath: "/tmp/x", SubPathExpr: "$(NAME)/y"},
	}}
	env := newEnvironment()
	env.set("NAME", "me")
	got, err := v.mounts(pod, c, env)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"/host": a.cfg.Root(), "/host/dev": "/dev", "/host/dev/longhorn": "/devices", "/host/proc": "/proc",
		"/host/sys": "/sys",
		"/tmp/x":    filepath.Join(a.podDir(pod), "volumes/scratch/me/y"),
	} {
		if got[at] != want {
			t.Errorf("%s is at %q, want %q", at, got[at], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("mounts %v", got)
	}
	if _, err := os.Stat(got["/tmp/x"]); err != nil {
		t.Errorf("the sub path was not made: %v", err)
	}
}

func TestMountsRefused(t *testing.T) {
	a := testAgent(t)
	v := &volumes{a: a}
	pod := &v1.Pod{
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "d",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}}}
	for name, c := range map[string]v1.Container{
		"leaves the volume": {VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/d", SubPath: "../x"}}},
		"does not have":     {VolumeMounts: []v1.VolumeMount{{Name: "other", MountPath: "/d"}}},
		"do not support":    {VolumeDevices: []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/x"}}},
	} {
		_, err := v.mounts(pod, &c, newEnvironment())
		if !errors.Is(err, errConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestPrepareHostPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		kind v1.HostPathType
		path string
		ok   bool
		dir  bool // afterwards
	}{
		{v1.HostPathUnset, "new1/sub", true, true},
		{v1.HostPathDirectoryOrCreate, "new2", true, true},
		{v1.HostPathFileOrCreate, "new3", true, false},
		{v1.HostPathDirectory, "new4", false, false},
		{v1.HostPathFile, "new5", false, false},
		{v1.HostPathDirectory, "file", false, false},
		{v1.HostPathFile, "file", true, false},
		{v1.HostPathSocket, "file", false, false},
		{v1.HostPathCharDev, "../../../../../../../../dev/null", true, false},
		{v1.HostPathBlockDev, "file", false, false},
	} {
		real := filepath.Join(dir, tc.path)
		err := prepareHostPath(real, &v1.HostPathVolumeSource{Path: "/" + tc.path, Type: &tc.kind})
		if (err == nil) != tc.ok {
			t.Errorf("%s %q: error %v, want ok %t", tc.path, tc.kind, err, tc.ok)
			continue
		}
		if err != nil {
			if !strings.Contains(err.Error(), tc.path) {
				t.Errorf("error %q does not name the path", err)
			}
			continue
		}
		if fi, err := os.Stat(real); err != nil || fi.IsDir() != tc.dir {
			t.Errorf("%s %q: %v, %v", tc.path, tc.kind, fi, err)
		}
	}
}

func TestImages(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a-b-dev/image.json", `{"entrypoint":["x"],"cmd":["y"],"env":["K=V"]}`, 0o644)
	write("a-b-dev/bin/prog", "", 0o755)
	write("a-b-dev/bin/text", "", 0o644)
	write("a-b-dev/opt/tool", "", 0o755)
	write("bad/image.json", `{`, 0o644)
	images := Images{filepath.Join(dir, "none"), dir}
	img, err := images.Find("a/b:dev")
	if err != nil || img.Entrypoint[0] != "x" || img.Env[0] != "K=V" {
		t.Fatalf("image %+v, %v", img, err)
	}
	for program, want := range map[string]string{
		"prog": filepath.Join(dir, "a-b-dev/bin/prog"), "/opt/tool": filepath.Join(dir, "a-b-dev/opt/tool"),
		"sh": "/bin/sh", "/bin/sh": "/bin/sh", "text": "", "nosuch": "", "/opt/nosuch": "",
	} {
		got, err := img.Lookup(program, "/bin")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", program, got, err, want)
		}
	}
	_, err = images.Find("x/y@sha256:00")
	if !errors.Is(err, ErrNoImage) || !strings.Contains(err.Error(), filepath.Join(dir, "x-y-sha256-00")) {
		t.Errorf("error %v must name the directory", err)
	}
	if _, err := images.Find("bad"); err == nil || errors.Is(err, ErrNoImage) {
		t.Errorf("a broken image.json gives %v", err)
	}
}

func TestAdmission(t *testing.T) {
	a := testAgent(t)
	pod := func(uid, cpu, memory string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
		p.UID = types.UID(uid)
		req := v1.ResourceList{}
		if cpu != "" {
			req[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			req[v1.ResourceMemory] = resource.MustParse(memory)
		}
		p.Spec.Containers[0].Resources.Requests = req
		return p
	}
	first := pod("1", "1500m", "")
	if v := a.admit(first); v != nil {
		t.Fatalf("refused: %+v", v)
	}
	v := a.admit(pod("2", "501m", ""))
	if v == nil || v.reason != "OutOfcpu" ||
		v.message != "Pod was rejected: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000" {
		t.Errorf("verdict %+v", v)
	}
	if v := a.admit(pod("3", "500m", "")); v != nil {
		t.Errorf("exactly what is left was refused: %+v", v)
	}
	if v := a.admit(pod("4", "", "2Gi")); v == nil || v.reason != "OutOfmemory" {
		t.Errorf("verdict %+v", v)
	}
	if v := a.admit(pod("5", "", "")); v != nil {
		t.Errorf("a Pod without requests was refused: %+v", v)
	}
	if v := a.admit(pod("6", "", "")); v == nil || v.reason != "OutOfpods" {
		t.Errorf("verdict %+v", v)
	}
	a.release(first)
	if v := a.admit(pod("2", "501m", "")); v != nil {
		t.Errorf("refused after room was made: %+v", v)
	}
}

func TestThresholds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		t       thresholds
		results string // + and -
		changes string // verdict changes, . for none
	}{
		{"liveness fails after three", thresholds{last: true, success: 1, failure: 3}, "+--+---+", "......-+"},
		{"readiness passes at once", thresholds{last: false, success: 1, failure: 3}, "-+--+", ".+..."},
		{"readiness needs two", thresholds{last: false, success: 2, failure: 1}, "+-++-", "...+-"},
		{"startup failure counts though it began as failed", thresholds{undecided: true, success: 1, failure: 2}, "--", ".-"},
		{"startup success", thresholds{undecided: true, success: 1, failure: 30}, "--+", "..+"},
	} {
		got := ""
		for _, r := range tc.results {
			mark := "."
			if tc.t.add(r == '+') {
				mark = string(r)
			}
			got += mark
		}
		if got != tc.changes {
			t.Errorf("%s: %s gives %s, want %s", tc.name, tc.results, got, tc.changes)
		}
	}
}

func TestLogOptions(t *testing.T) {
	for query, ok := range map[string]bool{
		"": true, "tailLines=5&follow=true": true, "tailLines=-1": false, "tailLines=x": false,
		"sinceTime=2026-01-02T03:04:05Z": true, "sinceTime=yesterday": false,
		"limitBytes=10&previous=true&timestamps=true": true,
	} {
		_, err := logOptions(parseQuery(t, query))
		if (err == nil) != ok {
			t.Errorf("%q: %v", query, err)
		}
	}
}
