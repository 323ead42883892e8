package claim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// templateHash is the label that a Deployment puts on its Pods and into the name of its
// ReplicaSets.
const templateHash = "pod-template-hash"

// decide is the decision table of docs/guide/claims-of-volumes.md.
func decide(now time.Time, v *v1beta2.Volume, g seen) loop.Decision {
	k, at := &v.Status.KubernetesStatus, now.UTC().Format(time.RFC3339)
	inherit(k, g.Backed, at)
	k.PVName, k.PVStatus = "", ""
	if g.PV != nil {
		k.PVName, k.PVStatus = g.PV.Name, string(g.PV.Status.Phase)
	}
	switch {
	case g.PV != nil && bound(g.PV):
		ref := g.PV.Spec.ClaimRef
		if k.Namespace != ref.Namespace || k.PVCName != ref.Name {
			k.WorkloadsStatus, k.LastPodRefAt = nil, "" // those of another claim
		}
		k.Namespace, k.PVCName, k.LastPVCRefAt = ref.Namespace, ref.Name, ""
	case k.PVCName != "" && k.LastPVCRefAt == "":
		k.LastPVCRefAt = at
	}
	switch pods := workloads(g.Pods); {
	case len(pods) > 0:
		k.WorkloadsStatus, k.LastPodRefAt = pods, ""
	case len(k.WorkloadsStatus) > 0 && k.LastPodRefAt == "":
		k.LastPodRefAt = at
	}
	noteContent(now, v, g)
	if followed := followClaim(v, g.Source, g.MayLeave); followed != nil {
		return loop.Decision{Do: loop.Update{Object: followed}}
	}
	return tellPV(v, g.PV)
}

// followClaim returns the volume with the recurring jobs and groups that its claim chooses; nil if
// it has them, or the claim is no source. Whoever chooses none is in group default, as admission
// has it; whoever is in it stays there, unless the claim may leave.
func followClaim(v *v1beta2.Volume, source *corev1.PersistentVolumeClaim, mayLeave bool) *v1beta2.Volume {
	if source == nil || v.DeletionTimestamp != nil {
		return nil
	}
	const inDefault = naming.LabelRecurringJobGroupPrefix + v1beta2.RecurringJobGroupDefault
	wants, has := chosen(source.Labels), chosen(v.Labels)
	stays := !mayLeave && (len(has) == 0 || has[inDefault] != "")
	if len(wants) == 0 || stays {
		wants[inDefault] = naming.Enabled
	}
	if maps.Equal(has, wants) {
		return nil
	}
	c := v.DeepCopy()
	maps.DeleteFunc(c.Labels, func(key, _ string) bool { return has[key] != "" })
	for key, value := range wants {
		metav1.SetMetaDataLabel(&c.ObjectMeta, key, value)
	}
	return c
}

// chosen are the labels that choose recurring jobs and groups.
func chosen(labels map[string]string) map[string]string {
	jobs := map[string]string{}
	for key, value := range labels {
		if naming.ChoosesJob(key, value) {
			jobs[key] = value
		}
	}
	return jobs
}

// tellPV has the PersistentVolume say why the volume has no place for some replica, in an
// annotation that is empty once it has one for each.
func tellPV(v *v1beta2.Volume, pv *corev1.PersistentVolume) loop.Decision {
	if pv == nil || pv.DeletionTimestamp != nil || v.DeletionTimestamp != nil {
		return loop.Decision{}
	}
	has, there := pv.Annotations[naming.AnnotationVolumeSchedulingError]
	wants, scheduled := "", v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	if scheduled.Status == v1beta2.ConditionFalse {
		wants = scheduled.Message
	}
	if has == wants && (there || wants == "") {
		return loop.Decision{}
	}
	c := pv.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, naming.AnnotationVolumeSchedulingError, wants)
	return loop.Decision{Do: loop.Update{Object: c}}
}

// noteContent notes for good that a Pod has run with the volume: the CSI driver formats no such
// volume. Pods run when all of their volumes are mounted.
func noteContent(now time.Time, v *v1beta2.Volume, g seen) {
	if v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionHasContent) {
		return
	}
	for _, p := range g.Pods {
		if p.Status.Phase == corev1.PodRunning {
			v.Status.Conditions, _ = v1beta2.SetCondition(v.Status.Conditions, v1beta2.Condition{
				Type: v1beta2.VolumeConditionHasContent, Status: v1beta2.ConditionTrue, Reason: v1beta2.VolumeReasonPodRan,
				Message: fmt.Sprintf("Pod %s/%s has run with it", p.Namespace, p.Name)}, now)
			return
		}
	}
}

// workloads are the Pods that have not ended, by name.
func workloads(pods []*corev1.Pod) (out []v1beta2.WorkloadStatus) {
	for _, p := range pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		w := v1beta2.WorkloadStatus{PodName: p.Name, PodStatus: string(p.Status.Phase)}
		if of := metav1.GetControllerOf(p); of != nil {
			w.WorkloadName, w.WorkloadType = of.Name, of.Kind
			// A ReplicaSet of a Deployment has the Deployment's name and the hash of the Pods' template.
			hash := p.Labels[templateHash]
			if deployment, ok := strings.CutSuffix(of.Name, "-"+hash); ok && hash != "" && of.Kind == "ReplicaSet" {
				w.WorkloadName, w.WorkloadType = deployment, "Deployment"
			}
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b v1beta2.WorkloadStatus) int { return cmp.Compare(a.PodName, b.PodName) })
	return out
}
