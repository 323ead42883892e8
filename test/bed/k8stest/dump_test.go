package k8stest

import (
	"os"
	"path/filepath"
	"strings"
)

// dump shows Pods, events and the ends of logs.
func (b *bed) dump() {
	for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "nodes"},
		{"-n", namespace, "get", "lhv,lhe,lhr,lhim"}, {"-n", namespace, "get", "events", "--sort-by=.lastTimestamp"}} {
		out, err := b.kubectl(args...)
		b.t.Logf("--- kubectl %s (%v)\n%s", strings.Join(args, " "), err, out[max(0, len(out)-4*logTail):])
	}
	logs, _ := filepath.Glob(b.Path("nodes/*/var/log/pods/*/*/*.log")) // the pattern is well-formed
	for _, l := range logs {
		text, err := os.ReadFile(l)
		if err == nil {
			b.t.Logf("--- %s\n%s", strings.TrimPrefix(l, b.Path("nodes")), text[max(0, len(text)-logTail):])
		}
	}
}
