package deploy

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"ankole.storage/controlplane/object/naming"
)

// pod is one by its labels, in the namespace of the system or another one; nil: no Pod, such as the
// API server.
type pod struct {
	namespace string
	labels    labels.Set
}

func selects(t *testing.T, s *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(set)
}

// admits is what Kubernetes says of a connection: it is let through if no policy is about the Pod
// that is called, or one of those lets it through.
func admits(t *testing.T, policies []networkingv1.NetworkPolicy, from *pod, to pod, port int32) bool {
	t.Helper()
	isolated := false
	for _, p := range policies {
		if p.Namespace != to.namespace || !selects(t, &p.Spec.PodSelector, to.labels) {
			continue
		}
		isolated = true
		for _, rule := range p.Spec.Ingress {
			if reaches(rule, port) && (len(rule.From) == 0 || from != nil && named(t, rule, p.Namespace, *from)) {
				return true
			}
		}
	}
	return !isolated
}

func reaches(rule networkingv1.NetworkPolicyIngressRule, port int32) bool {
	for _, p := range rule.Ports {
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		if port >= p.Port.IntVal && port <= last {
			return true
		}
	}
	return len(rule.Ports) == 0
}

func named(t *testing.T, rule networkingv1.NetworkPolicyIngressRule, namespace string, from pod) bool {
	t.Helper()
	for _, peer := range rule.From {
		in := peer.NamespaceSelector == nil && from.namespace == namespace || peer.NamespaceSelector != nil &&
			selects(t, peer.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": from.namespace})
		if in && (peer.PodSelector == nil || selects(t, peer.PodSelector, from.labels)) {
			return true
		}
	}
	return false
}

func policies(t *testing.T, v Values) (found []networkingv1.NetworkPolicy) {
	t.Helper()
	docs, err := Render(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		var p networkingv1.NetworkPolicy
		if err := yaml.Unmarshal(d, &p); err != nil {
			t.Fatal(err)
		}
		if p.Kind == "NetworkPolicy" {
			if err := yaml.UnmarshalStrict(d, &p); err != nil {
				t.Fatal(err)
			}
			found = append(found, p)
		}
	}
	return found
}

// TestNetworkPolicies: who reaches which port, by the labels that Pods really have.
func TestNetworkPolicies(t *testing.T) {
	v := DefaultValues()
	app := func(name string) pod { return pod{v.Namespace, labels.Set{"app": name}} }
	volumes := pod{v.Namespace, naming.InstanceManagerLabels("node-1", "image", "aio")}
	images := pod{v.Namespace, naming.BackingImageManagerLabels("node-1", "disk")}
	source := pod{v.Namespace, naming.BackingImageDataSourceLabels("image", "node-1", "disk")}
	manager, agent, driver := app(naming.AppController), app(naming.AppManager), app("longhorn-csi-plugin")
	user, monitoring := pod{"default", labels.Set{"app": naming.AppManager}}, pod{"monitoring", nil}
	restricted := v
	restricted.RestFrom = []map[string]any{{"namespaceSelector": map[string]any{
		"matchLabels": map[string]any{"kubernetes.io/metadata.name": "monitoring"}}}}
	for _, tc := range []struct {
		what   string
		values Values
		from   *pod
		to     pod
		ports  []int32
		want   bool
	}{
		{"managers control processes", v, &manager, volumes,
			[]int32{naming.PortProcessManager, naming.PortProxy, naming.PortInstanceService}, true},
		{"agents relay the witness", v, &agent, volumes, []int32{naming.PortProcessManager}, true},
		{"neither asks engines", v, &manager, volumes, []int32{naming.InstancePortMin, naming.InstancePortMax}, false},
		{"everybody may ask an agent for its figures", v, &user, agent, []int32{naming.PortManager}, true},
		{"and nothing else", v, &user, agent, []int32{naming.PortAdmissionWebhook, 22}, false},
		{"engines reach replicas", v, &volumes, volumes, []int32{naming.InstancePortMin, naming.InstancePortMax}, true},
		{"processes of volumes control no processes", v, &volumes, volumes, []int32{naming.PortProcessManager,
			naming.PortProxy, naming.PortInstanceService}, false},
		{"others reach no volume", v, &user, volumes,
			[]int32{naming.PortProcessManager, naming.PortProxy, naming.InstancePortMin, naming.InstancePortMax}, false},
		{"nor does the driver", v, &driver, volumes, []int32{naming.PortProxy, naming.InstancePortMin}, false},
		{"managers order images", v, &manager, images, []int32{naming.PortBackingImage, naming.PortBackingImageSync}, true},
		{"managers pass uploads on", v, &manager, source, []int32{naming.PortBackingImage}, true},
		{"images are copied", v, &images, images, []int32{naming.PortBackingImage, 30001, 31000}, true},
		{"images are taken over", v, &images, source, []int32{naming.PortBackingImage}, true},
		{"nobody else reaches images", v, &user, images, []int32{naming.PortBackingImage, naming.PortBackingImageSync, 30001},
			false},
		{"nor do processes of volumes", v, &volumes, images, []int32{naming.PortBackingImage, naming.PortBackingImageSync},
			false},
		{"volumes are exported", v, &volumes, source, []int32{naming.PortBackingImageExport}, true},
		{"images are cloned", v, &images, source, []int32{naming.PortBackingImageExport}, true},
		{"by nobody else", v, &user, source, []int32{naming.PortBackingImageExport}, false},
		{"everybody may ask", v, &user, manager, []int32{naming.PortManager}, true},
		{"the API server calls webhooks", restricted, nil, manager, []int32{naming.PortAdmissionWebhook}, true},
		{"managers ask each other", restricted, &manager, manager, []int32{naming.PortAdmissionWebhook}, true},
		{"the driver may ask", restricted, &driver, manager, []int32{naming.PortManager}, true},
		{"who is named may ask", restricted, &monitoring, manager, []int32{naming.PortManager}, true},
		{"others may not", restricted, &user, manager, []int32{naming.PortManager}, false},
		{"nothing else is there", v, &user, manager, []int32{naming.PortConversionWebhook, 22}, false},
		{"nobody calls the driver", v, &manager, driver, []int32{9808}, false},
		{"nobody calls sidecars", v, &user, app("csi-provisioner"), []int32{naming.PortCSIMetrics}, false},
		{"others are not our business", v, &user, pod{"default", nil}, []int32{80}, true},
	} {
		for _, port := range tc.ports {
			if got := admits(t, policies(t, tc.values), tc.from, tc.to, port); got != tc.want {
				t.Errorf("%s: port %d is let through: %v", tc.what, port, got)
			}
		}
	}
	v.NetworkPolicies = false
	if n := len(policies(t, v)); n > 0 {
		t.Errorf("%d policies though switched off", n)
	}
}
