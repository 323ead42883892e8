package k8stest

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readme does what the README says of a cluster: it installs the system by the command that stands
// there, and makes the claim and the Pod, of which only the image has another name here.
func (h *helm) readme() {
	h.t.Helper()
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		h.t.Fatal(err)
	}
	between := func(from, to string) string {
		_, after, begins := strings.Cut(string(text), from)
		found, _, ends := strings.Cut(after, to)
		if !begins || !ends {
			h.t.Fatalf("README.md has nothing between %q and %q", from, to)
		}
		return found
	}
	install := strings.Fields(between("\n    helm ", "\n"))
	for i, word := range install {
		if word == "deploy/chart" {
			install[i] = chart
		}
	}
	h.ok(install...)
	h.installed()
	manifest := between("kubectl apply -f - <<EOF\n", "\n    EOF\n")
	manifest = strings.ReplaceAll(strings.TrimPrefix(manifest, "    "), "\n    ", "\n")
	h.apply(strings.ReplaceAll(manifest, "image: busybox,", "image: ankole/toolbox:dev,"))
	h.await("the Pod of the README runs", func(ctx context.Context) error {
		p, err := h.ks.CoreV1().Pods("default").Get(ctx, "writer", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	})
	if out := h.kubectlOK("exec", "writer", "--", "cat", "/data/starts"); strings.Count(out, "\n") != 1 {
		h.t.Errorf("the Pod of the README has written %q", out)
	}
	h.kubectlOK("delete", "pod", "writer", "--grace-period=1")
	h.unclaim("data")
}
