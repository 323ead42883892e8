package helm

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRegistryAndIngress: values by which users of the reference's chart know registries of their
// own, the way to the REST API from outside, and the store of backups arrive where they are meant.
func TestRegistryAndIngress(t *testing.T) {
	const manager = "Deployment/longhorn-system/longhorn-controller"
	const settings = "ConfigMap/longhorn-system/longhorn-default-setting"
	const ingress = "Ingress/longhorn-system/longhorn-ingress"
	for _, tt := range []struct {
		set  string
		want map[string][]string // what an object's text has; none: it is not there
	}{
		{"global.cattle.systemDefaultRegistry=r.example:5000,engineImage=localhost/e:1", map[string][]string{
			manager: {"image:r.example:5000/ankole/manager:dev", "--engine-image r.example:5000/e:1",
				"--instance-manager-image r.example:5000/ankole/instance-manager:dev",
				"--backing-image-manager-image r.example:5000/ankole/backing-image-manager:dev",
				"--manager-image r.example:5000/ankole/manager:dev"},
			"DaemonSet/longhorn-system/longhorn-manager":          {"image:r.example:5000/ankole/manager:dev"},
			"DaemonSet/longhorn-system/longhorn-csi-plugin":       {"image:r.example:5000/ankole/csi:dev"},
			"Deployment/longhorn-system/csi-attacher":             {"image:r.example:5000/sig-storage/csi-attacher:v4.13.0"},
			"Job/longhorn-system/longhorn-uninstall":              {"image:r.example:5000/ankole/manager:dev"},
			"Job/longhorn-system/longhorn-pre-upgrade":            {"image:r.example:5000/ankole/manager:dev"},
			"ConfigMap/longhorn-system/longhorn-default-resource": nil,
			ingress: nil,
		}},
		{`global.cattle.systemDefaultRegistry=r.example,imagePullSecrets={other},privateRegistry.registryUrl=p.example/mirror/,` +
			`privateRegistry.registrySecret=pull,privateRegistry.createSecret=true,` +
			`privateRegistry.registryUser=u,privateRegistry.registryPasswd=p"<1`, map[string][]string{
			manager:  {"image:p.example/mirror/ankole/manager:dev", "imagePullSecrets:[map[name:other] map[name:pull]]"},
			settings: {`registry-secret: "pull"`},
			"Secret/longhorn-system/pull": {"type:kubernetes.io/dockerconfigjson",
				`{"auths":{"p.example/mirror/":{"username":"u","password":"p\"\u003c1"}}}`},
		}},
		{"privateRegistry.registrySecret=pull,defaultSettings.registry-secret=own,ingress.enabled=true", map[string][]string{
			manager:                       {"image:ankole/manager:dev", "imagePullSecrets:[map[name:pull]]"},
			settings:                      {`registry-secret: "own"`},
			"Secret/longhorn-system/pull": nil,
			ingress: {"rules:[map[http:map[paths:[map[backend:map[service:map[name:longhorn-backend port:map[name:manager]]] " +
				"path:/ pathType:Prefix]]]]]"},
		}},
		{`defaultBackupStore.backupTarget=s3://b@r/,defaultBackupStore.backupTargetCredentialSecret=aws-secret,` +
			`serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:1`, map[string][]string{
			"ConfigMap/longhorn-system/longhorn-default-resource": {`backup-target: "s3://b@r/"`,
				`backup-target-credential-secret: "aws-secret"`, `backupstore-poll-interval: 300`},
			"ServiceAccount/longhorn-system/longhorn-service-account": {"annotations:map[eks.amazonaws.com/role-arn:arn:1]"},
			ingress: nil,
		}},
		{"ingress.enabled=true,ingress.ingressClassName=nginx,ingress.annotations.a=b,ingress.host=s.example," +
			"ingress.path=/v1,ingress.pathType=Exact,ingress.tls=true,ingress.tlsSecret=cert", map[string][]string{
			ingress: {"annotations:map[a:b]", "ingressClassName:nginx", "tls:[map[hosts:[s.example] secretName:cert]]",
				"host:s.example", "path:/v1 pathType:Exact"},
		}},
	} {
		eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
			args := strings.ReplaceAll(tt.set, "imagePullSecrets={other},", "")
			out, err := helm("template", "x", chart, kubeVersion, "--namespace", namespace, "--set", args, "--set-json",
				fmt.Sprintf("imagePullSecrets=%s", map[bool]string{true: `["other"]`, false: "[]"}[args != tt.set]))
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, out)
			for name, texts := range tt.want {
				o := all[name]
				if o == nil || texts == nil {
					if o != nil || texts != nil {
						t.Errorf("--set %s: %s is there: %v", tt.set, name, o != nil)
					}
					continue
				}
				for _, want := range texts {
					if text := fmt.Sprint(o.Object); !strings.Contains(text, want) {
						t.Errorf("--set %s: %s lacks %s:\n%s", tt.set, name, want, text)
					}
				}
			}
			oneSecretEach(t, all, strings.Count(tt.set, "registrySecret=") > 0)
		})
	}
}

// oneSecretEach: whatever makes Pods names the secret for the registry, if there is one.
func oneSecretEach(t *testing.T, all map[string]*unstructured.Unstructured, named bool) {
	t.Helper()
	for name, o := range all {
		pod, ok, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if ok && strings.Contains(fmt.Sprint(pod["imagePullSecrets"]), "map[name:pull]") != named {
			t.Errorf("%s: secrets for the registry are %v", name, pod["imagePullSecrets"])
		}
	}
}

// TestRegistryWithoutAName: what could have no effect is refused.
func TestRegistryWithoutAName(t *testing.T) {
	eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
		for set, want := range map[string]string{
			"privateRegistry.createSecret=true": "'/privateRegistry/registryUrl': minLength: got 0, want 1",
			"ingress.tls=true":                  "'/ingress/tlsSecret': minLength: got 0, want 1",
			"ingress.pathType=Any":              "'/ingress/pathType': value must be one of",
			"ingress.path=v1":                   "'/ingress/path': 'v1' does not match pattern",
		} {
			if _, err := helm("template", "x", chart, "--set", set); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", set, err, want)
			}
		}
	})
}
