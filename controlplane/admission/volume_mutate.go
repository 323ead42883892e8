package admission

import (
	"context"
	"fmt"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var volumes = kind[*v1beta2.Volume]{
	plural:     "volumes",
	create:     func() *v1beta2.Volume { return &v1beta2.Volume{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator: func(ctx context.Context, w world, r request[*v1beta2.Volume]) error {
		read := w.cachedSettings
		if r.created() {
			read = w.settings
		}
		values, err := read(ctx)
		if err != nil {
			return err
		}
		if r.created() && r.new.Spec.FromBackup != "" {
			if err := w.restoreFrom(ctx, r.new); err != nil {
				return err
			}
		}
		if r.created() {
			if err := w.cloneFrom(ctx, r.new); err != nil {
				return err
			}
		}
		MutateVolume(r.old, r.new, values)
		return nil
	},
	checker: checkVolumeRequest,
	goes: func(ctx context.Context, w world, v *v1beta2.Volume) string {
		var list v1beta2.SnapshotList
		err := w.List(ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels(naming.VolumeLabels(v.Name)))
		if err != nil {
			return "" // the volume goes whatever it has
		}
		return LostWithVolume(v.Name, list.Items)
	},
}

// cloneFrom completes a new volume that is filled from another one: it stands on the same image.
func (w world) cloneFrom(ctx context.Context, v *v1beta2.Volume) error {
	name, _, ok := naming.ParseCloneSource(v.Spec.DataSource)
	if !ok {
		return nil // refused, if it says anything
	}
	source, err := w.volume(ctx, name)
	if err == nil && source != nil {
		orElse(&v.Spec.BackingImage, source.Spec.BackingImage)
	}
	return err
}

// LostWithVolume says which snapshots that VolumeSnapshots stand on are deleted together with a
// volume; empty: none.
func LostWithVolume(volume string, snapshots []v1beta2.Snapshot) string {
	var names []string
	for i := range snapshots {
		s := &snapshots[i]
		labels := s.Spec.Labels
		if len(labels) == 0 {
			labels = s.Status.Labels
		}
		if !s.Status.MarkRemoved && naming.IsOrderedByCSI(s.Name, labels) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("with volume %s go snapshots that VolumeSnapshots stand on: %s", volume, some(names))
}

// sizeGrain is what volume sizes are a multiple of: the unit of backups.
const sizeGrain = 2 << 20

// RoundSize rounds a size in bytes up to a multiple of 2 MiB. Sizes that are not positive, or too
// large to round, stay as they are, for CheckVolume to refuse.
func RoundSize(size int64) int64 {
	rounded := (size + sizeGrain - 1) / sizeGrain * sizeGrain
	if size <= 0 || rounded < size {
		return size
	}
	return rounded
}

// MutateVolume completes a volume from the settings (old nil: creation).
func MutateVolume(old, v *v1beta2.Volume, s setting.Values) {
	if old == nil {
		v.Name = naming.CorrectName(v.Name)
		v.Spec.Image = s.String(setting.DefaultEngineImage)
		v.Spec.EngineImage = v.Spec.Image
	}
	completeVolume(old, v, s)
	if old == nil {
		completeNewVolume(v, s)
	}
	addLabels(v, map[string]string{
		naming.LabelVolume:           v.Name,
		naming.LabelBackupTarget:     v.Spec.BackupTargetName,
		naming.LabelVolumeAccessMode: string(v.Spec.AccessMode),
		naming.LabelSettingPrefix +
			setting.ReplicaAutoBalance: ignoredLabel(string(v.Spec.ReplicaAutoBalance)),
		naming.LabelSettingPrefix +
			setting.SnapshotDataIntegrity: ignoredLabel(string(v.Spec.SnapshotDataIntegrity)),
		naming.LabelSettingPrefix +
			setting.RemoveSnapshotsDuringFilesystemTrim: ignoredLabel(string(v.Spec.UnmapMarkSnapChainRemoved)),
	})
	if v.DeletionTimestamp == nil && !naming.ChoosesJobs(v.Labels) {
		addLabels(v, map[string]string{
			naming.LabelRecurringJobGroupPrefix + v1beta2.RecurringJobGroupDefault: naming.Enabled,
		})
	}
	addFinalizer(v)
}

// ignoredLabel is the value of a label that marks volumes which follow a setting; empty takes the
// label away.
func ignoredLabel(override string) string {
	if override == naming.SettingIgnored {
		return naming.SettingIgnored
	}
	return ""
}

// completeNewVolume adds what is decided once, at creation.
func completeNewVolume(v *v1beta2.Volume, s setting.Values) {
	if v.Spec.DataLocality == v1beta2.DataLocalityStrictLocal {
		v.Spec.RevisionCounterDisabled = true
	}
	if n := s.Int(setting.SnapshotSpaceFactor); n > 0 && v.Annotations[naming.AnnotationSnapshotSpace] == "" {
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, naming.AnnotationSnapshotSpace, strconv.Itoa(n))
	}
	if source, _, ok := naming.ParseCloneSource(v.Spec.DataSource); ok {
		addLabels(v, map[string]string{naming.LabelCloneSourceVolume: source})
	}
}

// completeVolume fills in what may never be empty.
func completeVolume(old, v *v1beta2.Volume, s setting.Values) {
	spec := &v.Spec
	if old != nil {
		keepAbsent(&old.Spec, spec)
	}
	spec.Size = RoundSize(spec.Size)
	if old != nil {
		completeOlder(&old.Spec, spec, s)
		spec.Image = v1beta2.MergeImages(old.Spec.Image, spec.Image, spec.EngineImage)
		spec.EngineImage = spec.Image
		if spec.Size > old.Spec.Size && spec.SnapshotMaxSize != 0 {
			spec.SnapshotMaxSize = max(spec.SnapshotMaxSize, 2*spec.Size)
		}
	}
	fillIn(old == nil, spec, s)
	if spec.DataSource != "" {
		orElse(&spec.CloneMode, v1beta2.CloneModeFullCopy)
	}
	if pinsOneZone(spec.TopologyRequirement) && spec.ReplicaZoneSoftAntiAffinity == v1beta2.OverrideIgnored {
		spec.ReplicaZoneSoftAntiAffinity = v1beta2.OverrideEnabled
	}
	if spec.BackupBlockSize == 0 {
		spec.BackupBlockSize = int64(s.Int(setting.DefaultBackupBlockSize)) << 20
		if spec.Standby {
			spec.BackupBlockSize = v1beta2.BackupBlockSize2Mi
		}
	}
}

// fillIn gives the fields that nothing was said about what the table has for them.
func fillIn(isNew bool, spec *v1beta2.VolumeSpec, s setting.Values) {
	for i := range volumefield.All {
		f := &volumefield.All[i]
		if f.Kind == volumefield.Own {
			continue
		}
		switch field := f.In(spec); {
		case !field.IsZero():
		case f.Kind == volumefield.Tags:
			field.Set(reflect.ValueOf([]string{}))
		case f.Default != "":
			field.SetString(f.Default)
		case f.Setting == "" || f.Keeps && !isNew:
		case f.Kind == volumefield.Number:
			field.SetInt(int64(s.Int(f.Setting)))
		default:
			field.SetString(s.String(f.Setting))
		}
	}
}

// keepAbsent leaves a volume what it had where a change says nothing, or null, about it: clients
// that send whole objects do not know every field, and none of these can be nothing.
func keepAbsent(old, spec *v1beta2.VolumeSpec) {
	for i := range volumefield.All {
		if f := &volumefield.All[i]; f.Keeps && f.In(spec).IsZero() {
			f.In(spec).Set(f.In(old))
		}
	}
	if spec.Image == "" && spec.EngineImage == "" {
		spec.Image = old.Image
	}
}

// completeOlder fills in what a volume of an older version never had, as that version treated it:
// the defaults of new volumes do not count.
func completeOlder(old, spec *v1beta2.VolumeSpec, s setting.Values) {
	if old.DataLocality == "" {
		orElse(&spec.DataLocality, v1beta2.DataLocalityDisabled)
	}
	orElse(&spec.BackupCompressionMethod, v1beta2.BackupCompressionGzip)
	block := int64(s.Int(setting.DefaultBackupBlockSize)) << 20
	if old.BackupBlockSize == 0 && spec.BackupBlockSize == 0 && spec.Size%block != 0 {
		spec.BackupBlockSize = v1beta2.BackupBlockSize2Mi
	}
}

// pinsOneZone tells whether there are terms and all name the same, non-empty zone.
func pinsOneZone(terms []v1beta2.TopologyTerm) bool {
	for _, t := range terms {
		if t.Zone == "" || t.Zone != terms[0].Zone {
			return false
		}
	}
	return len(terms) > 0
}

func orElse[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}
