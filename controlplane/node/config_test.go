package node

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestDiskConfigFile: other releases find the keys that they look for in a new disk's file, and a
// disk of an old one, whose file names nothing but the disk, is taken as it is.
func TestDiskConfigFile(t *testing.T) {
	root := t.TempDir()
	h := Host{Resolve: func(p string) string {
		if p == mountTable {
			return p
		}
		return filepath.Join(root, p)
	}}
	if err := h.Prepare("/data", "d"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "host/data/longhorn-disk.cfg")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]string
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	want := []string{"diskDriver", "diskName", "diskUUID", "state"}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) || keys["diskName"] != "d" {
		t.Errorf("the file is %s, want keys %q", text, want)
	}
	const old = `{"diskUUID":"7d0b4c1e-0000-4000-8000-000000000001"}`
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	n := readyNode()
	delete(n.Spec.Disks, "b")
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"a": {}}
	d := decideAgent(now, n, agentSeen{Facts: map[string]DiskFacts{"a": h.Look("/data", false)}})
	if id := n.Status.DiskStatus["a"].DiskUUID; id != "7d0b4c1e-0000-4000-8000-000000000001" || d.Do != nil {
		t.Errorf("disk %q of the old file; does %v", id, d.Do)
	}
	if c := diskCondition(n, "a", "Ready"); c.Status != "True" {
		t.Errorf("the old disk: %+v", c)
	}
	if err := h.Prepare("/data", "d"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != old {
		t.Errorf("the old file became %s, %v", text, err)
	}
}

// TestConfiguredDisks holds what the annotation on a Kubernetes node says of each of its disks.
func TestConfiguredDisks(t *testing.T) {
	look := func(string, bool) DiskFacts { return DiskFacts{FilesystemID: "f", Maximum: 1000} }
	join := func(config string) (joining, error) {
		kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
			Labels:      map[string]string{"node.longhorn.io/create-default-disk": "config"},
			Annotations: map[string]string{"node.longhorn.io/default-disks-config": config}}}
		return joinFor(kube, joinRules{LabeledOnly: true}, look)
	}
	j, err := join(`[{"name":"a","path":"/a","allowScheduling":true,"tags":["ssd","fast"],"diskType":"filesystem"},
		{"name":"b","path":"/b","allowScheduling":false}]`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := j.Disks["a"], j.Disks["b"]
	if !a.AllowScheduling || strings.Join(slices.Sorted(slices.Values(a.Tags)), " ") != "fast ssd" ||
		a.DiskType != "filesystem" {
		t.Errorf("disk a: %+v", a)
	}
	if b.AllowScheduling || len(b.Tags) != 0 || b.DiskType != "filesystem" {
		t.Errorf("disk b: %+v", b)
	}
	if _, err := join(`[{"name":"a","path":"/dev/sdb","diskType":"block"}]`); err == nil ||
		!strings.Contains(err.Error(), `"block"`) {
		t.Errorf("a disk for another data engine: %v", err)
	}
}

// TestOldZoneLabels: labels that Kubernetes has given up are not read.
func TestOldZoneLabels(t *testing.T) {
	n, s := storageNode(), healthy()
	s.KubeNode.Labels = map[string]string{"failure-domain.beta.kubernetes.io/zone": "old",
		"failure-domain.beta.kubernetes.io/region": "old"}
	decide(now, n, s)
	if n.Status.Zone != "" || n.Status.Region != "" {
		t.Errorf("zone %q, region %q", n.Status.Zone, n.Status.Region)
	}
}

// TestTagsComeLater: a node without tags gets those of the annotation, whenever that comes, and
// whatever is wrong with its disks or with what is asked for them.
func TestTagsComeLater(t *testing.T) {
	look := func(string, bool) DiskFacts { return DiskFacts{FilesystemID: "f", Maximum: 1000} }
	kube := func(tags, disks string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
			Labels: map[string]string{"node.longhorn.io/create-default-disk": "config"},
			Annotations: map[string]string{"node.longhorn.io/default-node-tags": tags,
				"node.longhorn.io/default-disks-config": disks}}}
	}
	for name, c := range map[string]struct {
		kube        *corev1.Node
		own         []string
		disks       bool // the node has some
		labeledOnly bool
		tags        string
		gets        int // disks
	}{
		"disks there, none configured": {kube(`["fast","big"]`, ""), nil, true, true, "big fast", 0},
		"no disks, none configured":    {kube(`["fast"]`, ""), nil, false, true, "fast", 0},
		"both configured":              {kube(`["fast"]`, `[{"path":"/x"}]`), nil, false, true, "fast", 1},
		"taken away by hand":           {kube(`["fast"]`, `[{"path":"/x"}]`), []string{}, true, true, "fast", 0},
		"tags of its own":              {kube(`["fast"]`, ""), []string{"mine"}, true, true, "mine", 0},
		"without the setting":          {kube(`["fast"]`, `[{"path":"/x"}]`), nil, false, false, "fast", 0},
		"tags that can't be":           {kube(`["two words"]`, `[{"path":"/x"}]`), nil, false, true, "", 1},
		"tags that are none":           {kube(`fast`, `[{"path":"/x"}]`), nil, false, true, "", 1},
	} {
		n := readyNode()
		n.Spec.Tags = c.own
		if !c.disks {
			n.Spec.Disks, n.Status.DiskStatus = nil, nil
		} else { // one of them waits for its configuration file
			n.Status.DiskStatus["a"] = v1beta2.DiskStatus{}
		}
		// What is wrong is told, and keeps nothing else from the node.
		j, _ := lackedBy(n, c.kube, joinRules{LabeledOnly: c.labeledOnly, DataPath: "/data"}, look)
		d := decideAgent(now, n, agentSeen{Join: j, Facts: map[string]DiskFacts{"a": facts("", "1"), "b": facts("ub", "2")}})
		if u, ok := d.Do.(loop.Update); ok {
			n = u.Object.(*v1beta2.Node)
		}
		if got := strings.Join(n.Spec.Tags, " "); got != c.tags || len(j.Disks) != c.gets {
			t.Errorf("%s: tags %q, disks %v", name, got, j.Disks)
		}
	}
}
