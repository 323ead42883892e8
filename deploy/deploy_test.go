package deploy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/controlplane/object/naming"
)

// object is the part of every document that the tests look at.
type object struct {
	Kind     string
	Data     map[string]string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Template struct {
			Spec struct {
				ServiceAccountName, PriorityClassName string
				Tolerations                           []struct{ Key string }
				NodeSelector                          map[string]string
				ImagePullSecrets                      []struct{ Name string }
				Containers                            []struct {
					Image   string
					Command []string
					Env     []struct{ Name string }
				}
			}
		}
	}
}

func render(t *testing.T, v Values) []object {
	t.Helper()
	docs, err := Render(v)
	if err != nil {
		t.Fatal(err)
	}
	var out []object
	for _, d := range docs {
		var o object
		if err := yaml.Unmarshal(d, &o); err != nil {
			t.Fatalf("%v in\n%s", err, d)
		}
		out = append(out, o)
	}
	return out
}

// objectNamed is the one of a kind and name.
func objectNamed(t *testing.T, objects []object, kind, name string) object {
	t.Helper()
	for _, o := range objects {
		if o.Kind == kind && o.Metadata.Name == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return object{}
}

func TestObjects(t *testing.T) {
	v := DefaultValues()
	v.Namespace = "elsewhere"
	bare := v
	bare.DeployCSI = false
	standalone := bare
	standalone.NetworkPolicies = false
	standalone.WebhookURL = "https://127.0.0.1:1"
	first := []string{"Namespace/elsewhere", "PriorityClass/longhorn-critical",
		"ServiceAccount/longhorn-service-account", "ClusterRole/longhorn-agent", "ClusterRoleBinding/longhorn-agent",
		"Role/longhorn-agent", "RoleBinding/longhorn-agent",
		"ServiceAccount/longhorn-controller",
		"ClusterRole/longhorn-role", "ClusterRoleBinding/longhorn-bind", "Role/longhorn-role", "RoleBinding/longhorn-bind",
		"ServiceAccount/longhorn-recurring-job", "Role/longhorn-recurring-job", "RoleBinding/longhorn-recurring-job",
		"ClusterRole/longhorn-view", "ClusterRole/longhorn-admin", "ServiceAccount/longhorn-view",
		"RoleBinding/longhorn-view",
		"ServiceAccount/longhorn-admin", "RoleBinding/longhorn-admin",
		"ValidatingAdmissionPolicy/longhorn-agent", "ValidatingAdmissionPolicyBinding/longhorn-agent",
		"ValidatingAdmissionPolicy/longhorn-controller", "ValidatingAdmissionPolicyBinding/longhorn-controller"}
	services := []string{"Service/longhorn-backend", "Service/longhorn-frontend", "Service/longhorn-admission-webhook",
		"Service/longhorn-agent"}
	last := []string{"ConfigMap/longhorn-default-setting", "DaemonSet/longhorn-manager", "Deployment/longhorn-controller"}
	policies := []string{"NetworkPolicy/longhorn-instance-manager", "NetworkPolicy/longhorn-backing-image",
		"NetworkPolicy/longhorn-controller",
		"NetworkPolicy/longhorn-agent", "NetworkPolicy/longhorn-csi"}
	driver := []string{"CSIDriver/driver.longhorn.io", "StorageClass/longhorn", "StorageClass/longhorn-static",
		"ServiceAccount/longhorn-csi", "Role/longhorn-csi", "RoleBinding/longhorn-csi"}
	for _, sidecar := range []string{"attacher", "provisioner", "resizer", "snapshotter"} {
		for _, kind := range []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
			driver = append(driver, kind+"/longhorn-csi-"+sidecar)
		}
	}
	driver = append(driver, "DaemonSet/longhorn-csi-plugin", "Deployment/csi-attacher", "Deployment/csi-provisioner",
		"Deployment/csi-resizer", "Deployment/csi-snapshotter")
	for name, tc := range map[string]struct {
		values Values
		want   []string
	}{
		"real cluster":   {v, slices.Concat(first, services, last, policies, driver)},
		"without driver": {bare, slices.Concat(first, services, last, policies)},
		"standalone":     {standalone, slices.Concat(first, last)},
	} {
		var got []string
		for _, o := range render(t, tc.values) {
			got = append(got, o.Kind+"/"+o.Metadata.Name)
			if o.Metadata.Namespace != "" && o.Metadata.Namespace != "elsewhere" {
				t.Errorf("%s: %s lies in namespace %s", name, o.Kind, o.Metadata.Namespace)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: objects\n%q, want\n%q", name, got, tc.want)
		}
	}
}

// TestServicesLeadToReadyPods: a Service leads to ready Pods only, since an API server waits
// for the webhooks of a dead node until the limit of a review. Readiness is what the process says.
func TestServicesLeadToReadyPods(t *testing.T) {
	docs, err := Render(DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	services := 0
	for _, d := range docs {
		var s corev1.Service
		if err := yaml.Unmarshal(d, &s); err != nil || s.Kind != "Service" {
			continue
		}
		services++
		if s.Spec.PublishNotReadyAddresses || s.Spec.Selector == nil {
			t.Errorf("Service %s leads to Pods that are not ready too: %+v", s.Name, s.Spec)
		}
		if s.Name == "longhorn-frontend" && s.Spec.Selector["app"] != "longhorn-ui" {
			t.Errorf("the web UI is looked for in Pods %v", s.Spec.Selector)
		}
	}
	if services != 4 {
		t.Errorf("%d Services, want those of REST, of the web UI, of the webhooks and of agents", services)
	}
	var managers appsv1.Deployment
	for _, d := range docs {
		if strings.Contains(string(d), "kind: Deployment") && strings.Contains(string(d), "name: longhorn-controller\n") {
			if err := yaml.Unmarshal(d, &managers); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if app := managers.Spec.Template.Labels["app"]; app != "longhorn-ui" {
		t.Errorf("Pods that serve the web UI are labelled app: %s", app)
	}
	container := managers.Spec.Template.Spec.Containers[0]
	probe := container.ReadinessProbe
	if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != naming.HealthPath || probe.PeriodSeconds != 1 {
		t.Errorf("readiness of managers is told by %+v, want GET %s every second", probe, naming.HealthPath)
	}
	at := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == probe.HTTPGet.Port.StrVal
	})
	if at < 0 || container.Ports[at].ContainerPort == 9500 || container.Ports[at].ContainerPort == 9502 {
		t.Errorf("health is asked for at port %s, want one of its own: others may be filled by anybody", &probe.HTTPGet.Port)
	}
}

// TestUninstallerKnowsAllKinds: it may remove every kind, and the objects of each.
func TestUninstallerKnowsAllKinds(t *testing.T) {
	docs, err := RenderUninstallation(DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	all, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, d := range all {
		missing["definition "+d.Name], missing["objects "+d.Spec.Names.Plural] = true, true
	}
	for _, doc := range docs {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			for _, name := range r.ResourceNames {
				delete(missing, "definition "+name)
			}
			if slices.Equal(r.Verbs, []string{"list", "patch", "delete"}) {
				for _, name := range r.Resources {
					delete(missing, "objects "+name)
				}
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("no right to remove %v", missing)
	}
}

// TestMountsFollowTheHost: a container that sees the host's file systems does not keep one mounted
// that the host unmounts.
func TestMountsFollowTheHost(t *testing.T) {
	docs, err := Render(DefaultValues())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, doc := range docs {
		var d appsv1.DaemonSet
		if err := yaml.Unmarshal(doc, &d); err != nil || d.Kind != "DaemonSet" {
			continue
		}
		sees := map[string]bool{}
		for _, v := range d.Spec.Template.Spec.Volumes {
			sees[v.Name] = v.HostPath != nil &&
				strings.HasPrefix("/var/lib/kubelet/", strings.TrimSuffix(v.HostPath.Path, "/")+"/")
		}
		for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
			if !sees[m.Name] {
				continue
			}
			n++
			if m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone {
				t.Errorf("%s: what is mounted below %s stays mounted there", d.Name, m.MountPath)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d containers see the kubelet's file systems, want the manager's and the driver's", n)
	}
}

// TestPlacement: what a user says about the manager's Pods reaches them and the sidecars of the CSI
// driver, which need no other nodes, and the secrets for a registry reach all. The driver itself is
// on every node, whatever taints it has.
func TestPlacement(t *testing.T) {
	v := DefaultValues()
	v.Tolerations = []map[string]any{{"key": "storage", "operator": "Exists"}}
	v.NodeSelector = map[string]string{"kind": "storage"}
	v.ImagePullSecrets = []string{"registry"}
	workloads := 0
	for _, o := range render(t, v) {
		pod := o.Spec.Template.Spec
		if len(pod.Containers) == 0 {
			continue
		}
		workloads++
		keys := []string{}
		for _, one := range pod.Tolerations {
			keys = append(keys, one.Key)
		}
		wantKeys, wantNodes := []string{"storage"}, v.NodeSelector
		switch {
		case o.Metadata.Name == "longhorn-csi-plugin":
			wantKeys, wantNodes = []string{""}, nil
		case o.Kind == "Deployment": // it leaves a lost node before Kubernetes has it leave
			wantKeys = []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "storage"}
		}
		if !slices.Equal(keys, wantKeys) || !maps.Equal(pod.NodeSelector, wantNodes) {
			t.Errorf("%s %s tolerates %q and is on nodes with %v", o.Kind, o.Metadata.Name, keys, pod.NodeSelector)
		}
		if len(pod.ImagePullSecrets) != 1 || pod.ImagePullSecrets[0].Name != "registry" {
			t.Errorf("%s %s has the secrets %v for its registry", o.Kind, o.Metadata.Name, pod.ImagePullSecrets)
		}
	}
	if workloads != 7 {
		t.Errorf("%d objects have Pods, want agents, controllers, the driver and four sidecars", workloads)
	}
}

func TestManagerCommand(t *testing.T) {
	v := DefaultValues()
	base := "manager control --engine-image ankole/engine:dev --instance-manager-image ankole/instance-manager:dev " +
		"--backing-image-manager-image ankole/backing-image-manager:dev --manager-image ankole/manager:dev " +
		"--service-account longhorn-service-account"
	const loopback = " --listen-also 127.0.0.1:9500"
	for _, tc := range []struct {
		url              string
		portForward, tls bool
		registries       []string
		paths            []string
		args             []string
		want             string
		agent            string
	}{
		{"", true, true, nil, nil, nil, base + loopback + " --mutual-tls", ""},
		{"https://127.0.0.1:1", false, false, nil, nil, nil, base + " --webhook-url https://127.0.0.1:1", ""},
		{"", true, false, nil, nil, []string{"--flag", `quoted "value": x`}, base + loopback + ` --flag quoted "value": x`,
			` --flag quoted "value": x`},
		{"", true, false, []string{"a.example/b"}, []string{"/a", "/b"}, nil,
			base + loopback + " --allowed-image-registries=a.example/b --allowed-disk-paths=/a --allowed-disk-paths=/b", ""},
	} {
		v.WebhookURL, v.PortForward, v.MutualTLS, v.ManagerArgs = tc.url, tc.portForward, tc.tls, tc.args
		v.AllowedImageRegistries, v.AllowedDiskPaths = tc.registries, tc.paths
		objects := render(t, v)
		spec := objectNamed(t, objects, "Deployment", "longhorn-controller").Spec.Template.Spec
		if got := strings.Join(spec.Containers[0].Command, " "); got != tc.want {
			t.Errorf("command\n%s\nwant\n%s", got, tc.want)
		}
		agent := objectNamed(t, objects, "DaemonSet", "longhorn-manager").Spec.Template.Spec
		if got := strings.Join(agent.Containers[0].Command, " "); got != "manager daemon"+tc.agent ||
			agent.ServiceAccountName != "longhorn-service-account" {
			t.Errorf("the agent of account %s: %s", agent.ServiceAccountName, got)
		}
		if spec.ServiceAccountName != "longhorn-controller" || spec.PriorityClassName != "longhorn-critical" {
			t.Errorf("account %q, class %q", spec.ServiceAccountName, spec.PriorityClassName)
		}
		env := ""
		for _, e := range spec.Containers[0].Env {
			env += e.Name + " "
		}
		if env != "POD_NAME POD_NAMESPACE POD_IP NODE_NAME " {
			t.Errorf("environment %s", env)
		}
	}
}

// TestAnonymousAccess: an installation says what callers without a token may do, and nothing if
// nobody chose.
func TestAnonymousAccess(t *testing.T) {
	v := DefaultValues()
	for _, tc := range []struct {
		access   string
		settings map[string]string
		want     map[string]any
	}{
		{"", nil, map[string]any{"api-anonymous-access": "none"}},
		{"all", map[string]string{"default-replica-count": "2", "taint-toleration": `a="b":NoSchedule`},
			map[string]any{"api-anonymous-access": "all", "default-replica-count": "2",
				"taint-toleration": `a="b":NoSchedule`}},
	} {
		if v.DefaultSettings = tc.settings; tc.access != "" {
			v.AnonymousAccess = tc.access
		}
		for _, o := range render(t, v) {
			if o.Kind != "ConfigMap" {
				continue
			}
			var got map[string]any
			if err := yaml.Unmarshal([]byte(o.Data["default-setting.yaml"]), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("settings %v, want %v", got, tc.want)
			}
		}
	}
}
