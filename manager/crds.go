package manager

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

const (
	establishPoll  = 50 * time.Millisecond
	establishLimit = 30 * time.Second
)

// installCRDs brings the definitions of all kinds up to date and waits until the API server serves
// them. Several managers may do so at once: each write carries the version it was based on, and the
// loser looks again. Definitions that a later version than this one has installed stay: in a
// rolling upgrade a manager that has not been replaced yet may be started anew, and would take
// fields out of all objects that a newer one has written.
func installCRDs(ctx context.Context, c client.Client, version string) error {
	all, err := crd.All()
	if err != nil {
		return err
	}
	for _, wanted := range all {
		if err := installCRD(ctx, c, wanted, version); err != nil {
			return fmt.Errorf("install CRD %s: %w", wanted.Name, err)
		}
	}
	for _, wanted := range all {
		if err := awaitEstablished(ctx, c, wanted.Name); err != nil {
			return err
		}
	}
	return nil
}

func installCRD(ctx context.Context, c client.Client, wanted *apiextensionsv1.CustomResourceDefinition,
	version string) error {
	if setting.IsVersion(version) {
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, naming.AnnotationInstalledBy, version)
	}
	return retryConflicts(ctx, func() error {
		var present apiextensionsv1.CustomResourceDefinition
		err := c.Get(ctx, client.ObjectKeyFromObject(wanted), &present)
		if apierrors.IsNotFound(err) {
			err = c.Create(ctx, wanted.DeepCopy())
			if err == nil {
				slog.Info("installed CRD", "crd", wanted.Name)
			}
			return err
		}
		if err != nil {
			return err
		}
		if by := present.Annotations[naming.AnnotationInstalledBy]; setting.Later(by, version) {
			slog.Warn("definitions of a later version stay", "crd", wanted.Name, "installed by", by, "this is", version)
			return nil
		}
		updated := present.DeepCopy()
		keepServerDefaults(wanted, &present)
		updated.Spec.Versions, updated.Spec.Names = wanted.Spec.Versions, wanted.Spec.Names
		if updated.Labels == nil {
			updated.Labels = map[string]string{}
		}
		for k, v := range wanted.Labels {
			updated.Labels[k] = v
		}
		for k, v := range wanted.Annotations {
			metav1.SetMetaDataAnnotation(&updated.ObjectMeta, k, v)
		}
		if equality.Semantic.DeepEqual(&present, updated) {
			return nil
		}
		slog.Info("updating CRD", "crd", wanted.Name)
		return c.Update(ctx, updated)
	})
}

// keepServerDefaults copies what the API server fills in, so that an unchanged definition compares
// equal.
func keepServerDefaults(wanted, present *apiextensionsv1.CustomResourceDefinition) {
	if wanted.Spec.Names.ListKind == "" {
		wanted.Spec.Names.ListKind = present.Spec.Names.ListKind
	}
	if wanted.Spec.Names.Singular == "" {
		wanted.Spec.Names.Singular = present.Spec.Names.Singular
	}
}

func awaitEstablished(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, establishPoll, establishLimit, true, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, err
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established {
				return cond.Status == apiextensionsv1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("CRD %s is not served within %v: %w", name, establishLimit, err)
	}
	return nil
}

// retryConflicts runs a read-modify-write until no other writer comes between.
func retryConflicts(ctx context.Context, do func() error) error {
	const attempts = 10 // a handful of managers start at once, each needs to win once
	var err error
	for range attempts {
		err = do()
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}
