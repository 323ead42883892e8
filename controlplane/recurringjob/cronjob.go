package recurringjob

import (
	"encoding/json"
	"path"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// backoffLimit is how often a failed run is repeated.
const backoffLimit = 3

// podSettings are what shapes CronJobs besides their RecurringJobs.
type podSettings struct {
	image, serviceAccount string
	imagePullPolicy       corev1.PullPolicy
	registrySecret        string
	priorityClass         string
	tolerations           []corev1.Toleration
	nodeSelector          map[string]string
	// succeeded and failed are how many ended runs are kept.
	succeeded, failed int32
}

// shaping are the settings in podSettings.
var shaping = []string{setting.SystemManagedPodsImagePullPolicy, setting.RegistrySecret, setting.PriorityClass,
	setting.TaintToleration, setting.SystemManagedComponentsNodeSelector, setting.RecurringSuccessfulJobsHistoryLimit,
	setting.RecurringFailedJobsHistoryLimit}

func settingsFrom(v setting.Values, image, serviceAccount string) podSettings {
	tolerations, selector := setting.ManagedPods(v)
	return podSettings{
		image: image, serviceAccount: serviceAccount,
		imagePullPolicy: instancemanager.PullPolicy(v.String(setting.SystemManagedPodsImagePullPolicy)),
		registrySecret:  v.String(setting.RegistrySecret),
		priorityClass:   v.String(setting.PriorityClass),
		tolerations:     tolerations,
		nodeSelector:    selector,
		succeeded:       int32(v.Int(setting.RecurringSuccessfulJobsHistoryLimit)),
		failed:          int32(v.Int(setting.RecurringFailedJobsHistoryLimit)),
	}
}

// Labels are on the CronJob of a job, and on its Jobs and Pods.
func Labels(job string) map[string]string {
	return map[string]string{naming.LabelRecurringJobOwner: job}
}

// cronJobFor returns the CronJob of a job. Its specification is noted beside it as it is asked for:
// the API server fills in defaults.
func cronJobFor(j *v1beta2.RecurringJob, s podSettings) *batchv1.CronJob {
	yes, retries, suspended := true, int32(backoffLimit), j.Spec.Task == v1beta2.RecurringJobTaskSystemBackup
	c := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name, Labels: Labels(j.Name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1beta2.GroupVersion.String(), Kind: kind, Name: j.Name,
				UID: j.UID, Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Spec: batchv1.CronJobSpec{
			Schedule:                   j.Spec.Cron,
			ConcurrencyPolicy:          batchv1.ForbidConcurrent,
			Suspend:                    &suspended,
			SuccessfulJobsHistoryLimit: &s.succeeded,
			FailedJobsHistoryLimit:     &s.failed,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: Labels(j.Name)},
				Spec: batchv1.JobSpec{
					BackoffLimit: &retries,
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: Labels(j.Name)},
						Spec:       podFor(j, s),
					},
				},
			},
		},
	}
	text, err := json.Marshal(c.Spec)
	if err != nil {
		panic(err) // structs of the API always marshal
	}
	c.Annotations = map[string]string{naming.AnnotationLastCronJobSpec: string(text)}
	return c
}

// TokenFile has what the Pods of jobs show the managers: a token that is of no use to anybody else.
const (
	TokenFile   = "/var/run/secrets/longhorn/token"
	tokenVolume = "token"
)

// nobodyID is the user of Pods that need no right on their node.
const nobodyID = 65534

func podFor(j *v1beta2.RecurringJob, s podSettings) corev1.PodSpec {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	no, yes, nobody := false, true, int64(nobodyID)
	pod := corev1.PodSpec{
		// The container is started again in its Pod: a run is repeated under the name it began with.
		RestartPolicy:      corev1.RestartPolicyOnFailure,
		ServiceAccountName: s.serviceAccount,
		PriorityClassName:  s.priorityClass,
		Tolerations:        s.tolerations,
		NodeSelector:       s.nodeSelector,
		Containers: []corev1.Container{{
			Name:            strings.NewReplacer(".", "-", "_", "-").Replace(j.Name),
			Image:           s.image,
			ImagePullPolicy: s.imagePullPolicy,
			Command:         []string{"longhorn-manager", "recurring-job", j.Name},
			Env:             []corev1.EnvVar{field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")},
			// It talks to the API server and to managers.
			SecurityContext: &corev1.SecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &nobody, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}},
	}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: tokenVolume, MountPath: path.Dir(TokenFile), ReadOnly: true}}
	token := &corev1.ServiceAccountTokenProjection{Path: path.Base(TokenFile), Audience: naming.TokenAudience}
	pod.Volumes = []corev1.Volume{{Name: tokenVolume, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: token}}},
	}}}
	if s.registrySecret != "" {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: s.registrySecret}}
	}
	return pod
}
