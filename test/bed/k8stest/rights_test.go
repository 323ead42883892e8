package k8stest

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// thieves is the part of docs/rights.md that no audit log tells.
//
//go:embed testdata/thieves.md
var thieves string

// sometimes begins the reason for a right that a run may use or not, such as after a conflict.
const sometimes = "sometimes: "

// probe is how the snapshotter finds out whether the cluster has groups of snapshots. The driver
// has none, so it is refused.
const probe = "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io list"

// accounts are those of the system.
var accounts = []string{"longhorn-controller", "longhorn-service-account", "longhorn-recurring-job", "longhorn-csi",
	"longhorn-csi-attacher", "longhorn-csi-provisioner", "longhorn-csi-resizer", "longhorn-csi-snapshotter"}

// review is what the API servers' audit logs say of the system's accounts: they must have been
// refused nothing during all scenarios, and may do nothing that nobody needs.
type review struct {
	mu      sync.Mutex
	parts   int
	granted map[string]map[rights.Right]bool // by account
	used    map[string]map[rights.Right]bool
}

// reviewed is the one of all tests here. The last part that comes in judges it: the groups of
// scenarios, and TestChart.
var reviewed review

// add takes in what has been seen on a cluster on which all of a part has run.
func (r *review) add(b *bed) {
	b.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == 0 {
		r.granted, r.used = map[string]map[rights.Right]bool{}, map[string]map[rights.Right]bool{}
	}
	r.parts++
	for _, account := range accounts {
		seen := b.seen(account)
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
	if all := len(scenarios) + 1; r.parts < all {
		b.t.Logf("sum: %d of %d parts have run; unused rights are looked for after the last one", r.parts, all)
		return
	}
	for _, wrong := range judged(unseen, r.granted, r.used) {
		b.t.Error(wrong)
	}
	for _, account := range accounts {
		n := 0
		for right := range r.granted[account] {
			if r.used[account][right] {
				n++
			}
		}
		b.t.Logf("sum: %s has %d rights, of which %d were used", account, len(r.granted[account]), n)
	}
	if file := os.Getenv("RIGHTS"); file != "" {
		if !filepath.IsAbs(file) { // from the root of the repository, as the page says
			file = filepath.Join("..", "..", "..", file)
		}
		if err := os.WriteFile(file, []byte(rightsPage(unseen, r.granted, r.used)), 0o600); err != nil {
			b.t.Error(err)
		}
	}
}

// rightsPage is docs/rights.md: of each account and kind of objects the verbs that these tests have
// used, and the others with the reason for them.
func rightsPage(lines string, granted, used map[string]map[rights.Right]bool) string {
	reasons, _ := excuses(lines)
	var out strings.Builder
	out.WriteString("# Rights of the system's accounts\n\nWritten by `RIGHTS=docs/rights.md make e2e-k8s`, from the audit logs of " +
		"its clusters: what the accounts\nused there, and why they have the rest (`test/bed/k8stest/testdata/unseen-rights.txt`).\n" + thieves)
	for _, account := range slices.Sorted(maps.Keys(granted)) {
		fmt.Fprintf(&out, "\n## %s\n\n| objects | used | not used, and why |\n| --- | --- | --- |\n", account)
		all := rights.Sorted(granted[account])
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].Group == all[0].Group && all[n].Resource == all[0].Resource {
				n++
			}
			writeRights(&out, account, all[:n], reasons, used[account])
			all = all[n:]
		}
	}
	return out.String()
}

// writeRights writes the row of one kind of objects.
func writeRights(out *strings.Builder, account string, of []rights.Right, reasons map[string]string,
	used map[rights.Right]bool) {
	var verbs, others, whys []string
	for _, r := range of {
		if used[r] {
			verbs = append(verbs, r.Verb)
			continue
		}
		others = append(others, r.Verb)
		if why := strings.TrimPrefix(reasons[account+" "+r.String()], sometimes); !slices.Contains(whys, why) {
			whys = append(whys, why)
		}
	}
	rest := strings.Join(others, ", ")
	if rest != "" {
		rest += ": " + strings.Join(whys, "; ")
	}
	objects, _, _ := strings.Cut(of[0].String(), " ")
	fmt.Fprintf(out, "| %s | %s | %s |\n", objects, strings.Join(verbs, ", "), rest)
}

// seen is what an account has asked for, by the API server's audit log.
func (b *bed) seen(account string) rights.Seen {
	b.t.Helper()
	log, err := os.Open(b.AuditLog())
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	seen, err := rights.Read(log, namespace, account)
	if err != nil {
		b.t.Fatal(err)
	}
	return seen
}

// excuses reads lines of unseen: the reasons, by "account resource.group verb".
func excuses(lines string) (reasons map[string]string, wrong []string) {
	reasons = map[string]string{}
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, why, _ := strings.Cut(line, ": ")
		fields := strings.Fields(what)
		if len(fields) != 3 || why == "" {
			wrong = append(wrong, fmt.Sprintf("unseen-rights.txt: %q is no right with a reason", line))
			continue
		}
		for verb := range strings.SplitSeq(fields[2], ",") {
			reasons[fields[0]+" "+fields[1]+" "+verb] = why
		}
	}
	return reasons, wrong
}

// judged says which rights nobody needs, and which excuses are none: a right that is used, or not
// granted.
func judged(lines string, granted, used map[string]map[rights.Right]bool) []string {
	reasons, wrong := excuses(lines)
	for _, account := range slices.Sorted(maps.Keys(granted)) {
		for _, right := range rights.Sorted(granted[account]) {
			name := account + " " + right.String()
			why, excused := reasons[name]
			switch {
			case strings.HasPrefix(why, sometimes):
			case used[account][right] && excused:
				wrong = append(wrong, fmt.Sprintf("unseen-rights.txt: %s is used; remove it there", name))
			case !used[account][right] && !excused:
				wrong = append(wrong, fmt.Sprintf("%s has a right that nobody needs: %s", account, right))
			}
			delete(reasons, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		wrong = append(wrong, fmt.Sprintf("unseen-rights.txt: %s is not granted; remove it there", name))
	}
	return wrong
}

// TestJudged: a right needs to be used or to have a reason, and not both, unless it is used
// sometimes.
func TestJudged(t *testing.T) {
	set := func(verbs ...string) map[string]map[rights.Right]bool {
		all := map[rights.Right]bool{}
		for _, v := range verbs {
			all[rights.Right{Resource: "pods", Verb: v}] = true
		}
		return map[string]map[rights.Right]bool{"manager": all}
	}
	got := judged("# why\n\nmanager pods list,patch: a lost node\nmanager pods watch: never granted\nmanager pods get\n"+
		"manager pods create,update: sometimes: a conflict\n",
		set("get", "list", "patch", "delete", "create", "update"), set("get", "patch", "create"))
	want := []string{`unseen-rights.txt: "manager pods get" is no right with a reason`,
		"manager has a right that nobody needs: pods delete", "unseen-rights.txt: manager pods patch is used; remove it there",
		"unseen-rights.txt: manager pods watch is not granted; remove it there"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, wrong := excuses(unseen); len(wrong) > 0 {
		t.Error(wrong)
	}
	page := rightsPage("manager pods list: a lost node\n", set("get", "list"), set("get"))
	if row := "| pods | get | list: a lost node |\n"; !strings.HasSuffix(page, row) {
		t.Errorf("the page is\n%s\nwant %s at the end", page, row)
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
