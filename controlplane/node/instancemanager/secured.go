package instancemanager

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/mtls"
)

// podIPField is the field selector by which the API server finds Pods by address.
const podIPField = "status.podIP"

// Pods remembers on the Pods of instance managers, and of those that hold backing images, that they
// have shown a certificate: the note is there for every manager and every later leader, belongs to
// one UID, and goes with it.
type Pods struct {
	// Client reads live: what another manager noted a moment ago counts.
	Client    client.Client
	Namespace string
}

var _ mtls.Pods = (*Pods)(nil)

// answering selects the Pods that controllers connect to.
var answering = labels.NewSelector().Add(component(naming.ComponentInstanceManager,
	naming.ComponentBackingImageManager, naming.ComponentBackingImageDataSource))

func component(names ...string) labels.Requirement {
	r, err := labels.NewRequirement(naming.LabelComponent, selection.In, names)
	if err != nil {
		panic(err) // constants
	}
	return *r
}

// At implements mtls.Pods. On a node's own network an address is shared; the newest Pod there is
// the one that serves.
func (p *Pods) At(ctx context.Context, ip string) (mtls.Pod, error) {
	var list corev1.PodList
	err := p.Client.List(ctx, &list, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: answering},
		client.MatchingFields{podIPField: ip})
	if err != nil {
		return mtls.Pod{}, fmt.Errorf("list Pods at %s: %w", ip, err)
	}
	var found *corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if !ended(pod) && (found == nil || found.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			found = pod
		}
	}
	if found == nil {
		return mtls.Pod{}, fmt.Errorf("no Pod of an instance manager or of backing images runs at %s", ip)
	}
	return mtls.Pod{Name: found.Name, UID: string(found.UID),
		Secured: found.Annotations[naming.AnnotationTLSSeen] != ""}, nil
}

// NoteSecured implements mtls.Pods. The API server refuses it if a Pod of another UID has taken the
// name.
func (p *Pods) NoteSecured(ctx context.Context, seen mtls.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": seen.UID, "annotations": map[string]string{naming.AnnotationTLSSeen: "true"},
	}})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = p.Namespace, seen.Name
	return p.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))
}

// certificateRetry is how soon a Pod that waits for a certificate is decided again: a Secret wakes
// nobody.
const certificateRetry = 2 * time.Second

// Plaintext says what a new instance manager does while there is no certificate.
type Plaintext struct {
	// For names those for whom it has to speak plaintext: images of managers that look for no
	// certificate. Empty: it answers nobody before there is one.
	For string
	// Wait: there will be a certificate soon, and it is of no use to start before.
	Wait bool
}

// Apply has a Pod speak plaintext, or never: managers do not speak plaintext to it from the
// beginning, as to one that has shown a certificate.
func (p Plaintext) Apply(pod *corev1.Pod) {
	if p.For == "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, naming.AnnotationTLSSeen, "true")
		return
	}
	c := &pod.Spec.Containers[0]
	c.Args = append(c.Args, "--allow-plaintext", p.For)
}
