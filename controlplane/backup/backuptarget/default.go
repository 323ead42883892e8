package backuptarget

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// defaults is what ConfigMap longhorn-default-resource says of the target named default.
type defaults struct {
	// Text is what the ConfigMap has. Problem is why it is not taken over; empty: it is.
	Text, Problem string
	Spec          v1beta2.BackupTargetSpec
}

// defaultKey is the one key of the ConfigMap that is read.
const defaultKey = "default-resource.yaml"

// onConfigMap names the target that a ConfigMap is about.
func onConfigMap(cm *corev1.ConfigMap) []string {
	if cm.Name != naming.ConfigMapDefaultResource {
		return nil
	}
	return []string{naming.BackupTarget}
}

// readDefaults reads the ConfigMap; it returns nil if there is none.
func readDefaults(ctx context.Context, r client.Reader, namespace string) (*defaults, error) {
	var cm corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: naming.ConfigMapDefaultResource}, &cm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", naming.ConfigMapDefaultResource, err)
	}
	return parseDefaults(cm.Data[defaultKey]), nil
}

func parseDefaults(text string) *defaults {
	d := &defaults{Text: text}
	var says struct {
		URL    string `json:"backup-target"`
		Secret string `json:"backup-target-credential-secret"`
		Poll   any    `json:"backupstore-poll-interval"`
	}
	if err := yaml.Unmarshal([]byte(text), &says); err != nil {
		d.Problem = err.Error()
		return d
	}
	d.Spec.BackupTargetURL, d.Spec.CredentialSecret = says.URL, says.Secret
	if says.Poll != nil && says.Poll != "" {
		d.Spec.PollInterval = fmt.Sprint(says.Poll) + "s"
	}
	return d
}

// taken is the target as the ConfigMap has it, where that is another text than was last taken over:
// what a user has set before or since stands. It is nil if there is nothing to take over. A
// ConfigMap that never named a place changes nothing, and one with a Problem is noted only.
func (d *defaults) taken(t *v1beta2.BackupTarget) *v1beta2.BackupTarget {
	if d == nil {
		return nil
	}
	last, recorded := t.Annotations[naming.AnnotationConfigMapValue]
	if recorded && last == d.Text || !recorded && d.Spec.BackupTargetURL == "" && d.Problem == "" {
		return nil
	}
	c := t.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, naming.AnnotationConfigMapValue, d.Text)
	if d.Problem == "" && (recorded || t.Spec.BackupTargetURL == "") {
		c.Spec.BackupTargetURL, c.Spec.CredentialSecret = d.Spec.BackupTargetURL, d.Spec.CredentialSecret
		c.Spec.PollInterval = cmp.Or(d.Spec.PollInterval, c.Spec.PollInterval)
	}
	return c
}

// try asks the API server whether it would take the target so.
func (d *defaults) try(ctx context.Context, c client.Client, t *v1beta2.BackupTarget) error {
	taken := d.taken(t)
	if taken == nil || d.Problem != "" {
		return nil
	}
	err := c.Update(ctx, taken, client.DryRunAll)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		d.Problem = err.Error()
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the change itself finds out
	default:
		return err
	}
	return nil
}

// takeDefault has the target named default say what the ConfigMap does, or says why it does not.
func (p *pass) takeDefault() (d loop.Decision) {
	c := p.s.Default.taken(p.t)
	if c == nil {
		return d
	}
	d.Do = loop.Update{Object: c}
	if problem := p.s.Default.Problem; problem != "" {
		d.Events = []loop.Event{{Warning: true, Reason: naming.EventDefaultIgnored,
			Message: "ConfigMap " + naming.ConfigMapDefaultResource + ": " + defaultKey + " is not taken over: " + problem}}
	}
	return d
}
