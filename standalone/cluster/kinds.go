package cluster

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"ankole.storage/api/longhorn/v1beta2/crd"
)

// kindsRetry is the pause of an attempt that the API server refuses while it starts.
const kindsRetry = 50 * time.Millisecond

// prepareKinds defines the kinds of objects as whoever installs the manifest does, and has the API
// server serve them. It begins while the API server itself starts, since two things take seconds:
// the server lets a new object of a kind wait for two seconds if the kind was defined less than two
// seconds before, and answers the first request for each kind that it is to be asked again a second
// later, also after each start. Kinds that are defined already stay: the managers bring them up to
// date.
func prepareKinds(ctx context.Context, api *rest.Config) error {
	all, err := crd.All()
	if err != nil {
		return err
	}
	definitions, err := clientset.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	objects, err := dynamic.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, kind := range all {
		group.Go(func() error {
			err := untilDone(ctx, func() error { return define(ctx, definitions, kind) })
			if err == nil {
				err = untilDone(ctx, func() error {
					_, err := objects.Resource(storageKind(kind.Spec.Names.Plural)).List(ctx, metav1.ListOptions{Limit: 1})
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("prepare kind %s: %w", kind.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func define(ctx context.Context, c clientset.Interface, kind *apiextensionsv1.CustomResourceDefinition) error {
	_, err := c.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, kind, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// untilDone repeats an attempt until it succeeds, or the context ends: then it returns the last
// error.
func untilDone(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(kindsRetry):
		}
	}
}

// startKinds prepares the kinds beside the start of the rest; waitKinds waits for them.
func (c *Cluster) startKinds(api *rest.Config) {
	if !c.manager || c.cfg.NoKinds {
		return
	}
	done := make(chan error, 1)
	c.kinds = done
	go func() {
		defer close(done)
		done <- prepareKinds(c.watches, api)
	}()
}

func (c *Cluster) waitKinds(ctx context.Context) error {
	if c.kinds == nil {
		return nil
	}
	select {
	case err := <-c.kinds:
		return err
	case <-c.plane.Down():
		return c.plane.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
