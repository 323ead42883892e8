package e2e

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// hangingPod makes a Pod of a StatefulSet that uses a volume and hangs on a node that is down, and
// waits until it and the attachment of its volume to the node are gone.
func (c *cluster) hangingPod(ks kubernetes.Interface, node, volume string) {
	c.t.Helper()
	ctx, name := context.Background(), "hangs-on-"+node
	yes, grace := true, int64(1)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: volume}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	at := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	at.Spec.Attacher, at.Spec.NodeName, at.Spec.Source.PersistentVolumeName = "driver.longhorn.io", node, &name
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set",
			UID: types.UID("set"), Controller: &yes}}}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	pods, attachments := ks.CoreV1().Pods(namespace), ks.StorageV1().VolumeAttachments()
	_, errPV := ks.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	_, errAt := attachments.Create(ctx, at, metav1.CreateOptions{})
	_, errPod := pods.Create(ctx, pod, metav1.CreateOptions{})
	err := errors.Join(errPV, errAt, errPod)
	if err == nil {
		err = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the Pod that hangs is gone, and the attachment", func(ctx context.Context) error {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("Pod %s is there", name)
		}
		if apierrors.IsNotFound(err) {
			if _, err = attachments.Get(ctx, name, metav1.GetOptions{}); err == nil {
				return fmt.Errorf("VolumeAttachment %s is there", name)
			}
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err := ks.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}
