package k8stest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// environment says which condition of a node's environment is not True. Nodes have the machine's
// kernel: what that does not have must be said, and nothing else.
func environment(conditions map[string]resource.Condition) error {
	lacks := map[string]string{} // reasons
	if _, err := os.Stat("/sys/module/dm_crypt"); err != nil {
		lacks[longhorn.NodeConditionKernelModulesLoaded] = longhorn.NodeReasonKernelModulesNotLoaded
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(known)), "nfs4") {
		lacks[longhorn.NodeConditionNFSClientInstalled] = longhorn.NodeReasonNFSClientIsNotFound
	}
	for _, kind := range []string{longhorn.NodeConditionReady, longhorn.NodeConditionMountPropagation,
		longhorn.NodeConditionMultipathd, longhorn.NodeConditionKernelModulesLoaded,
		longhorn.NodeConditionRequiredPackages, longhorn.NodeConditionNFSClientInstalled} {
		want := "True"
		if lacks[kind] != "" {
			want = "False"
		}
		if c := conditions[kind]; c.Status != want || c.Reason != lacks[kind] {
			return fmt.Errorf("condition %s is %q for reason %q (%s), want %q for reason %q", kind, c.Status, c.Reason,
				c.Message, want, lacks[kind])
		}
	}
	return nil
}

// authority is a file with that of the managers.
func (b *bed) authority() string {
	b.t.Helper()
	m, err := b.ks.CoreV1().ConfigMaps(namespace).Get(context.Background(), "longhorn-ca", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(b.Dir, "longhorn-ca.crt")
	if err := os.WriteFile(file, []byte(m.Data["ca.crt"]), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}
