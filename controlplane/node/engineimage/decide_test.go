package engineimage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/host/version"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func object() *v1beta2.EngineImage {
	ei := NewObject("longhorn-system", "ankole/engine:dev")
	ei.UID = "u"
	return ei
}

func node(name string, ready v1beta2.ConditionStatus) v1beta2.Node {
	n := v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: ready}}
	return n
}

func podOn(node string, ready corev1.ConditionStatus) corev1.Pod {
	p := corev1.Pod{}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

// world has the image on two nodes of two.
func world(ei *v1beta2.EngineImage) seen {
	s := seen{
		Nodes: []v1beta2.Node{node("n1", "True"), node("n2", "True")},
		KubeNodes: map[string]*corev1.Node{
			"n1": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"disk": "fast"}}}, "n2": {},
		},
		Pods:     []corev1.Pod{podOn("n1", "True"), podOn("n2", "True")},
		Versions: &Versions{Version: "v1", GitCommit: "c", CLIAPIVersion: 12, CLIAPIMinVersion: 8},
		Settings: settingsFrom(setting.Values{}, "sa"),
		Default:  true, Owner: "n1",
	}
	s.DaemonSet = daemonSetFor(ei, s.Settings)
	return s
}

// TestWhatIsToBeDoneIsTold: an image that is not everywhere names the DaemonSet and what its Pod
// says, one that cannot be used what helps.
func TestWhatIsToBeDoneIsTold(t *testing.T) {
	unready := func(status corev1.PodStatus) func(s *seen) {
		return func(s *seen) {
			p := podOn("n2", "False")
			p.Name, p.Status.ContainerStatuses, p.Status.Message = "p2", status.ContainerStatuses, status.Message
			s.Pods[1] = p
		}
	}
	waits := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ImagePullBackOff", Message: "no such image"}}}
	for _, tt := range []struct {
		edit func(s *seen)
		want string
	}{
		{func(s *seen) { s.Pods = s.Pods[:1] }, "not yet deployed on n2: DaemonSet " +
			naming.EngineImageDaemonSetName(object().Name) + " has no ready Pod there; on n2: no Pod; look at the events"},
		{unready(corev1.PodStatus{}), "; on n2: Pod p2 is not ready"},
		{unready(corev1.PodStatus{Message: "evicted"}), "; on n2: Pod p2, evicted"},
		{unready(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits}}),
			"; on n2: Pod p2, container waits: ImagePullBackOff no such image"},
		{func(s *seen) { s.Versions.CLIAPIVersion, s.Versions.CLIAPIMinVersion = 7, 7 }, "(understands 7 and later), the " +
			"engine of this release 8 to 12; upgrade the volumes that use it to another image with: ankole volume upgrade, or install"},
	} {
		ei := object()
		s := world(ei)
		tt.edit(&s)
		decide(now, ei, s)
		if c := v1beta2.FindCondition(ei.Status.Conditions, "ready"); !strings.Contains(c.Message, tt.want) {
			t.Errorf("message %q lacks %q", c.Message, tt.want)
		}
	}
}

func TestDecide(t *testing.T) {
	const deploying, deployed = v1beta2.EngineImageStateDeploying, v1beta2.EngineImageStateDeployed
	for _, tt := range []struct {
		name   string
		edit   func(*v1beta2.EngineImage, *seen)
		state  v1beta2.EngineImageState
		ready  v1beta2.ConditionStatus
		reason string
		do     string
		after  time.Duration
	}{
		{"settled", nil, deployed, "True", "", "", 0},
		{"new", func(_ *v1beta2.EngineImage, s *seen) { s.DaemonSet, s.Pods, s.Versions = nil, nil, nil },
			deploying, "False", "daemonSet", "create *v1.DaemonSet", 0},
		{"partly deployed", func(_ *v1beta2.EngineImage, s *seen) {
			s.Pods[1] = podOn("n2", "False")
		}, deploying, "False", "daemonSet", "", 0},
		{"missing on a node that is down", func(_ *v1beta2.EngineImage, s *seen) {
			s.Pods, s.Nodes[1] = s.Pods[:1], node("n2", "False")
		}, deployed, "True", "", "", 0},
		{"missing on a node not selected", func(ei *v1beta2.EngineImage, s *seen) {
			s.Pods, s.Settings.nodeSelector = s.Pods[:1], map[string]string{"disk": "fast"}
			s.DaemonSet = daemonSetFor(ei, s.Settings)
		}, deployed, "True", "", "", 0},
		{"no node yet", func(_ *v1beta2.EngineImage, s *seen) {
			s.Nodes, s.Pods = nil, nil
		}, deploying, "False", "daemonSet", "", 0},
		{"version not told", func(_ *v1beta2.EngineImage, s *seen) { s.Versions, s.VersionsProblem = nil, "exec failed" },
			deploying, "False", "daemonSet", "", versionRetry},
		{"too old", func(_ *v1beta2.EngineImage, s *seen) {
			s.Versions.CLIAPIVersion, s.Versions.CLIAPIMinVersion = version.CLIAPIMin-1, 3
		}, deployed, "False", "binary", "", 0},
		{"as old as may be", func(_ *v1beta2.EngineImage, s *seen) {
			s.Versions.CLIAPIVersion, s.Versions.CLIAPIMinVersion = version.CLIAPIMin, 3
		}, deployed, "True", "", "", 0},
		{"as new as may be", func(_ *v1beta2.EngineImage, s *seen) {
			s.Versions.CLIAPIVersion, s.Versions.CLIAPIMinVersion = version.CLIAPI+4, version.CLIAPI
		}, deployed, "True", "", "", 0},
		{"too new", func(_ *v1beta2.EngineImage, s *seen) {
			s.Versions.CLIAPIVersion, s.Versions.CLIAPIMinVersion = version.CLIAPI+4, version.CLIAPI+1
		}, deployed, "False", "binary", "", 0},
		{"probe settings changed", func(_ *v1beta2.EngineImage, s *seen) {
			s.Settings.probePeriod = 9
		}, deployed, "True", "", "update *v1.DaemonSet", 0},
		{"unused, just now", func(_ *v1beta2.EngineImage, s *seen) {
			s.Default = false
		}, deployed, "True", "", "", removeAfter},
		{"unused for an hour", func(ei *v1beta2.EngineImage, s *seen) {
			s.Default, ei.Status.NoRefSince = false, now.Add(-removeAfter).Format(time.RFC3339)
		}, deployed, "True", "", "delete *v1beta2.EngineImage", 0},
		{"in use", func(_ *v1beta2.EngineImage, s *seen) { s.Default, s.References = false, 1 }, deployed, "True", "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ei := object()
			s := world(ei)
			if tt.edit != nil {
				tt.edit(ei, &s)
			}
			d := decide(now, ei, s)
			c := v1beta2.FindCondition(ei.Status.Conditions, "ready")
			if ei.Status.Incompatible != (tt.reason == "binary") {
				t.Errorf("incompatible %v", ei.Status.Incompatible)
			}
			if ei.Status.State != tt.state || c.Status != tt.ready || c.Reason != tt.reason {
				t.Errorf("state %s, ready %s/%s (%s)", ei.Status.State, c.Status, c.Reason, c.Message)
			}
			do := ""
			if d.Do != nil {
				do = d.Do.String()
			}
			if (do == "") != (tt.do == "") || !strings.HasPrefix(do, tt.do) || d.After != tt.after {
				t.Errorf("does %q after %v, want %q after %v", do, d.After, tt.do, tt.after)
			}
		})
	}
}

// TestReferencesAreCountedAndDated: an image that nothing refers to says since when, the default
// one too; that one stays all the same.
func TestReferencesAreCountedAndDated(t *testing.T) {
	for _, def := range []bool{false, true} {
		ei := object()
		s := world(ei)
		s.Default, s.References = def, 3
		decide(now, ei, s)
		if ei.Status.RefCount != 3 || ei.Status.NoRefSince != "" {
			t.Fatalf("default %t: status %+v", def, ei.Status)
		}
		s.References = 0
		decide(now, ei, s)
		since := ei.Status.NoRefSince
		decide(now.Add(time.Minute), ei, s)
		if since != now.Format(time.RFC3339) || ei.Status.NoRefSince != since {
			t.Fatalf("default %t: no references since %q, then %q", def, since, ei.Status.NoRefSince)
		}
		if d := decide(now.Add(2*removeAfter), ei, s); (d.Do == nil) != def {
			t.Errorf("default %t: after two hours %v", def, d.Do)
		}
		s.References = 1
		if decide(now, ei, s); ei.Status.NoRefSince != "" {
			t.Errorf("default %t: with a reference, none since %q", def, ei.Status.NoRefSince)
		}
	}
}

// TestUnusedByOneClock: the leader that has written since when an image is not used may have
// another clock. It is no less than firstseen.Least that this one has to see of it.
func TestUnusedByOneClock(t *testing.T) {
	for _, tt := range []struct {
		stamped, seen time.Duration // so long ago
		want          time.Duration // until it goes
	}{
		{2 * time.Hour, 0, firstseen.Least},
		{2 * time.Hour, firstseen.Least, 0},
		{30 * time.Minute, 0, 30 * time.Minute}, // of another leader
		{-time.Hour, removeAfter, 2 * time.Hour},
	} {
		ei := object()
		s := world(ei)
		s.Default, s.References, s.UnusedSince = false, 0, now.Add(-tt.seen)
		ei.Status.NoRefSince = now.Add(-tt.stamped).Format(time.RFC3339)
		d := decide(now, ei, s)
		_, goes := d.Do.(loop.Delete)
		for range 5 {
			if goes || tt.want > 0 || d.Do == nil {
				break
			}
			d = decide(now, ei, s)
			_, goes = d.Do.(loop.Delete)
		}
		if goes != (tt.want == 0) || !goes && d.After != tt.want {
			t.Errorf("stamped %s ago, seen for %s: goes %v, again after %s, want %s", tt.stamped, tt.seen, goes, d.After,
				tt.want)
		}
	}
}

// TestVersionsReachTheStatus: what the binary says of itself, each in its field.
func TestVersionsReachTheStatus(t *testing.T) {
	ei := object()
	s := world(ei)
	s.Versions = &Versions{Version: "v1", GitCommit: "c", BuildDate: "d", CLIAPIVersion: 11, CLIAPIMinVersion: 2,
		ControllerAPIVersion: 13, ControllerAPIMinVersion: 4, DataFormatVersion: 15, DataFormatMinVersion: 6}
	decide(now, ei, s)
	st := ei.Status
	got := Versions{st.Version, st.GitCommit, st.BuildDate, st.CLIAPIVersion, st.CLIAPIMinVersion,
		st.ControllerAPIVersion, st.ControllerAPIMinVersion, st.DataFormatVersion, st.DataFormatMinVersion}
	if got != *s.Versions {
		t.Errorf("status %+v, want %+v", got, *s.Versions)
	}
}

// TestWhatRefersToAnImage: volumes, engines and replicas do, by the image that they are to have or
// by the one that they have, each once.
func TestWhatRefersToAnImage(t *testing.T) {
	ei := object()
	const other = "ankole/engine:other"
	objects := []client.Object{ei}
	for name, of := range map[string]images{"to-have": {ei.Spec.Image, other}, "has": {other, ei.Spec.Image},
		"both": {ei.Spec.Image, ei.Spec.Image}, "neither": {other, other}} {
		meta := metav1.ObjectMeta{Namespace: ei.Namespace, Name: name}
		v, e, r := &v1beta2.Volume{ObjectMeta: meta}, &v1beta2.Engine{ObjectMeta: meta}, &v1beta2.Replica{ObjectMeta: meta}
		v.Spec.Image, v.Status.CurrentImage = of[0], of[1]
		e.Spec.Image, e.Status.CurrentImage = of[0], of[1]
		r.Spec.Image, r.Status.CurrentImage = of[0], of[1]
		objects = append(objects, v, e, r)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1beta2.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Namespace: ei.Namespace})
	for i := range objects {
		r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects[:i+1]...).Build()
		want := 0
		for _, o := range objects[1 : i+1] {
			if o.GetName() != "neither" {
				want++
			}
		}
		var s seen
		s.KubeNodes = map[string]*corev1.Node{}
		if err := r.gatherLists(t.Context(), ei, &s); err != nil || s.References != want {
			t.Errorf("with %T %s: %d references, want %d (%v)", objects[i], objects[i].GetName(), s.References, want, err)
		}
	}
}

func TestDeletedObjectIsReleased(t *testing.T) {
	ei := object()
	ei.DeletionTimestamp = &metav1.Time{Time: now}
	d := decide(now, ei, world(ei))
	if d.Do == nil || !strings.HasPrefix(d.Do.String(), "update *v1beta2.EngineImage") {
		t.Fatalf("does %v", d.Do)
	}
	ei.Finalizers = nil
	if d := decide(now, ei, world(ei)); d.Do != nil {
		t.Fatalf("does %v", d.Do)
	}
}

func TestDaemonSetSettlesOnServerDefaults(t *testing.T) {
	ei := object()
	s := settingsFrom(setting.Values{}, "sa")
	ds := daemonSetFor(ei, s)
	// What the API server fills in must not look like a difference.
	ds.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
	ds.Spec.Template.Spec.Tolerations = nil
	ds.Spec.Template.Spec.Containers[0].LivenessProbe.SuccessThreshold = 1
	if u := corrected(ds, ei, s); u != nil {
		t.Fatalf("corrects %+v", u.Spec.Template.Spec)
	}
	if ds.Name != "engine-image-ei-5c11872e" || ds.Spec.Template.Spec.Containers[0].Name != ds.Name {
		t.Errorf("name %s", ds.Name)
	}
	want := "/var/lib/longhorn/engine-binaries/ankole-engine-dev"
	if got := ds.Spec.Template.Spec.Volumes[0].HostPath.Path; got != want {
		t.Errorf("installs into %s", got)
	}
	if *ds.Spec.Template.Spec.AutomountServiceAccountToken {
		t.Error("its Pods have a token that they do not need")
	}
}

// answers is what the binaries of nodes print; a node that is not in it runs none.
type answers map[string]*enginebinaryv1.RunResponse

func (a answers) Run(
	_ context.Context, node string, r *enginebinaryv1.RunRequest,
) (*enginebinaryv1.RunResponse, error) {
	if a[node] == nil {
		return nil, status.Error(codes.Unavailable, "nothing runs there")
	}
	if r.GetBinary() != "/engine-binaries/ankole-engine-dev/longhorn" ||
		strings.Join(r.GetVerb(), " ") != "version --client-only" {
		return nil, status.Errorf(codes.InvalidArgument, "%v", r)
	}
	return a[node], nil
}

// TestVersionIsAskedOfTheBinary: of the nodes that have it, the first that can be asked tells.
func TestVersionIsAskedOfTheBinary(t *testing.T) {
	said := func(output string, exit int32) answers {
		return answers{"n2": {Output: []byte(output), Status: exit, Message: "no"}}
	}
	good := `{"clientVersion":{"version":"v9","cliAPIVersion":12},"serverVersion":null}`
	for name, row := range map[string]struct {
		answers
		problem string
	}{
		"tells": {said(good, 0), ""}, "fails": {said(good, 3), "exit status 3: no"},
		"garbage": {said("hello", 0), "not JSON"}, "empty": {said("", 0), "not JSON"},
		"nothing of the client": {said("{}", 0), "no clientVersion"},
		"nobody can be asked":   {answers{}, "nothing runs there"},
	} {
		r := New(Config{Runner: row.answers})
		s := seen{Pods: []corev1.Pod{podOn("n1", corev1.ConditionTrue), podOn("n2", corev1.ConditionTrue)}}
		for _, name := range []string{"n0", "n1", "n2"} {
			s.Nodes = append(s.Nodes, node(name, v1beta2.ConditionTrue))
		}
		r.gatherVersions(t.Context(), object(), &s)
		if row.problem == "" && (s.Versions == nil || s.Versions.CLIAPIVersion != 12 || s.VersionsProblem != "") ||
			row.problem != "" && (s.Versions != nil || !strings.Contains(s.VersionsProblem, row.problem)) {
			t.Errorf("%s: %+v, %q", name, s.Versions, s.VersionsProblem)
		}
	}
}
