package deploy

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// object is the part of every document that the tests look at.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Template struct {
			Spec struct {
				ServiceAccountName, PriorityClassName string
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

func TestObjects(t *testing.T) {
	v := DefaultValues()
	v.Namespace = "elsewhere"
	want := []string{
		"Namespace/elsewhere", "PriorityClass/longhorn-critical", "ServiceAccount/longhorn-service-account",
		"ClusterRole/longhorn-role", "ClusterRoleBinding/longhorn-bind", "DaemonSet/longhorn-manager",
	}
	objects := render(t, v)
	if len(objects) != len(want) {
		t.Fatalf("%d objects, want %d", len(objects), len(want))
	}
	for i, o := range objects {
		if got := o.Kind + "/" + o.Metadata.Name; got != want[i] {
			t.Errorf("object %d is %s, want %s", i, got, want[i])
		}
		if o.Metadata.Namespace != "" && o.Metadata.Namespace != "elsewhere" {
			t.Errorf("%s lies in namespace %s", o.Kind, o.Metadata.Namespace)
		}
	}
}

func TestManagerCommand(t *testing.T) {
	v := DefaultValues()
	base := "manager daemon --engine-image ankole/engine:dev --instance-manager-image ankole/instance-manager:dev " +
		"--manager-image ankole/manager:dev --service-account longhorn-service-account"
	for _, tc := range []struct {
		url  string
		args []string
		want string
	}{
		{"", nil, base},
		{"https://127.0.0.1:1", nil, base + " --webhook-url https://127.0.0.1:1"},
		{"", []string{"--flag", `quoted "value": x`}, base + ` --flag quoted "value": x`},
	} {
		v.WebhookURL, v.ManagerArgs = tc.url, tc.args
		objects := render(t, v)
		spec := objects[len(objects)-1].Spec.Template.Spec
		if got := strings.Join(spec.Containers[0].Command, " "); got != tc.want {
			t.Errorf("command\n%s\nwant\n%s", got, tc.want)
		}
		if spec.ServiceAccountName != "longhorn-service-account" || spec.PriorityClassName != "longhorn-critical" {
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
