package k8stest

import (
	"context"
	_ "embed"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/test/rights"
)

// unseen lists rights that the system needs and that no scenario here makes it use: a line for each
// kind of object, "account resource.group verb,verb: why".
//
//go:embed testdata/unseen-rights.txt
var unseen string

// probe is how the snapshotter finds out whether the cluster has groups of snapshots. The driver
// has none, so it is refused.
const probe = "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io list"

// accounts are those of the system.
var accounts = []string{"longhorn-service-account", "longhorn-csi"}

// review is what the API servers' audit logs say of the system's accounts: they must have been
// refused nothing during all scenarios, and may do nothing that nobody needs.
type review struct {
	mu      sync.Mutex
	groups  int
	granted map[string]map[rights.Right]bool // by account
	used    map[string]map[rights.Right]bool
}

// add takes in what has been seen on a cluster on which all scenarios of a group have run.
func (r *review) add(b *bed) {
	b.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == 0 {
		r.granted, r.used = map[string]map[rights.Right]bool{}, map[string]map[rights.Right]bool{}
	}
	r.groups++
	for _, account := range accounts {
		log, err := os.Open(b.AuditLog())
		if err != nil {
			b.t.Fatal(err)
		}
		seen, err := rights.Read(log, namespace, account)
		_ = log.Close()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, d := range rights.Sorted(seen.Denied) {
			if d.String() != probe {
				b.t.Errorf("%s was refused: %s", account, d)
			}
		}
		if r.used[account] == nil {
			r.used[account] = map[rights.Right]bool{}
		}
		maps.Copy(r.used[account], seen.Used)
		r.granted[account] = b.granted(account)
	}
}

// judge says which rights nobody needs.
func (r *review) judge(t *testing.T) {
	if r.groups < len(scenarios) {
		t.Logf("sum: not all scenarios have run, so unused rights are not looked for")
		return
	}
	reasons := map[string]string{}
	for line := range strings.Lines(unseen) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, why, _ := strings.Cut(line, ": ")
		fields := strings.Fields(what)
		if len(fields) != 3 || why == "" {
			t.Errorf("unseen-rights.txt: %q is no right with a reason", line)
			continue
		}
		for verb := range strings.SplitSeq(fields[2], ",") {
			reasons[fields[0]+" "+fields[1]+" "+verb] = why
		}
	}
	for _, account := range accounts {
		n := 0
		for _, right := range rights.Sorted(r.granted[account]) {
			name := account + " " + right.String()
			if r.used[account][right] {
				n++
			} else if reasons[name] == "" {
				t.Errorf("%s has a right that nobody needs: %s", account, right)
			}
			delete(reasons, name)
		}
		t.Logf("sum: %s has %d rights, of which %d were used", account, len(r.granted[account]), n)
	}
	for right := range reasons {
		t.Errorf("unseen-rights.txt: %s is not granted", right)
	}
}

// granted returns the rights of an account of the system, in the cluster and in the namespace.
func (b *bed) granted(account string) map[rights.Right]bool {
	b.t.Helper()
	ctx := context.Background()
	rbac := b.ks.RbacV1()
	own := func(subjects []rbacv1.Subject) bool {
		for _, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account {
				return true
			}
		}
		return false
	}
	var rules []rbacv1.PolicyRule
	all, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, binding := range all.Items {
		if !own(binding.Subjects) {
			continue
		}
		role, err := rbac.ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		rules = append(rules, role.Rules...)
	}
	here, err := rbac.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, binding := range here.Items {
		if !own(binding.Subjects) {
			continue
		}
		role, err := rbac.Roles(namespace).Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		rules = append(rules, role.Rules...)
	}
	granted, err := rights.Granted(rules)
	if err != nil {
		b.t.Fatal(err)
	}
	return granted
}
