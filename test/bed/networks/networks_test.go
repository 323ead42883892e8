package networks

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		annotation string
		want       []Request
	}{
		{"", nil},
		{`[]`, []Request{}},
		{`[{"namespace":"kube-system","name":"storage","interface":"lhnet1"}]`, []Request{{"kube-system", "storage",
			"lhnet1"}}},
		{`[{"name":"a"},{"namespace":"n","name":"b"}]`, []Request{{"own", "a", "net1"}, {"n", "b", "net2"}}},
	} {
		got, err := Parse(tc.annotation, "own")
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, %v", tc.annotation, got, err)
		}
	}
	if _, err := Parse("kube-system/storage", "own"); err == nil || !strings.Contains(err.Error(), annotationNetworks) {
		t.Errorf("a text that is no list: %v", err)
	}
}

// TestVersion: containerd asks for the versions before anything else.
func TestVersion(t *testing.T) {
	t.Setenv("CNI_COMMAND", "VERSION")
	var out strings.Builder
	if code := Main(strings.NewReader(""), &out); code != 0 || !strings.Contains(out.String(),
		`"supportedVersions":["0.4.0"]`) {
		t.Errorf("status %d, %s", code, out.String())
	}
}

// TestFailureIsAnObject: what fails is told in the way that containerd reads.
func TestFailureIsAnObject(t *testing.T) {
	t.Setenv("CNI_COMMAND", "ADD")
	var out strings.Builder
	if code := Main(strings.NewReader("{"), &out); code == 0 || !strings.Contains(out.String(), `"code":100`) {
		t.Errorf("status %d, %s", code, out.String())
	}
}

func TestArgument(t *testing.T) {
	t.Setenv("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod")
	if argument("K8S_POD_NAMESPACE") != "ns" || argument("K8S_POD_NAME") != "pod" || argument("K8S_POD") != "" {
		t.Errorf("%q, %q, %q", argument("K8S_POD_NAMESPACE"), argument("K8S_POD_NAME"), argument("K8S_POD"))
	}
}
