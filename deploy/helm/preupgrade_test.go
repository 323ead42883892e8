package helm

import (
	"fmt"
	"strings"
	"testing"
)

// preUpgrade is what the names of all objects end in by which an upgrade is judged beforehand.
const preUpgrade = "/longhorn-pre-upgrade"

// TestPreUpgradeChecker: by default Helm runs a Job of the new managers' image before it applies
// anything of an upgrade or a rollback, with what the Job needs and nothing else, and shows its log
// if it fails. Either value by which users of the reference's chart know it leaves all of it out.
func TestPreUpgradeChecker(t *testing.T) {
	eachVersion(t, func(t *testing.T, helm func(...string) (string, error)) {
		for set, want := range map[string]int{
			"":                                   4, // account, role, binding, Job
			"preUpgradeChecker.jobEnabled=false": 0,
			"preUpgradeChecker.upgradeVersionCheck=false": 0,
		} {
			out, err := helm("template", "x", chart, kubeVersion, "--namespace", namespace, "--is-upgrade",
				"--set", "managerImage=r/manager:2,nodeSelector.kind=storage,"+set)
			if err != nil {
				t.Fatal(err)
			}
			hooks := 0
			for key, o := range objects(t, out) {
				if !strings.HasSuffix(key, preUpgrade) {
					continue
				}
				hooks++
				if got := o.GetAnnotations()["helm.sh/hook"]; got != "pre-upgrade,pre-rollback" {
					t.Errorf("%s is run at %q", key, got)
				}
				if o.GetKind() != "Job" {
					continue
				}
				text := fmt.Sprint(o.Object)
				for _, part := range []string{"helm.sh/hook-output-log-policy:hook-failed", "command:[manager pre-upgrade]",
					"image:r/manager:2", "nodeSelector:map[kind:storage]", "serviceAccountName:longhorn-pre-upgrade"} {
					if !strings.Contains(text, part) {
						t.Errorf("the Job lacks %s:\n%s", part, text)
					}
				}
			}
			if hooks != want {
				t.Errorf("--set %q: %d objects for the check before an upgrade, want %d", set, hooks, want)
			}
		}
	})
}
