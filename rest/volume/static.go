package volume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	restresource "ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

const (
	// claimPolls times claimPause is how long a PersistentVolume may take to be there for a claim:
	// Kubernetes has to see that it is new, or that its former claim is gone.
	claimPolls = 5
	claimPause = time.Second

	fsExt4 = "ext4"
	fsXFS  = "xfs"
	// minXFSSize is the smallest volume that mkfs.xfs takes.
	minXFSSize = 300 << 20

	// cryptoSecret is the Secret of encrypted volumes that name none.
	cryptoSecret = "longhorn-crypto"
)

// persistentVolumeOf finds the PersistentVolume that stands for a volume, besides one of some name;
// nil if there is none.
func persistentVolumeOf(ctx context.Context, o *serve.Objects,
	volume, besides string) (*corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := o.Live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	for i := range list.Items {
		csi := list.Items[i].Spec.CSI
		if csi != nil && csi.Driver == naming.CSIDriver && csi.VolumeHandle == volume && list.Items[i].Name != besides {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// errDeleting: the volume goes, and a claim for it would be bound to nothing.
var errDeleting = errors.New("the volume is being deleted")

// createPV makes a PersistentVolume for a volume that exists.
func (a *API) createPV(q *serve.Request) (any, error) {
	var in restresource.PVCreateInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), name, &v); err != nil {
		return nil, fmt.Errorf("failed to create PV for volume %s: %w", name, err)
	}
	if v.Status.IsStandby {
		return nil, fmt.Errorf("failed to create PV for standby volume %s", name)
	}
	if v.DeletionTimestamp != nil {
		return nil, fmt.Errorf("failed to create PV for volume %s: %w", name, errDeleting)
	}
	if err := a.addPV(q.Context(), q.Objects, &v, in); err != nil {
		return nil, fmt.Errorf("failed to create PV for volume %s: %w", name, err)
	}
	return show(q, name)
}

// classFor is the StorageClass of a PersistentVolume for which none is named: that of the volume
// which was backed up, else the one of the setting.
func classFor(ctx context.Context, o *serve.Objects, v *lh.Volume) (string, error) {
	if v.Spec.FromBackup != "" {
		var of lh.BackupVolume
		err := o.Get(ctx, naming.BackupVolumeName(v.Labels[naming.LabelBackupVolume], v.Spec.BackupTargetName), &of)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the backup volume of %s: %w", v.Spec.FromBackup, err)
		}
		if of.Status.StorageClassName != "" {
			return of.Status.StorageClassName, nil
		}
	}
	values, err := stored.Read(ctx, o.Live, o.Namespace)
	return values.String(setting.DefaultLonghornStaticStorageClass), err
}

func (a *API) addPV(ctx context.Context, o *serve.Objects, v *lh.Volume, in restresource.PVCreateInput) error {
	if v.Spec.AccessMode == lh.AccessModeReadWriteMany && !v.Spec.Migratable {
		return errors.New("no Pod could use it: a file system on several nodes (access mode rwx) needs shares, which " +
			"this version does not have; a block device on several nodes needs a migratable volume")
	}
	a.claims.Lock()
	defer a.claims.Unlock()
	have, err := persistentVolumeOf(ctx, o, v.Name, "")
	switch {
	case err != nil:
		return err
	case have != nil:
		return fmt.Errorf("volume already had PV %s", have.Name)
	}
	if in.PVName == "" {
		in.PVName = v.Name
	}
	switch in.FSType {
	case "":
		in.FSType = fsExt4
	case fsExt4, fsXFS:
	default:
		return fmt.Errorf("unknown file system type %q; use %s or %s", in.FSType, fsExt4, fsXFS)
	}
	if v.Spec.Migratable {
		in.FSType = "" // it is used as a block device
	}
	if in.FSType == fsXFS && v.Spec.Size < minXFSSize {
		return fmt.Errorf("a file system of type %s needs 300 MiB, the volume has %d bytes", fsXFS, v.Spec.Size)
	}
	if in.StorageClassName == "" {
		if in.StorageClassName, err = classFor(ctx, o, v); err != nil {
			return err
		}
	}
	if in.StorageClassName == naming.StaticStorageClass {
		if err := client.IgnoreAlreadyExists(o.Client.Create(ctx, staticClass())); err != nil {
			return fmt.Errorf("create StorageClass %s: %w", in.StorageClassName, err)
		}
	}
	return createOnly(ctx, o, persistentVolume(v, in), v.Name)
}

// createOnly creates the PersistentVolume of a volume, unless somebody else has made one in
// between, perhaps a manager that leads no longer: two would share one VolumeAttachment of
// Kubernetes on a node, and the end of one's Pod would take the volume from the other's.
func createOnly(ctx context.Context, o *serve.Objects, pv *corev1.PersistentVolume, volume string) error {
	if err := o.Client.Create(ctx, pv); err != nil {
		return err
	}
	other, err := persistentVolumeOf(ctx, o, volume, pv.Name)
	if err == nil && other == nil {
		return nil
	}
	if gone := client.IgnoreNotFound(o.Client.Delete(ctx, pv)); gone != nil {
		return errors.Join(err, fmt.Errorf("PV %s may be a second one, delete it: %w", pv.Name, gone))
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("volume already had PV %s", other.Name)
}

// staticClass is the class of volumes that were there before their claims. It lets claims grow.
func staticClass() *storagev1.StorageClass {
	yes, remove := true, corev1.PersistentVolumeReclaimDelete
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: naming.StaticStorageClass},
		Provisioner: naming.CSIDriver, ReclaimPolicy: &remove, AllowVolumeExpansion: &yes,
		Parameters: map[string]string{"staleReplicaTimeout": "30"}}
}

// accessModes are those of Kubernetes for ours.
func accessModes(v *lh.Volume) []corev1.PersistentVolumeAccessMode {
	switch v.Spec.AccessMode {
	case lh.AccessModeReadWriteMany:
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	case lh.AccessModeReadWriteOncePod:
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
}

// persistentVolume is the object for a volume. Its data outlives it: somebody else made them.
func persistentVolume(v *lh.Volume, in restresource.PVCreateInput) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	if v.Spec.Migratable {
		mode = corev1.PersistentVolumeBlock
	}
	attributes := map[string]string{
		"numberOfReplicas":    strconv.Itoa(v.Spec.NumberOfReplicas),
		"staleReplicaTimeout": strconv.Itoa(v.Spec.StaleReplicaTimeout),
	}
	for key, value := range map[string]string{"diskSelector": strings.Join(v.Spec.DiskSelector, ","),
		"nodeSelector": strings.Join(v.Spec.NodeSelector, ","), "backingImage": v.Spec.BackingImage} {
		if value != "" {
			attributes[key] = value
		}
	}
	for key, is := range map[string]bool{"encrypted": v.Spec.Encrypted, "migratable": v.Spec.Migratable} {
		if is {
			attributes[key] = "true"
		}
	}
	csi := &corev1.CSIPersistentVolumeSource{Driver: naming.CSIDriver, FSType: in.FSType, VolumeHandle: v.Name,
		VolumeAttributes: attributes}
	if v.Spec.Encrypted {
		secret := &corev1.SecretReference{Name: in.SecretName, Namespace: in.SecretNamespace}
		if secret.Name == "" {
			secret.Name = cryptoSecret
		}
		if secret.Namespace == "" {
			secret.Namespace = v.Namespace
		}
		csi.NodeStageSecretRef, csi.NodePublishSecretRef, csi.NodeExpandSecretRef = secret, secret, secret
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: in.PVName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(v.Spec.Size, resource.BinarySI),
			},
			AccessModes:                   accessModes(v),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			VolumeMode:                    &mode,
			StorageClassName:              in.StorageClassName,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: csi},
		},
	}
}

// createPVC makes a claim for the PersistentVolume of a volume.
func createPVC(q *serve.Request) (any, error) {
	var in restresource.PVCCreateInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), name, &v); err != nil {
		return nil, fmt.Errorf("failed to create PVC for volume %s: %w", name, err)
	}
	if v.Status.IsStandby {
		return nil, fmt.Errorf("failed to create PVC for standby volume %s", name)
	}
	if v.DeletionTimestamp != nil {
		return nil, fmt.Errorf("failed to create PVC for volume %s: %w", name, errDeleting)
	}
	if in.PVCName == "" {
		in.PVCName = name
	}
	err := errors.New("no namespace is named for it")
	if in.Namespace != "" {
		err = addPVC(q.Context(), q.Objects, &v, in)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create PVC for volume %s: %w", name, err)
	}
	return show(q, name)
}

func addPVC(ctx context.Context, o *serve.Objects, v *lh.Volume, in restresource.PVCCreateInput) error {
	pv, err := claimable(ctx, o, v.Name)
	if err != nil {
		return err
	}
	// A PersistentVolume that is available and has a claim is kept for it.
	if ref := pv.Spec.ClaimRef; ref != nil && pv.Status.Phase == corev1.VolumeAvailable {
		if ref.Namespace != in.Namespace || ref.Name != in.PVCName {
			return fmt.Errorf("its PV %s is reserved for PVC %s/%s", pv.Name, ref.Namespace, ref.Name)
		}
	} else if ref != nil {
		pv.Spec.ClaimRef = nil // of a claim that is gone
		if err := o.Client.Update(ctx, pv); err != nil {
			return fmt.Errorf("release PersistentVolume %s from its former claim: %w", pv.Name, err)
		}
	}
	return o.Client.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.PVCName},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      accessModes(v),
			StorageClassName: &pv.Spec.StorageClassName,
			VolumeMode:       pv.Spec.VolumeMode,
			VolumeName:       pv.Name,
			Resources:        corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		},
	})
}

// claimable waits until the PersistentVolume of a volume can be claimed.
func claimable(ctx context.Context, o *serve.Objects, volume string) (*corev1.PersistentVolume, error) {
	for range claimPolls {
		pv, err := persistentVolumeOf(ctx, o, volume, "")
		switch {
		case err != nil:
			return nil, err
		case pv == nil:
			return nil, errors.New("cannot found PV; create it first")
		case pv.Status.Phase == corev1.VolumeAvailable || pv.Status.Phase == corev1.VolumeReleased:
			return pv, nil
		case pv.Status.Phase == corev1.VolumeBound:
			return nil, fmt.Errorf("volume already had PVC %s/%s", pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(claimPause):
		}
	}
	return nil, fmt.Errorf("its PV is neither available nor released after %s", claimPolls*claimPause)
}
