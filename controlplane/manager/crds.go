package manager

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2/crd"
)

const (
	establishPoll  = 50 * time.Millisecond
	establishLimit = 30 * time.Second
)

// installCRDs brings the definitions of all kinds up to date and waits until the API server serves
// them. Several managers may do so at once: each write carries the version it was based on, and the
// loser looks again.
func installCRDs(ctx context.Context, c client.Client) error {
	all, err := crd.All()
	if err != nil {
		return err
	}
	for _, wanted := range all {
		if err := installCRD(ctx, c, wanted); err != nil {
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

func installCRD(ctx context.Context, c client.Client, wanted *apiextensionsv1.CustomResourceDefinition) error {
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
		updated := present.DeepCopy()
		keepServerDefaults(wanted, &present)
		updated.Spec.Versions, updated.Spec.Names = wanted.Spec.Versions, wanted.Spec.Names
		if updated.Labels == nil {
			updated.Labels = map[string]string{}
		}
		for k, v := range wanted.Labels {
			updated.Labels[k] = v
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
