package manager

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/node/engineimage"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// Setting current-longhorn-version is the version of the newest manager that has led this cluster.
// An older one must not even begin: it would install its definitions of our kinds, and the API
// server would drop from all objects the fields that those do not have. In a rolling upgrade the
// managers that have not been replaced yet go on; one that ends is not started again until it is
// replaced.

// ledBy reads the setting that says which version has led the cluster, nil in a new cluster. It
// tries until that is known.
func ledBy(ctx context.Context, c client.Reader, namespace string) (s *v1beta2.Setting, err error) {
	err = persist(ctx, "read which version has led", func(ctx context.Context) error {
		s = &v1beta2.Setting{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: setting.CurrentLonghornVersion}, s)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			s, err = nil, nil
		}
		return err
	})
	return s, err
}

// refuseOlder ends a manager that is older than one that has led the cluster, before it has written
// anything but the event that says so.
func refuseOlder(ctx context.Context, c client.Client, cfg Common) error {
	s, err := ledBy(ctx, c, cfg.Namespace)
	if err != nil {
		return err
	}
	if err = older(s, cfg.Version); err == nil {
		return nil
	}
	tell(ctx, c, settingReference(s), corev1.EventTypeWarning, naming.EventFailedUpgradePreCheck,
		"On node "+cfg.NodeName+": "+err.Error())
	return err
}

// older is why a manager of a version may not begin: a later one has led.
func older(led *v1beta2.Setting, mine string) error {
	if led == nil || !setting.Later(led.Value, mine) {
		return nil
	}
	return fmt.Errorf("this manager is version %s, and the cluster has been led by version %s, whose objects it does not "+
		"know: install version %s or a later one; going back is not supported", mine, led.Value, led.Value)
}

// ErrUpgradeRefused: managers of this version would not begin.
var ErrUpgradeRefused = errors.New("refused before anything was changed")

// checkUpgrade judges as the managers of a version will when they start, and changes nothing.
func checkUpgrade(ctx context.Context, c client.Reader, namespace, mine string) error {
	if err := refuseLegacy(ctx, c, namespace); err != nil {
		return refusedUnless(ctx, err)
	}
	s, err := ledBy(ctx, c, namespace)
	if err != nil {
		return err
	}
	return refusedUnless(ctx, older(s, mine))
}

// refusedUnless marks a verdict; that the API server has not answered in time is none.
func refusedUnless(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUpgradeRefused, err)
}

// noteUpgrade tells of the first time that a version leads: whether every engine image in use can
// still be worked with. The setting is brought up to date afterwards, by its controller.
func noteUpgrade(ctx context.Context, c client.Client, cfg Common) error {
	s, err := ledBy(ctx, c, cfg.Namespace)
	if err != nil || s == nil || !setting.Later(cfg.Version, s.Value) {
		return err
	}
	var images v1beta2.EngineImageList
	if err := persist(ctx, "list engine images", func(ctx context.Context) error {
		return c.List(ctx, &images, client.InNamespace(cfg.Namespace))
	}); err != nil {
		return err
	}
	kind, reason := corev1.EventTypeNormal, naming.EventPassedUpgradeCheck
	message := fmt.Sprintf("Upgraded from version %s to %s", s.Value, cfg.Version)
	if strange := strangers(images.Items); len(strange) > 0 {
		kind, reason = corev1.EventTypeWarning, naming.EventFailedUpgradePostCheck
		message += ", which cannot work with engine images that are in use: " + strings.Join(strange, ", ") +
			". Their volumes go on; upgrade them to the default engine image"
	}
	tell(ctx, c, settingReference(s), kind, reason, message)
	return nil
}

// strangers are the images in use whose programs this manager does not understand.
func strangers(images []v1beta2.EngineImage) (names []string) {
	for i := range images {
		st := &images[i].Status
		if st.RefCount > 0 && st.Version != "" && !engineimage.Understood(st.CLIAPIMinVersion, st.CLIAPIVersion) {
			names = append(names, images[i].Spec.Image)
		}
	}
	slices.Sort(names)
	return names
}

func settingReference(s *v1beta2.Setting) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "Setting",
		Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// tell writes an event about an object. That it cannot be written is no reason for anything else.
func tell(ctx context.Context, c client.Client, about corev1.ObjectReference, kind, reason, message string) {
	if err := count(ctx, c, about, kind, reason, message); err != nil {
		slog.Warn("cannot write an event", "reason", reason, "message", message, "err", err)
	}
}

// count writes an event about an object; the same one again is counted.
func count(ctx context.Context, c client.Client, about corev1.ObjectReference, kind, reason, message string) error {
	sum := fnv.New64a()
	sum.Write([]byte(string(about.UID) + reason + message))
	now := metav1.NewTime(time.Now())
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%x", about.Name, sum.Sum64())},
		InvolvedObject: about,
		Type:           kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: naming.EventSource("setting")},
	}
	err := c.Create(ctx, e)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var before corev1.Event
	if err := c.Get(ctx, client.ObjectKeyFromObject(e), &before); err != nil {
		return err
	}
	again := before.DeepCopy()
	again.Count, again.LastTimestamp = before.Count+1, now
	return c.Patch(ctx, again, client.MergeFrom(&before))
}
