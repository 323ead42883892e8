package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group, Version and Namespace of all objects.
const (
	Group     = "longhorn.io"
	Version   = "v1beta2"
	Namespace = "longhorn-system"
)

// Finalizer delays the deletion of an object until its controller has cleaned up. Setting, InstanceManager,
// RecurringJob and SystemRestore do not carry it.
const Finalizer = "longhorn.io"

// GroupVersion is longhorn.io/v1beta2.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme registers all kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	for _, k := range kinds {
		s.AddKnownTypes(GroupVersion, k.Object, k.List)
	}
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Kind describes one kind of the group. Object and List are empty prototypes: copy them before use.
//
// +kubebuilder:object:generate=false
type Kind struct {
	Name, Plural, Singular, ShortName string
	Object, List                      runtime.Object
}

// Kinds returns a description of every kind, volumes first.
func Kinds() []Kind {
	return append([]Kind(nil), kinds...)
}

var kinds = []Kind{
	{"Volume", "volumes", "volume", "lhv", &Volume{}, &VolumeList{}},
	{"Engine", "engines", "engine", "lhe", &Engine{}, &EngineList{}},
	{"Replica", "replicas", "replica", "lhr", &Replica{}, &ReplicaList{}},
	{"EngineImage", "engineimages", "engineimage", "lhei", &EngineImage{}, &EngineImageList{}},
	{"InstanceManager", "instancemanagers", "instancemanager", "lhim", &InstanceManager{}, &InstanceManagerList{}},
	{"Node", "nodes", "node", "lhn", &Node{}, &NodeList{}},
	{"Setting", "settings", "setting", "lhs", &Setting{}, &SettingList{}},
	{"BackingImage", "backingimages", "backingimage", "lhbi", &BackingImage{}, &BackingImageList{}},
	{"BackingImageManager", "backingimagemanagers", "backingimagemanager", "lhbim",
		&BackingImageManager{}, &BackingImageManagerList{}},
	{"BackingImageDataSource", "backingimagedatasources", "backingimagedatasource", "lhbids",
		&BackingImageDataSource{}, &BackingImageDataSourceList{}},
	{"Backup", "backups", "backup", "lhb", &Backup{}, &BackupList{}},
	{"BackupVolume", "backupvolumes", "backupvolume", "lhbv", &BackupVolume{}, &BackupVolumeList{}},
	{"BackupTarget", "backuptargets", "backuptarget", "lhbt", &BackupTarget{}, &BackupTargetList{}},
	{"BackupBackingImage", "backupbackingimages", "backupbackingimage", "lhbbi",
		&BackupBackingImage{}, &BackupBackingImageList{}},
	{"Snapshot", "snapshots", "snapshot", "lhsnap", &Snapshot{}, &SnapshotList{}},
	{"RecurringJob", "recurringjobs", "recurringjob", "lhrj", &RecurringJob{}, &RecurringJobList{}},
	{"ShareManager", "sharemanagers", "sharemanager", "lhsm", &ShareManager{}, &ShareManagerList{}},
	{"Orphan", "orphans", "orphan", "lho", &Orphan{}, &OrphanList{}},
	{"VolumeAttachment", "volumeattachments", "volumeattachment", "lhva", &VolumeAttachment{}, &VolumeAttachmentList{}},
	{"SupportBundle", "supportbundles", "supportbundle", "lhbundle", &SupportBundle{}, &SupportBundleList{}},
	{"SystemBackup", "systembackups", "systembackup", "lhsb", &SystemBackup{}, &SystemBackupList{}},
	{"SystemRestore", "systemrestores", "systemrestore", "lhsr", &SystemRestore{}, &SystemRestoreList{}},
}
