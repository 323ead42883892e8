package k8stest

import (
	"context"
	_ "embed"
	"os"
	"strings"

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

// leastPrivilege: by the API server's audit log, the accounts of the system were refused nothing
// during all scenarios, and may do nothing that nobody needs.
func leastPrivilege(b *bed) {
	reasons := map[string]string{}
	for line := range strings.Lines(unseen) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, why, _ := strings.Cut(line, ": ")
		fields := strings.Fields(what)
		if len(fields) != 3 || why == "" {
			b.t.Fatalf("unseen-rights.txt: %q is no right with a reason", line)
		}
		for verb := range strings.SplitSeq(fields[2], ",") {
			reasons[fields[0]+" "+fields[1]+" "+verb] = why
		}
	}
	for _, account := range []string{"longhorn-service-account", "longhorn-csi"} {
		granted := b.granted(account)
		log, err := os.Open(b.AuditLog())
		if err != nil {
			b.t.Fatal(err)
		}
		seen, err := rights.Read(log, namespace, account)
		_ = log.Close()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range rights.Sorted(seen.Denied) {
			if r.String() != probe {
				b.t.Errorf("%s was refused: %s", account, r)
			}
		}
		n := 0
		for _, r := range rights.Sorted(granted) {
			name := account + " " + r.String()
			if seen.Used[r] {
				n++
			} else if reasons[name] == "" {
				b.t.Errorf("%s has a right that nobody needs: %s", account, r)
			}
			delete(reasons, name)
		}
		b.t.Logf("%s has %d rights, of which %d were used here", account, len(granted), n)
	}
	for right := range reasons {
		b.t.Errorf("unseen-rights.txt: %s is not granted", right)
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
