package admission

import (
	"maps"
	"path"
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
)

// Origins are where what runs or lies on nodes may come from. They are given to the managers at
// their start and not by an object: whoever may write our objects cannot widen them.
type Origins struct {
	// Images are registries, or paths in them, of engines and instance managers: what runs there has
	// the rights of root on nodes. Empty: any.
	Images []string
	// DiskPaths are directories in which disks may be. Empty: any.
	DiskPaths []string
	// BackupDirectories are directories, as instance managers see them, in which backup targets of
	// kind vfs may be. Empty: none, since whoever makes a target has files written there.
	BackupDirectories []string
}

// OriginsOf are those of images where nothing else is said: next to the images of the release.
func OriginsOf(images ...string) (places []string) {
	for _, image := range images {
		places = append(places, path.Dir(repository(image)))
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// checkImage refuses an image from elsewhere.
func (o Origins) checkImage(image string) error {
	name := repository(image)
	from := func(place string) bool { return within(name, registry(place)) }
	if len(o.Images) == 0 || slices.ContainsFunc(o.Images, from) {
		return nil
	}
	return forbidden("image %s is not from %s, and what it holds would run as root on nodes: let an administrator of the "+
		"cluster add its registry to the chart's value allowedImageRegistries", image, strings.Join(o.Images, ", "))
}

// checkDisks refuses a disk that is new, or at another path than before, and elsewhere.
func (o Origins) checkDisks(old, n *v1beta2.Node) error {
	for _, name := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		d := n.Spec.Disks[name]
		in := func(dir string) bool { return within(path.Clean(d.Path), path.Clean(dir)) }
		stays := old != nil && old.Spec.Disks[name].Path == d.Path
		if stays || len(o.DiskPaths) == 0 || slices.ContainsFunc(o.DiskPaths, in) {
			continue
		}
		return forbidden("disk %s of node %s is at %s, which is not in %s: let an administrator of the cluster add the "+
			"directory to the chart's value allowedDiskPaths", name, n.Name, d.Path, strings.Join(o.DiskPaths, ", "))
	}
	return nil
}

// checkDirectory refuses a backup target in a directory that nobody has allowed (old nil:
// creation).
func (o Origins) checkDirectory(old, t *v1beta2.BackupTarget) error {
	dir, found := strings.CutPrefix(t.Spec.BackupTargetURL, schemeDirectory+"://")
	if !found || t.DeletionTimestamp != nil || old != nil && old.Spec.BackupTargetURL == t.Spec.BackupTargetURL {
		return nil
	}
	dir, _, _ = strings.Cut(dir, "?")
	if slices.ContainsFunc(o.BackupDirectories, func(d string) bool { return within(path.Clean(dir), path.Clean(d)) }) {
		return nil
	}
	return forbidden("backup target %s is directory %s, which is in none of those that are allowed (%s): let an "+
		"administrator of the cluster add it to the chart's value allowedBackupDirectories", t.Name, dir,
		strings.Join(o.BackupDirectories, ", "))
}

// within tells whether a path is one, or below it. Both are clean.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// repository is an image's name in full, without tag and digest. Names without a registry are of
// docker.io, as container runtimes take them.
func repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	if !strings.Contains(name, "/") {
		name = "library/" + name
	}
	return registry(name)
}

// registry completes the registry of a name or of a path in one.
func registry(name string) string {
	name = path.Clean(name)
	first, _, _ := strings.Cut(name, "/")
	if strings.ContainsAny(first, ".:") || first == "localhost" {
		return name
	}
	return "docker.io/" + name
}
