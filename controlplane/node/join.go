package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// joining is what a node gets when it has no disks, or no tags, of its own.
type joining struct {
	Disks map[string]v1beta2.DiskSpec
	Tags  []string
}

// joinRules are the settings about new nodes.
type joinRules struct {
	// LabeledOnly: only nodes with the label node.longhorn.io/create-default-disk get disks.
	LabeledOnly bool
	// DataPath is the path of the default disk.
	DataPath string
	// ReservedPercent of the default disk is kept back.
	ReservedPercent int64
}

// labelWants says which disks the labels of a Kubernetes node ask for, given the rules.
func labelWants(kube *corev1.Node, rules joinRules) (defaultDisk, configured bool) {
	if !rules.LabeledOnly {
		return true, false
	}
	if kube == nil {
		return false, false
	}
	switch kube.Labels[naming.NodeLabelCreateDefaultDisk] {
	case naming.CreateDefaultDiskTrue:
		return true, false
	case naming.CreateDefaultDiskConfig:
		return false, true
	}
	return false, false
}

// configuredDisk is one entry of the annotation node.longhorn.io/default-disks-config.
type configuredDisk struct {
	Name            string           `json:"name"`
	Path            string           `json:"path"`
	AllowScheduling bool             `json:"allowScheduling"`
	StorageReserved int64            `json:"storageReserved"`
	Tags            []string         `json:"tags"`
	DiskType        v1beta2.DiskType `json:"diskType"`
}

// joinFor works out what a new node gets: disks and tags, and what is wrong with either.
func joinFor(kube *corev1.Node, rules joinRules, look func(path string, create bool) DiskFacts) (joining, error) {
	disks, noDisks := disksFor(kube, rules, look)
	tags, noTags := tagsFor(kube)
	return joining{Disks: disks, Tags: tags}, errors.Join(noDisks, noTags)
}

// lackedBy works out what a node that has joined lacks. A node that joined without label gets its
// disks when the label comes; one whose disks were taken away by its administrator does not get
// them back. Tags come whenever it has none.
func lackedBy(n *v1beta2.Node, kube *corev1.Node, rules joinRules, look func(string, bool) DiskFacts) (j joining,
	err error) {
	var noDisks, noTags error
	if rules.LabeledOnly && len(n.Spec.Disks) == 0 {
		j.Disks, noDisks = disksFor(kube, rules, look)
	}
	if len(n.Spec.Tags) == 0 {
		j.Tags, noTags = tagsFor(kube)
	}
	return j, errors.Join(noDisks, noTags)
}

// disksFor are the disks that the settings and a Kubernetes node ask for. look tells about a
// directory on the host; it makes the directory of the default disk if it is missing.
func disksFor(kube *corev1.Node, rules joinRules, look func(string, bool) DiskFacts) (map[string]v1beta2.DiskSpec,
	error) {
	switch defaultDisk, configured := labelWants(kube, rules); {
	case defaultDisk:
		return defaultDisks(rules, look)
	case configured:
		return configuredDisks(kube, look)
	}
	return nil, nil
}

// tagsFor are the tags that a Kubernetes node is annotated with.
func tagsFor(kube *corev1.Node) (tags []string, err error) {
	if kube == nil || kube.Annotations[naming.NodeAnnotationTags] == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(kube.Annotations[naming.NodeAnnotationTags]), &tags); err != nil {
		return nil, fmt.Errorf("annotation %s of Kubernetes node %s is not a JSON list of tags: %w",
			naming.NodeAnnotationTags, kube.Name, err)
	}
	if err := checkTags(tags); err != nil {
		return nil, fmt.Errorf("annotation %s of Kubernetes node %s: %w", naming.NodeAnnotationTags, kube.Name, err)
	}
	return naming.Tags(tags), nil
}

func checkTags(tags []string) error {
	for _, tag := range tags {
		if problems := naming.TagProblems(tag); len(problems) > 0 {
			return fmt.Errorf("tag %q: %s", tag, problems[0])
		}
	}
	return nil
}

func defaultDisks(rules joinRules, look func(string, bool) DiskFacts) (map[string]v1beta2.DiskSpec, error) {
	dir := path.Clean(rules.DataPath)
	f := look(dir, true)
	if f.Problem != "" {
		return nil, fmt.Errorf("default disk at %s: %s", dir, f.Problem)
	}
	return map[string]v1beta2.DiskSpec{naming.DefaultDiskName(f.FilesystemID): {
		Path: dir, DiskType: v1beta2.DiskTypeFilesystem, AllowScheduling: true,
		StorageReserved: f.Maximum / 100 * rules.ReservedPercent, Tags: []string{},
	}}, nil
}

func configuredDisks(kube *corev1.Node, look func(string, bool) DiskFacts) (map[string]v1beta2.DiskSpec, error) {
	wrong := func(err error) error {
		return fmt.Errorf("annotation %s of Kubernetes node %s: %w", naming.NodeAnnotationDisks, kube.Name, err)
	}
	var list []configuredDisk
	if err := json.Unmarshal([]byte(kube.Annotations[naming.NodeAnnotationDisks]), &list); err != nil {
		return nil, wrong(err)
	}
	disks := map[string]v1beta2.DiskSpec{}
	for _, d := range list {
		if d.DiskType != "" && d.DiskType != v1beta2.DiskTypeFilesystem {
			return nil, wrong(fmt.Errorf("disk at %s: type %q is not supported, want %q", d.Path, d.DiskType,
				v1beta2.DiskTypeFilesystem))
		}
		f := look(path.Clean(d.Path), false)
		if f.Problem != "" {
			return nil, wrong(fmt.Errorf("disk at %s: %s", d.Path, f.Problem))
		}
		name := d.Name
		if name == "" {
			name = naming.DefaultDiskName(f.FilesystemID)
		}
		if err := errors.Join(naming.CheckDiskName(name), checkTags(d.Tags)); err != nil {
			return nil, wrong(fmt.Errorf("disk at %s: %w", d.Path, err))
		}
		if _, twice := disks[name]; twice {
			return nil, wrong(fmt.Errorf("disk %s is given twice, or two disks are on one file system", name))
		}
		disks[name] = v1beta2.DiskSpec{
			Path: path.Clean(d.Path), DiskType: v1beta2.DiskTypeFilesystem, AllowScheduling: d.AllowScheduling,
			StorageReserved: d.StorageReserved, Tags: naming.Tags(d.Tags),
		}
	}
	return disks, nil
}

// joined returns a copy of the node with what it lacks, nil if it lacks nothing.
func joined(n *v1beta2.Node, j joining) *v1beta2.Node {
	needDisks := len(n.Spec.Disks) == 0 && len(j.Disks) > 0
	needTags := len(n.Spec.Tags) == 0 && len(j.Tags) > 0
	if !needDisks && !needTags {
		return nil
	}
	u := n.DeepCopy()
	if needDisks {
		u.Spec.Disks = j.Disks
	}
	if needTags {
		u.Spec.Tags = j.Tags
	}
	return u
}

// newNode is the object of a node that joins.
func newNode(namespace, name string, j joining) *v1beta2.Node {
	n := &v1beta2.Node{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.NodeSpec{
			Name: name, AllowScheduling: true,
			Disks: j.Disks, Tags: j.Tags,
		},
	}
	if n.Spec.Disks == nil {
		n.Spec.Disks = map[string]v1beta2.DiskSpec{}
	}
	if n.Spec.Tags == nil {
		n.Spec.Tags = []string{}
	}
	return n
}
