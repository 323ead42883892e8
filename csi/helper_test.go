package csi

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestHelperIsFirst: a helper does its work before the packages that take long are initialised.
func TestHelperIsFirst(t *testing.T) {
	t.Parallel()
	initialised := func(args ...string) string {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = args
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\ninit os @") {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	late := regexp.MustCompile(`(?m)^init (k8s\.io/client-go|sigs\.k8s\.io)/.*`)
	if whole := initialised(os.Args[0], "-test.list=^$"); !late.MatchString(whole) {
		t.Fatalf("this program has no packages that would come late: %s", whole)
	}
	for _, found := range late.FindAllString(initialised("ankole-csi-helper", "look", t.TempDir(), "0"), -1) {
		t.Errorf("before a helper: %s", found)
	}
}
