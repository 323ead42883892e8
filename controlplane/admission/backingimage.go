package admission

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/target"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var backingImages = kind[*v1beta2.BackingImage]{
	plural:     "backingimages",
	create:     func() *v1beta2.BackingImage { return &v1beta2.BackingImage{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator: func(ctx context.Context, w world, r request[*v1beta2.BackingImage]) error {
		if r.new.DeletionTimestamp != nil {
			return nil
		}
		copies := 0
		if r.created() && r.new.Spec.MinNumberOfCopies == 0 {
			values, err := w.settings(ctx)
			if err != nil {
				return err
			}
			copies = values.Int(setting.DefaultMinNumberOfBackingImageCopies)
		}
		if r.created() {
			r.new.Name = naming.CorrectName(r.new.Name)
		}
		CompleteBackingImage(r.new, r.created(), copies)
		if !r.created() {
			return nil
		}
		if err := w.completeRestore(ctx, r.new); err != nil {
			return err
		}
		return w.completeClone(ctx, r.new)
	},
	checker: func(ctx context.Context, w world, r request[*v1beta2.BackingImage]) error {
		if r.deleted() {
			users, err := w.usersOfImage(ctx, r.old.Name)
			if err != nil || len(users) == 0 {
				return err
			}
			return forbidden("cannot delete backing image %s since there are replicas using it: %s", r.old.Name,
				strings.Join(users, ", "))
		}
		if err := CheckBackingImage(r.old, r.new); err != nil || !r.created() {
			return err
		}
		return w.checkImageSource(ctx, r.new)
	},
}

var backingImageManagers = kind[*v1beta2.BackingImageManager]{
	plural:   "backingimagemanagers",
	create:   func() *v1beta2.BackingImageManager { return &v1beta2.BackingImageManager{} },
	onMutate: createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.BackingImageManager]) error {
		if r.new.DeletionTimestamp == nil {
			addFinalizer(r.new)
			if r.new.Spec.BackingImages == nil {
				r.new.Spec.BackingImages = map[string]string{}
			}
		}
		return nil
	},
}

var backingImageSources = kind[*v1beta2.BackingImageDataSource]{
	plural:   "backingimagedatasources",
	create:   func() *v1beta2.BackingImageDataSource { return &v1beta2.BackingImageDataSource{} },
	onMutate: createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.BackingImageDataSource]) error {
		if r.new.DeletionTimestamp == nil {
			addFinalizer(r.new)
			orElse(&r.new.Spec.SourceType, v1beta2.BackingImageSourceTypeDownload)
			if r.new.Spec.Parameters == nil {
				r.new.Spec.Parameters = map[string]string{}
			}
		}
		return nil
	},
}

// usersOfImage names the replicas that stand on a backing image.
func (w world) usersOfImage(ctx context.Context, image string) (names []string, err error) {
	var list v1beta2.ReplicaList
	if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.BackingImage == image {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// CompleteBackingImage fills in what an image may leave out; copies is the setting
// default-min-number-of-backing-image-copies.
func CompleteBackingImage(b *v1beta2.BackingImage, created bool, copies int) {
	s := &b.Spec
	addFinalizer(b)
	addLabels(b, naming.BackingImageLabels())
	if created {
		s.Checksum = strings.TrimSpace(s.Checksum)
		trimmed := map[string]string{}
		for key, value := range s.SourceParameters {
			trimmed[key] = strings.TrimSpace(value)
		}
		s.SourceParameters = trimmed
		if s.SourceType == v1beta2.BackingImageSourceTypeExportFromVolume &&
			trimmed[v1beta2.BackingImageParameterExportType] == "" {
			trimmed[v1beta2.BackingImageParameterExportType] = v1beta2.BackingImageExportRaw
		}
		if s.SourceType == v1beta2.BackingImageSourceTypeClone && trimmed[v1beta2.BackingImageParameterEncryption] == "" {
			trimmed[v1beta2.BackingImageParameterEncryption] = v1beta2.BackingImageEncryptionIgnore
		}
		if s.MinNumberOfCopies == 0 {
			s.MinNumberOfCopies = copies
		}
	} else {
		orElse(&s.SourceType, v1beta2.BackingImageSourceTypeDownload)
	}
	orElse(&s.DataEngine, v1beta2.DataEngineTypeV1)
	s.NodeSelector, s.DiskSelector = naming.Tags(s.NodeSelector), naming.Tags(s.DiskSelector)
	if s.SourceParameters == nil {
		s.SourceParameters = map[string]string{}
	}
	if s.DiskFileSpecMap == nil {
		s.DiskFileSpecMap = map[string]v1beta2.BackingImageDiskFileSpec{}
	}
	if s.Disks == nil {
		s.Disks = map[string]string{}
	}
}

// RefusedSource says why no image can be made from a type of source; empty if one can.
func RefusedSource(kind v1beta2.BackingImageSourceType) string {
	switch kind {
	case v1beta2.BackingImageSourceTypeDownload, v1beta2.BackingImageSourceTypeUpload,
		v1beta2.BackingImageSourceTypeExportFromVolume, v1beta2.BackingImageSourceTypeClone,
		v1beta2.BackingImageSourceTypeRestore:
		return ""
	}
	return fmt.Sprintf("source type %q is unknown; %s are possible", kind, builtSources)
}

const builtSources = string(v1beta2.BackingImageSourceTypeDownload + ", " + v1beta2.BackingImageSourceTypeUpload +
	", " + v1beta2.BackingImageSourceTypeExportFromVolume + ", " + v1beta2.BackingImageSourceTypeClone + " and " +
	v1beta2.BackingImageSourceTypeRestore)

// checksumDigits is the length of a SHA-512 in hexadecimal digits.
const checksumDigits = 128

// CheckBackingImage refuses an image that cannot be (old nil: creation).
func CheckBackingImage(old, b *v1beta2.BackingImage) error {
	if b.DeletionTimestamp != nil {
		return nil
	}
	s := &b.Spec
	return firstOf(
		func() error {
			if old != nil {
				return checkBackingImageChange(old, b)
			}
			if err := naming.CheckName(b.Name); err != nil {
				return invalid("invalid name %s for backing image: %v", b.Name, err)
			}
			if why := RefusedSource(s.SourceType); why != "" {
				return invalid("backing image %s: %s", b.Name, why)
			}
			return nil
		},
		func() error { return checkChecksum(b) },
		func() error {
			if s.MinNumberOfCopies < 1 {
				return invalid("minNumberOfCopies of backing image %s is %d, it should be at least 1", b.Name, s.MinNumberOfCopies)
			}
			for _, tag := range slices.Concat(s.NodeSelector, s.DiskSelector) {
				if problems := naming.TagProblems(tag); len(problems) > 0 {
					return invalid("invalid tag %q in a selector of backing image %s: %s", tag, b.Name, strings.Join(problems, "; "))
				}
			}
			return nil
		},
		func() error { return checkSourceParameters(b, old == nil) },
		func() error {
			if old == nil && (s.Secret == "") != (s.SecretNamespace == "") {
				return invalid("backing image %s: secret is %q and secretNamespace is %q: give both, or none", b.Name, s.Secret,
					s.SecretNamespace)
			}
			return nil
		},
	)
}

// checkSourceParameters refuses parameters that no image can be made with, whatever there is in the
// cluster.
func checkSourceParameters(b *v1beta2.BackingImage, created bool) error {
	parameters := b.Spec.SourceParameters
	wrong := func(parameter string, why any) error {
		return invalid("invalid parameter %s for source type %s of backing image %s: %v", parameter, b.Spec.SourceType,
			b.Name, why)
	}
	switch b.Spec.SourceType {
	case v1beta2.BackingImageSourceTypeDownload:
		if err := checkImageURL(parameters[v1beta2.BackingImageParameterURL]); err != nil {
			return wrong(v1beta2.BackingImageParameterURL, err)
		}
	case v1beta2.BackingImageSourceTypeExportFromVolume:
		if !created {
			return nil
		}
		switch t := parameters[v1beta2.BackingImageParameterExportType]; {
		case parameters[v1beta2.BackingImageParameterVolumeName] == "":
			return wrong(v1beta2.BackingImageParameterVolumeName, "it is missing: name the volume")
		case t != v1beta2.BackingImageExportRaw && t != v1beta2.BackingImageExportQCOW2:
			return wrong(v1beta2.BackingImageParameterExportType, fmt.Sprintf("%.40q; %s and %s are possible", t,
				v1beta2.BackingImageExportRaw, v1beta2.BackingImageExportQCOW2))
		}
	case v1beta2.BackingImageSourceTypeRestore:
		if !created {
			return nil
		}
		if _, err := target.ParseImage(parameters[v1beta2.BackingImageParameterBackupURL]); err != nil {
			return wrong(v1beta2.BackingImageParameterBackupURL,
				fmt.Sprintf("%v; write <backup target>?backingImage=<name>", err))
		}
		limit := parameters[v1beta2.BackingImageParameterConcurrentLimit]
		if n, err := strconv.Atoi(limit); limit != "" && (err != nil || n < 1) {
			return wrong(v1beta2.BackingImageParameterConcurrentLimit, fmt.Sprintf("%.40q; give a number from 1 on", limit))
		}
	case v1beta2.BackingImageSourceTypeClone:
		if !created {
			return nil
		}
		if parameter, why := cloneProblem(b); why != "" {
			return wrong(parameter, why)
		}
	}
	return nil
}

// checkImageSource refuses a new image whose source is not there.
func (w world) checkImageSource(ctx context.Context, b *v1beta2.BackingImage) error {
	parameters := b.Spec.SourceParameters
	switch b.Spec.SourceType {
	case v1beta2.BackingImageSourceTypeExportFromVolume:
	case v1beta2.BackingImageSourceTypeClone:
		of, err := find(ctx, w, parameters[v1beta2.BackingImageParameterBackingImage], &v1beta2.BackingImage{})
		if err != nil {
			return err
		}
		if err := CheckClone(b, of); err != nil {
			return err
		}
		return w.checkImageKey(ctx, b)
	case v1beta2.BackingImageSourceTypeRestore:
		t, err := find(ctx, w, parameters[v1beta2.BackingImageParameterBackupTargetName], &v1beta2.BackupTarget{})
		if err != nil {
			return err
		}
		return CheckImageRestore(b, t)
	default:
		return nil
	}
	volume, err := find(ctx, w, parameters[v1beta2.BackingImageParameterVolumeName], &v1beta2.Volume{})
	if err != nil {
		return err
	}
	var s *v1beta2.Snapshot
	if name := parameters[v1beta2.BackingImageParameterSnapshotName]; name != "" && volume != nil {
		if s, err = find(ctx, w, name, &v1beta2.Snapshot{}); err != nil {
			return err
		}
	}
	return CheckExport(b, volume, s)
}

// CheckExport refuses to make an image of a volume that cannot be exported, or of a snapshot that
// is not the volume's. nil: there is none of the name.
func CheckExport(b *v1beta2.BackingImage, volume *v1beta2.Volume, s *v1beta2.Snapshot) error {
	name, snapshot := b.Spec.SourceParameters[v1beta2.BackingImageParameterVolumeName],
		b.Spec.SourceParameters[v1beta2.BackingImageParameterSnapshotName]
	refuse := func(format string, a ...any) error {
		return invalid("backing image %s cannot be exported from volume %s: %s", b.Name, name, fmt.Sprintf(format, a...))
	}
	switch {
	case volume == nil:
		return refuse("there is no such volume")
	case volume.DeletionTimestamp != nil:
		return refuse("the volume is being deleted")
	case volume.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return refuse("the volume is faulted; salvage it first")
	case snapshot == "":
		return nil
	case s == nil || s.Spec.Volume != name:
		return refuse("it has no snapshot %s; name one of those that it has, or none for its present content", snapshot)
	case s.DeletionTimestamp != nil || s.Status.MarkRemoved:
		return refuse("its snapshot %s is being deleted", snapshot)
	}
	return nil
}

// checkBackingImageChange refuses changes of what an image is.
func checkBackingImageChange(old, b *v1beta2.BackingImage) error {
	for _, field := range []struct{ name, was, is string }{
		{"secret", old.Spec.Secret, b.Spec.Secret},
		{"secretNamespace", old.Spec.SecretNamespace, b.Spec.SecretNamespace},
		{"dataEngine", string(old.Spec.DataEngine), string(b.Spec.DataEngine)},
	} {
		if field.was != "" && field.was != field.is {
			return invalid("spec.%s of backing image %s cannot be changed from %s to %q", field.name, b.Name, field.was,
				field.is)
		}
	}
	return nil
}

func checkChecksum(b *v1beta2.BackingImage) error {
	sum := b.Spec.Checksum
	digits := !strings.ContainsFunc(sum, func(c rune) bool { return !strings.ContainsRune("0123456789abcdef", c) })
	if sum != "" && (len(sum) != checksumDigits || !digits) {
		return invalid(
			"invalid checksum %.140q of backing image %s: give a SHA-512, %d hexadecimal digits in lower case, or none",
			sum, b.Name, checksumDigits)
	}
	return nil
}

// checkImageURL says what is wrong with the URL of an image. What its name stands for is judged
// where it is downloaded.
func checkImageURL(text string) error {
	u, err := url.ParseRequestURI(text)
	switch {
	case text == "":
		return fmt.Errorf("it is missing: give the URL of the image")
	case err != nil:
		return fmt.Errorf("%.200q is not a URL", text)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme %.20q; http and https are possible", u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("%.200q names no server", text)
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	a, err := netip.ParseAddr(name)
	own := err == nil && (a.Unmap().IsLoopback() || a.Unmap().IsUnspecified() || a.Unmap().IsLinkLocalUnicast())
	if own || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return fmt.Errorf("%s is an address of the node itself or of its link: give that of a server on the network", name)
	}
	return nil
}
