package deploy

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestRightsOnSecrets: who may read Secrets may read those that the system has made, by name, and
// those that the installation names. The uninstallation lists the namespace's, to find its own.
func TestRightsOnSecrets(t *testing.T) {
	system := []string{"longhorn-grpc-ca", "longhorn-grpc-control", "longhorn-grpc-tls", "longhorn-rest-session",
		"longhorn-volume-keys", "longhorn-webhook-ca", "longhorn-webhook-tls",
		"aws-secret", "azblob-secret", "cifs-secret", "minio-secret"}
	v := DefaultValues()
	// Secrets of one namespace, whichever a class names.
	secretsMayBeRead(t, v, map[string][]string{"Role longhorn-role": system, "Role longhorn-csi-provisioner": {"any"}})
	v.Csi.SecretsOfAllNamespaces, v.BackupTargetSecrets, v.BackingImageSecrets = true, nil, []string{"longhorn-crypto"}
	secretsMayBeRead(t, v, map[string][]string{"Role longhorn-role": append(system[:7:7], "longhorn-crypto"),
		"ClusterRole longhorn-csi-provisioner": {"any"}})
}

func secretsMayBeRead(t *testing.T, v Values, want map[string][]string) {
	t.Helper()
	may := map[string][]string{}
	docs, err := Render(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		var kind metav1.TypeMeta
		var role rbacv1.Role // a ClusterRole has its rules at the same place
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "Role" && kind.Kind != "ClusterRole" {
			continue
		}
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			secrets := slices.ContainsFunc(rule.Resources, func(r string) bool { return r == "secrets" || r == "*" }) &&
				slices.ContainsFunc(rule.APIGroups, func(g string) bool { return g == "" || g == "*" })
			reads := slices.ContainsFunc(rule.Verbs, func(v string) bool { return v != "create" })
			if !secrets || !reads {
				continue
			}
			names := rule.ResourceNames // what is watched by a name has its content in the watch, as by get
			if len(names) == 0 {
				names = []string{"any"}
			}
			if slices.ContainsFunc(rule.Verbs, func(v string) bool { return v == "list" || v == "*" }) {
				names = append(names, "a list")
			}
			may[kind.Kind+" "+role.Name] = append(may[kind.Kind+" "+role.Name], names...)
		}
	}
	for role, names := range may {
		if !slices.Equal(names, want[role]) {
			t.Errorf("%s: Secrets %v may be read, want %v", role, names, want[role])
		}
		delete(want, role)
	}
	if len(want) > 0 {
		t.Errorf("no rights for %v", want)
	}
}
