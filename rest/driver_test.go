package rest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	driver "ankole.storage/csi/request"
	"ankole.storage/deploy"
	"ankole.storage/rest/access"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// driverCalls are the methods of driver.Manager that the driver calls beside each sidecar, and on
// every node (longhorn-csi).
var driverCalls = map[string][]string{
	"longhorn-csi":          {"Node", "Setting", "TellDeviceKeepers"},
	"longhorn-csi-attacher": {"Setting", "Node", "Volume", "Volumes", "AttachVolume", "DetachVolume"},
	"longhorn-csi-provisioner": {"Setting", "Nodes", "Volume", "CreateVolume", "DeleteVolumeAt", "SnapshotObject",
		"SnapshotObjects", "Backup", "BackingImage", "CreateBackingImage",
		"ExpandVolume", "CancelExpansion"}, // a copy grows to the size of its claim
	"longhorn-csi-resizer": {"Setting", "Volume", "ExpandVolume", "CancelExpansion", "UpdateVolume"},
	"longhorn-csi-snapshotter": {"Setting", "Volume", "Volumes", "OrderSnapshot", "SnapshotObject", "SnapshotObjects",
		"DeleteSnapshotObject", "BackUp", "Backup", "Backups", "AllBackups", "DeleteBackup", "BackingImage",
		"CreateBackingImage", "DeleteBackingImage"},
}

// driverOperations are what the CSI driver asks of the API: each method of driver.Manager is called
// on a real client, and its request looked up in the routes. The result is by method.
func driverOperations(t *testing.T) map[string][]string {
	t.Helper()
	f := newFixture(t)
	var (
		mu   sync.Mutex
		seen []string
	)
	out := map[string][]string{}
	mux := http.NewServeMux()
	for path := range apitest.Routes(f.Server.Table()) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			operation := r.Method + " " + path
			if action := r.URL.Query().Get("action"); action != "" {
				operation = action + " " + path
			}
			seen = append(seen, operation)
			_, _ = w.Write([]byte("{}")) // the answer does not matter
		})
	}
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	for m := range reflect.TypeFor[driver.Manager]().Methods() {
		before := len(seen)
		call := reflect.ValueOf(c).MethodByName(m.Name)
		args := []reflect.Value{reflect.ValueOf(context.Background())}
		for i := 1; i < call.Type().NumIn(); i++ {
			switch in := call.Type().In(i); {
			case in.Kind() == reflect.String && m.Name == "UpdateVolume" && i == 2:
				args = append(args, reflect.ValueOf(resource.ActionUpdateReplicaCount))
			case in.Kind() == reflect.String:
				args = append(args, reflect.ValueOf("demo"))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		call.Call(args)
		if len(seen) == before {
			t.Errorf("%s asks for nothing", m.Name)
		}
		out[m.Name] = seen[before:]
	}
	return out
}

// driverRules are what the installation's roles give an account of the driver in the system's
// namespace.
func driverRules(t *testing.T, account string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	v := deploy.DefaultValues()
	v.DeployCSI = true
	docs, err := deploy.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	roles, bound := map[string][]rbacv1.PolicyRule{}, []string{}
	for _, d := range docs {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		if err := yaml.Unmarshal(d, &o); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(o.Kind, "Role"):
			roles[o.Kind+"/"+o.Metadata.Name] = o.Rules
		case strings.HasSuffix(o.Kind, "RoleBinding") && slices.ContainsFunc(o.Subjects,
			func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Name == account }):
			bound = append(bound, o.RoleRef.Kind+"/"+o.RoleRef.Name)
		}
	}
	for _, name := range bound {
		rules = append(rules, roles[name]...)
	}
	return rules
}

func permits(rules []rbacv1.PolicyRule, n access.Need) bool {
	has := func(list []string, what string) bool {
		return slices.Contains(list, what) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) == 0 && has(r.APIGroups, n.Group) && has(r.Resources, n.Resource) && has(r.Verbs, n.Verb)
	})
}

// TestDriverHasItsRights: each account of the installed CSI driver may do whatever the driver asks
// for there, and in our group nothing else.
func TestDriverHasItsRights(t *testing.T) {
	operations := driverOperations(t)
	called := map[string]bool{}
	for account, methods := range driverCalls {
		rules := driverRules(t, account)
		var used []access.Need
		for _, m := range methods {
			called[m] = true
			for _, operation := range operations[m] {
				needs, ok := apitest.Tables().Rights[operation]
				if !ok {
					t.Errorf("%q is not declared", operation)
				}
				for _, need := range needs {
					if !permits(rules, need) {
						t.Errorf("%s, %s, %q: it lacks the right to %s", account, m, operation, need)
					}
				}
				used = append(used, needs...)
			}
		}
		neverUsed(t, account, rules, used)
	}
	for m := range operations {
		if !called[m] {
			t.Errorf("nobody calls %s", m)
		}
	}
}

// neverUsed reports the rights to our kinds that an account has and does not use.
func neverUsed(t *testing.T, account string, rules []rbacv1.PolicyRule, used []access.Need) {
	t.Helper()
	for _, r := range rules {
		for _, kind := range r.Resources {
			for _, verb := range r.Verbs {
				n := access.Need{Verb: verb, Group: "longhorn.io", Resource: kind}
				if slices.Contains(r.APIGroups, n.Group) && !slices.ContainsFunc(used, func(u access.Need) bool {
					return u.Verb == n.Verb && u.Group == n.Group && u.Resource == n.Resource
				}) {
					t.Errorf("%s may %s and never does", account, n)
				}
			}
		}
	}
}
