package node

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A configuration file with any content is either read or a problem; a disk without a UUID is never
// adopted.
func FuzzDiskConfig(f *testing.F) {
	for _, seed := range []string{`{"diskUUID":"u"}`, `{}`, `{`, "null", `[]`, `{"diskUUID":7}`,
		`{"diskName":"d","diskUUID":"u","state":"ready","x":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root := t.TempDir()
		h := Host{Resolve: func(p string) string { return filepath.Join(root, p) }}
		if err := os.MkdirAll(filepath.Join(root, "host", "d"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "host", "d", "longhorn-disk.cfg"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		look := h.Look("/d", false)
		if look.Problem == "" && !look.HasConfig {
			t.Fatalf("%q: neither read nor a problem", text)
		}
		n := readyNode()
		d := n.Status.DiskStatus["a"]
		d.DiskUUID = ""
		c := judgeDisk("a", d, look, n, map[string]DiskFacts{"a": look})
		if c.Status == "True" && look.DiskUUID == "" {
			t.Fatalf("%q: a disk without UUID is ready", text)
		}
	})
}

// Annotations of nodes are written by people.
func FuzzJoinAnnotations(f *testing.F) {
	f.Add(`[{"path":"/a","tags":["x","x"]}]`, `["t"]`)
	f.Add(`{`, `x`)
	f.Add(`[{"path":"../..","storageReserved":-1}]`, `[1]`)
	f.Fuzz(func(t *testing.T, disks, tags string) {
		kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"node.longhorn.io/create-default-disk": "config"},
			Annotations: map[string]string{
				"node.longhorn.io/default-disks-config": disks, "node.longhorn.io/default-node-tags": tags,
			},
		}}
		j, err := joinFor(kube, joinRules{LabeledOnly: true}, func(string, bool) DiskFacts {
			return DiskFacts{FilesystemID: "1"}
		})
		if err != nil && len(j.Disks) > 0 && len(j.Tags) > 0 {
			t.Fatalf("an error, disks and tags: %+v, %v", j, err)
		}
	})
}
