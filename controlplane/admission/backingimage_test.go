package admission

import (
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// imageOf is a backing image that nothing is wrong with, but what edit does to it.
func imageOf(name string, edit func(*v1beta2.BackingImageSpec)) *v1beta2.BackingImage {
	return named(&v1beta2.BackingImage{}, name, nil, func(b *v1beta2.BackingImage) {
		b.Spec = v1beta2.BackingImageSpec{SourceType: v1beta2.BackingImageSourceTypeDownload, MinNumberOfCopies: 1,
			DataEngine: v1beta2.DataEngineTypeV1, SourceParameters: map[string]string{"url": "https://example.org/i.qcow2"}}
		if edit != nil {
			edit(&b.Spec)
		}
	})
}

// TestBackingImages has the rules of new and changed images.
func TestBackingImages(t *testing.T) {
	type spec = v1beta2.BackingImageSpec
	url := func(u string) func(*spec) {
		return func(s *spec) { s.SourceParameters = map[string]string{"url": u} }
	}
	source := func(kind v1beta2.BackingImageSourceType) func(*spec) { return func(s *spec) { s.SourceType = kind } }
	sum := func(text string) func(*spec) { return func(s *spec) { s.Checksum = text } }
	const own = "is an address of the node itself or of its link"
	for _, tt := range []struct {
		name string
		edit func(*spec)
		want string
	}{
		{"whole", nil, ""},
		{"upload", func(s *spec) { s.SourceType, s.SourceParameters = "upload", nil }, ""},
		{"no source type", source(""), `source type "" is unknown; download, upload, export-from-volume, clone and restore are possible`},
		{"unknown source type", source("torrent"), `source type "torrent" is unknown`},
		{"restore of nothing", source("restore"), "invalid parameter backup-url for source type restore"},
		{"clone of nothing", source("clone"), "invalid parameter backing-image for source type clone"},
		{"encrypted", func(s *spec) { s.Secret, s.SecretNamespace = "key", "anywhere" }, ""},
		{"encrypted with half a name", func(s *spec) { s.Secret = "key" }, "give both, or none"},
		{"checksum", sum(strings.Repeat("0a", 64)), ""},
		{"checksum among spaces", sum(" " + strings.Repeat("0a", 64) + "\n"), ""},
		{"short checksum", sum("0a"), "give a SHA-512, 128 hexadecimal digits in lower case, or none"},
		{"checksum in capitals", sum(strings.Repeat("0A", 64)), "give a SHA-512"},
		{"no checksum", sum(strings.Repeat("xy", 64)), "give a SHA-512"},
		{"no copies", func(s *spec) { s.MinNumberOfCopies = -1 }, "should be at least 1"},
		{"tags", func(s *spec) { s.NodeSelector, s.DiskSelector = []string{"a"}, []string{"b/c"} }, ""},
		{"bad tag of a node", func(s *spec) { s.NodeSelector = []string{"a b"} }, `invalid tag "a b"`},
		{"bad tag of a disk", func(s *spec) { s.DiskSelector = []string{""} }, `invalid tag ""`},
		{"no URL", func(s *spec) { s.SourceParameters = nil }, "invalid parameter url for source type download of backing " +
			"image iso: it is missing"},
		{"URL among spaces", url(" http://example.org/i\n"), ""},
		{"no URL at all", url("i.qcow2"), "is not a URL"},
		{"another scheme", url("ftp://example.org/i"), `scheme "ftp"; http and https are possible`},
		{"a file", url("/etc/passwd"), `scheme ""`},
		{"no server", url("http:///i"), "names no server"},
		{"loopback", url("http://127.0.0.1/i"), own}, {"loopback 6", url("http://[::1]/i"), own},
		{"loopback, mapped", url("http://[::ffff:127.0.0.1]/i"), own}, {"any address", url("http://0.0.0.0/i"), own},
		{"metadata service", url("http://169.254.169.254/latest"), own}, {"localhost", url("http://LocalHost:80/i"), own},
		{"below localhost", url("http://a.localhost./i"), own}, {"another host", url("http://localhost.example.org/i"), ""},
	} {
		expect(t, tt.name, asked(t, worldOf(t), "backingimages", nil, imageOf("iso", tt.edit)), tt.want)
	}
	for _, name := range []string{"x", "_x", "a b"} {
		expect(t, "name "+name, asked(t, worldOf(t), "backingimages", nil, imageOf(name, nil)), "invalid name")
	}
}

// TestExportedImages: an image can be made of a volume that is there and whole, and of a snapshot
// that it has.
func TestExportedImages(t *testing.T) {
	volume := func(name string, edit func(*v1beta2.Volume)) *v1beta2.Volume {
		return named(&v1beta2.Volume{}, name, nil, edit)
	}
	snapshot := func(name string, edit func(*v1beta2.Snapshot)) *v1beta2.Snapshot {
		return named(&v1beta2.Snapshot{}, name, nil, func(s *v1beta2.Snapshot) {
			s.Spec.Volume = "v"
			if edit != nil {
				edit(s)
			}
		})
	}
	there := []client.Object{volume("v", nil), volume("faulted", func(v *v1beta2.Volume) {
		v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
	}), snapshot("s", nil), snapshot("others", func(s *v1beta2.Snapshot) { s.Spec.Volume = "faulted" }),
		snapshot("removed", func(s *v1beta2.Snapshot) { s.Status.MarkRemoved = true })}
	const export = "invalid parameter export-type for source type export-from-volume of backing image iso: "
	for parameters, want := range map[string]string{
		"volume-name=v": "", "volume-name= v ;export-type= qcow2": "", "volume-name=v;snapshot-name=s;export-type=raw": "",
		"":                                    "invalid parameter volume-name for source type export-from-volume of backing image iso: it is missing",
		"volume-name=v;export-type=vmdk":      export + `"vmdk"; raw and qcow2 are possible`,
		"volume-name=w":                       "backing image iso cannot be exported from volume w: there is no such volume",
		"volume-name=faulted":                 "the volume is faulted; salvage it first",
		"volume-name=v;snapshot-name=t":       "it has no snapshot t; name one of those that it has",
		"volume-name=v;snapshot-name=others":  "it has no snapshot others",
		"volume-name=v;snapshot-name=removed": "its snapshot removed is being deleted",
	} {
		b := imageOf("iso", func(s *v1beta2.BackingImageSpec) {
			s.SourceType, s.SourceParameters = v1beta2.BackingImageSourceTypeExportFromVolume, map[string]string{}
			for p := range strings.SplitSeq(parameters, ";") {
				if key, value, ok := strings.Cut(p, "="); ok {
					s.SourceParameters[key] = value
				}
			}
		})
		expect(t, parameters, asked(t, worldOf(t, there...), "backingimages", nil, b), want)
	}
	// What was exported once stays, whatever becomes of its volume.
	old := imageOf("iso", func(s *v1beta2.BackingImageSpec) { s.SourceType = "export-from-volume" })
	changed := old.DeepCopy()
	changed.Spec.MinNumberOfCopies = 2
	expect(t, "changed later", asked(t, worldOf(t), "backingimages", old, changed), "")
}

// TestBackingImageChanges has what of an image may be changed.
func TestBackingImageChanges(t *testing.T) {
	type spec = v1beta2.BackingImageSpec
	secret := func(name string) func(*spec) { return func(s *spec) { s.Secret, s.SecretNamespace = name, "ns" } }
	for _, tt := range []struct {
		name        string
		old, change func(*spec)
		want        string
	}{
		{"nothing", nil, nil, ""},
		{"copies", nil, func(s *spec) { s.MinNumberOfCopies = 3 }, ""},
		{"fewer copies than one", nil, func(s *spec) { s.MinNumberOfCopies = 0 }, "should be at least 1"},
		{"bad URL", nil, func(s *spec) { s.SourceParameters = map[string]string{"url": "http://localhost/"} },
			"of the node itself"},
		{"source type left out", nil, func(s *spec) { s.SourceType = "" }, ""},
		{"secret", secret("a"), secret("b"), "spec.secret of backing image iso cannot be changed from a"},
		{"same secret", secret("a"), secret("a"), ""},
		{"data engine", nil, func(s *spec) { s.DataEngine = "v2" }, "spec.dataEngine of backing image iso cannot be changed"},
		{"of another type, stored", func(s *spec) { s.SourceType = "clone" }, func(s *spec) {
			s.SourceType, s.MinNumberOfCopies = "clone", 2
		}, ""},
	} {
		expect(t, tt.name, asked(t, worldOf(t), "backingimages", imageOf("iso", tt.old), imageOf("iso", tt.change)), tt.want)
	}
}

// TestBackingImageInUseStays: an image that a replica stands on cannot be deleted.
func TestBackingImageInUseStays(t *testing.T) {
	replica := named(&v1beta2.Replica{}, "v-r-1", nil, func(r *v1beta2.Replica) { r.Spec.BackingImage = "iso" })
	other := named(&v1beta2.Replica{}, "v-r-2", nil, nil)
	for _, tt := range []struct {
		name  string
		there []client.Object
		want  string
	}{
		{"used", []client.Object{replica, other}, "cannot delete backing image iso since there are replicas using it: v-r-1"},
		{"unused", []client.Object{other}, ""},
	} {
		expect(t, tt.name, asked(t, worldOf(t, tt.there...), "backingimages", imageOf("iso", nil), nil), tt.want)
	}
}

// TestBackingImagesAreCompleted has what the three kinds may leave out.
func TestBackingImagesAreCompleted(t *testing.T) {
	w := worldOf(t, valueOf("default-min-number-of-backing-image-copies", "4"))
	var none *v1beta2.BackingImage
	sent := named(&v1beta2.BackingImage{}, "Iso", nil, func(b *v1beta2.BackingImage) {
		b.Spec.SourceType, b.Spec.Checksum = "download", " ab "
		b.Spec.SourceParameters = map[string]string{"url": " http://h/ "}
		b.Spec.NodeSelector = []string{"b", "a", "b"}
	})
	whole := func(b *v1beta2.BackingImage) {
		b.Finalizers = finalizer
		b.Labels = map[string]string{"longhorn.io/component": "backing-image", "longhorn.io/managed-by": "longhorn-manager"}
		b.Spec.DataEngine = "v1"
		b.Spec.DiskFileSpecMap, b.Spec.Disks = map[string]v1beta2.BackingImageDiskFileSpec{}, map[string]string{}
		b.Spec.NodeSelector, b.Spec.DiskSelector = []string{"a", "b"}, []string{}
	}
	completes(t, "new image", w, "backingimages", none, sent, func(b *v1beta2.BackingImage) {
		whole(b)
		b.Name, b.Spec.Checksum, b.Spec.MinNumberOfCopies = "iso", "ab", 4
		b.Spec.SourceParameters = map[string]string{"url": "http://h/"}
	})
	asked := imageOf("iso", func(s *v1beta2.BackingImageSpec) { s.MinNumberOfCopies = 2 })
	completes(t, "copies asked for", w, "backingimages", none, asked, func(b *v1beta2.BackingImage) {
		whole(b)
		b.Spec.NodeSelector = []string{}
		b.Spec.SourceParameters = maps.Clone(asked.Spec.SourceParameters)
	})
	older := imageOf("iso", func(s *v1beta2.BackingImageSpec) { s.SourceType, s.SourceParameters = "", nil })
	completes(t, "older image", w, "backingimages", older, older, func(b *v1beta2.BackingImage) {
		whole(b)
		b.Spec.NodeSelector = []string{}
		b.Spec.SourceType, b.Spec.SourceParameters = "download", map[string]string{}
	})
	var noManager *v1beta2.BackingImageManager
	completes(t, "manager", w, "backingimagemanagers", noManager, named(&v1beta2.BackingImageManager{}, "m", nil, nil),
		func(m *v1beta2.BackingImageManager) {
			m.Finalizers, m.Spec.BackingImages = finalizer, map[string]string{}
		})
	var noSource *v1beta2.BackingImageDataSource
	completes(t, "source", w, "backingimagedatasources", noSource, named(&v1beta2.BackingImageDataSource{}, "s", nil, nil),
		func(d *v1beta2.BackingImageDataSource) {
			d.Finalizers, d.Spec.SourceType, d.Spec.Parameters = finalizer, "download", map[string]string{}
		})
}
