package rights

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

const line = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","verb":%q,"user":{"username":%q},` +
	`"objectRef":{"resource":%q,"subresource":%q,"apiGroup":%q},"annotations":{"authorization.k8s.io/decision":%q}}` + "\n"

// TestRead: rights of the account asked for, with their subresources, and nothing of others.
func TestRead(t *testing.T) {
	const own, other = "system:serviceaccount:ns:own", "system:serviceaccount:elsewhere:own"
	var log strings.Builder
	for _, e := range [][]any{
		{"get", own, "pods", "log", "", "allow"},
		{"list", own, "volumes", "", "longhorn.io", "allow"},
		{"list", own, "volumes", "", "longhorn.io", "allow"},
		{"delete", own, "nodes", "", "", "forbid"},
		{"create", other, "pods", "", "", "allow"},
	} {
		fmt.Fprintf(&log, line, e...)
	}
	log.WriteString(`{"verb":"get","user":{"username":"` + own + `"},"requestURI":"/apis"}` + "\n")
	seen, err := Read(strings.NewReader(log.String()), "ns", "own")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(Sorted(seen.Used)); got != "[pods/log get volumes.longhorn.io list]" {
		t.Errorf("used: %s", got)
	}
	if got := fmt.Sprint(Sorted(seen.Denied)); got != "[nodes delete]" {
		t.Errorf("denied: %s", got)
	}
	if _, err := Read(strings.NewReader("{}\nno event\n"), "ns", "own"); err == nil ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line that is no event: %v", err)
	}
}

// TestGranted: rules name what they permit.
func TestGranted(t *testing.T) {
	got, err := Granted([]rbacv1.PolicyRule{{APIGroups: []string{"", "apps"}, Resources: []string{"a", "b/c"},
		Verbs: []string{"get"}}})
	if err != nil || fmt.Sprint(Sorted(got)) != "[a get b/c get a.apps get b/c.apps get]" {
		t.Errorf("%v, %v", Sorted(got), err)
	}
	for _, r := range []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"a"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"a"}, Verbs: []string{"*"}},
	} {
		if _, err := Granted([]rbacv1.PolicyRule{r}); err == nil {
			t.Errorf("%v has a wildcard", r)
		}
	}
}
