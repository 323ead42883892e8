package helm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	chart     = "../chart"
	namespace = "longhorn-system"
	// kubeVersion is that of the cluster that is not asked; without it Helm 3 takes one of its own.
	kubeVersion = "--kube-version=1.36"
)

// versions are the import paths of the programs, which go.mod pins.
var versions = []string{"helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v4/cmd/helm"}

// build returns the path of a program, which the build cache keeps.
var build = func() map[string]func() (string, error) {
	all := map[string]func() (string, error){}
	for _, program := range versions {
		all[program] = sync.OnceValues(func() (string, error) {
			path, err := exec.Command("go", "tool", "-n", program).Output()
			return strings.TrimSpace(string(path)), err
		})
	}
	return all
}()

// eachVersion runs f with either version of Helm.
func eachVersion(t *testing.T, f func(t *testing.T, helm func(args ...string) (string, error))) {
	for _, program := range versions {
		t.Run(strings.Split(program, "/")[2], func(t *testing.T) {
			t.Parallel()
			path, err := build[program]()
			if err != nil {
				t.Fatalf("build %s: %v", program, err)
			}
			home := t.TempDir()
			f(t, func(args ...string) (string, error) {
				cmd := exec.Command(path, args...)
				for _, of := range []string{"CACHE", "CONFIG", "DATA"} {
					cmd.Env = append(cmd.Environ(), "HELM_"+of+"_HOME="+home)
				}
				var out, errors bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errors
				if err := cmd.Run(); err != nil {
					return "", fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errors.String())
				}
				return out.String(), nil
			})
		})
	}
}

// TestLint: Helm finds nothing to warn of, whatever parts are left out or added.
func TestLint(t *testing.T) {
	eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
		for _, values := range [][]string{
			nil,
			{"--set", "deployCSI=false"},
			{"--set", "webhookURL=https://127.0.0.1:1,portForward=false,anonymousAccess=all"},
			{"--set", "imagePullPolicy=Always,imagePullSecrets={registry,other}", "--set", "storageCapacity=true",
				"--set-json", `tolerations=[{"key":"storage","operator":"Exists"}]`, "--set", "nodeSelector.kind=storage",
				"--set", "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.additionalLabels.release=x",
				"--set", "ingress.enabled=true,ingress.tls=true,ingress.tlsSecret=x,ingress.host=s.example",
				"--set", "privateRegistry.createSecret=true,privateRegistry.registryUrl=r,privateRegistry.registrySecret=s",
				"--set", "managerArgs={--log-level,debug}", "--set", "defaultSettings.storage-network=kube-system/storage"},
		} {
			if _, err := helm(append([]string{"lint", "--strict", chart}, values...)...); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWrongValues: what would fail later, or have no effect, is refused before anything is
// installed, with the value and what it may be.
func TestWrongValues(t *testing.T) {
	eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
		for _, tc := range []struct{ flag, value, want string }{
			{"--set", "imagePullPolicy=Sometimes", "'/imagePullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
			{"--set", "anonymousAccess=some", "'/anonymousAccess': value must be one of 'none', 'read-only', 'all'"},
			{"--set", "managerImages=x", "additional properties 'managerImages' not allowed"},
			{"--set", "managerImage=", "'/managerImage': minLength: got 0, want 1"},
			{"--set", "deployCSI=perhaps", "'/deployCSI': got string, want boolean"},
			{"--set", "tolerations=storage", "'/tolerations': got string, want array"},
			{"--set", "tolerations={storage}", "'/tolerations/0': got string, want object"},
			{"--set", "persistence.reclaimPolicy=Keep", "'/persistence/reclaimPolicy': value must be one of 'Delete', 'Retain'"},
			{"--set", "persistence.replicas=2", "'/persistence': additional properties 'replicas' not allowed"},
			{"--set", "persistence.defaultClassReplicaCount=21", "'/persistence/defaultClassReplicaCount': maximum: got 21, want 20"},
			{"--set", "csi.attacherReplicaCount=0", "'/csi/attacherReplicaCount': minimum: got 0, want 1"},
			{"--set-json", "imagePullSecrets=[1]", "'/imagePullSecrets/0': got number, want string"},
			{"--set", "kubeletDir=var/lib/kubelet", "'/kubeletDir': 'var/lib/kubelet' does not match pattern"},
			{"--set", "defaultSettings.default-replica-count=2", "'/defaultSettings/default-replica-count': got number, want string"},
			{"--set", "defaultSettings.no-such-setting=x", "'/defaultSettings': additional properties 'no-such-setting' not allowed"},
			{"--set-string", "defaultSettings.auto-salvage=yes", "'/defaultSettings/auto-salvage': value must be one of 'true', 'false'"},
		} {
			_, err := helm("template", "x", chart, tc.flag, tc.value)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %s: %v; want %q", tc.flag, tc.value, err, tc.want)
			}
		}
	})
}

// TestTemplateIsThePlainManifest: Helm makes of the chart with its default values the objects of
// the plain manifest, but for the namespace, which Helm makes, and as hooks those that remove an
// installation. What judges an upgrade is Helm's alone.
func TestTemplateIsThePlainManifest(t *testing.T) {
	var all strings.Builder
	for _, file := range []string{"../longhorn.yaml", "../uninstall.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("---\n" + string(text))
	}
	want := objects(t, all.String())
	delete(want, "Namespace//"+namespace)
	eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
		out, err := helm("template", "x", chart, kubeVersion, "--namespace", namespace, "--include-crds")
		if err != nil {
			t.Fatal(err)
		}
		got := objects(t, out)
		for key, o := range want {
			if !reflect.DeepEqual(got[key], o) {
				t.Errorf("%s: the chart gives\n%v\nthe plain manifest has\n%v", key, got[key], o)
			}
		}
		for key := range got {
			if want[key] == nil && !strings.HasSuffix(key, preUpgrade) {
				t.Errorf("the plain manifest has no %s", key)
			}
		}
	})
}

// TestValuesReachTheObjects: a value of a chart's user arrives where it is meant.
func TestValuesReachTheObjects(t *testing.T) {
	eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
		out, err := helm("template", "x", chart, kubeVersion, "--namespace", "elsewhere",
			"--set", "nodeSelector.kind=storage,defaultSettings.storage-network=kube-system/storage",
			"--set-json", `tolerations=[{"key":"storage"}]`, "--set", "managerImage=registry/manager:1")
		if err != nil {
			t.Fatal(err)
		}
		placed := 0
		for key, o := range objects(t, out) {
			if ns := o.GetNamespace(); ns != "" && ns != "elsewhere" {
				t.Errorf("%s lies in another namespace than the release", key)
			}
			pod, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			if err != nil {
				t.Fatal(err)
			}
			if pod["nodeSelector"] != nil && pod["tolerations"] != nil {
				placed++
			}
			text := fmt.Sprint(o.Object)
			switch key {
			case "ConfigMap/elsewhere/longhorn-default-setting":
				if !strings.Contains(text, `storage-network: "kube-system/storage"`) {
					t.Errorf("settings: %s", text)
				}
			case "DaemonSet/elsewhere/longhorn-manager":
				if strings.Count(text, "registry/manager:1") != 1 {
					t.Errorf("agent: %s", text)
				}
			case "Deployment/elsewhere/longhorn-controller":
				if strings.Count(text, "registry/manager:1") != 2 { // its own image, and that of Pods it makes
					t.Errorf("controller: %s", text)
				}
			}
		}
		if placed != 8 {
			t.Errorf("%d workloads are placed, want agents, controllers, four sidecars and the Jobs before upgrade and removal", placed)
		}
	})
}

// objects are those of a list of YAML documents, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc+"\n"), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o.Object == nil {
			continue
		}
		key := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		found[key] = o
	}
	return found
}
