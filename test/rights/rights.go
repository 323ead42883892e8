// Package rights compares what an account may do in a cluster with what it did, by the audit log of
// the cluster's API server.
package rights

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Right is a verb on a kind of objects. Resource has its subresource with it: "pods/log".
type Right struct{ Group, Resource, Verb string }

// String gives the form "resource.group verb".
func (r Right) String() string {
	if r.Group == "" {
		return r.Resource + " " + r.Verb
	}
	return r.Resource + "." + r.Group + " " + r.Verb
}

// Sorted returns rights in the order of group, resource and verb.
func Sorted(set map[Right]bool) []Right {
	return slices.SortedFunc(maps.Keys(set), func(a, b Right) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Verb, b.Verb))
	})
}

// Seen is what an account asked for.
type Seen struct {
	// Used are the rights by which something was permitted, Denied those that were missing.
	Used, Denied map[Right]bool
}

// event is the part of an audit event that counts here (audit.k8s.io/v1).
type event struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
}

// maxEvent bounds a line of an audit log, in bytes.
const maxEvent = 1 << 20

// Read reads an audit log and returns what a service account of a namespace asked for. Requests
// that concern no object, as for the list of kinds, need no right of this sort and do not count.
func Read(log io.Reader, namespace, account string) (Seen, error) {
	seen := Seen{Used: map[Right]bool{}, Denied: map[Right]bool{}}
	user := "system:serviceaccount:" + namespace + ":" + account
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxEvent)
	for n := 1; lines.Scan(); n++ {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return seen, fmt.Errorf("audit log, line %d: %w", n, err)
		}
		if e.User.Username != user || e.ObjectRef == nil {
			continue
		}
		r := Right{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Verb: e.Verb}
		if e.ObjectRef.Subresource != "" {
			r.Resource += "/" + e.ObjectRef.Subresource
		}
		switch e.Annotations["authorization.k8s.io/decision"] {
		case "allow":
			seen.Used[r] = true
		case "forbid":
			seen.Denied[r] = true
		}
	}
	return seen, lines.Err()
}

// Granted returns what rules permit. A rule with a wildcard is an error: it permits what nobody has
// asked for.
func Granted(rules []rbacv1.PolicyRule) (map[Right]bool, error) {
	granted := map[Right]bool{}
	for i := range rules {
		r := &rules[i]
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					if strings.Contains(group+resource+verb, "*") {
						return nil, fmt.Errorf("rule for %q in groups %q: %q permits more than is named", r.Resources,
							r.APIGroups, r.Verbs)
					}
					granted[Right{Group: group, Resource: resource, Verb: verb}] = true
				}
			}
		}
	}
	return granted, nil
}
