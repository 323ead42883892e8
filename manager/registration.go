package manager

import (
	"context"
	"fmt"
	"log/slog"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepRegistered has the webhooks registered again when somebody has deleted or changed their
// configurations, until ctx ends. Only the leader does: of managers of two versions one decides.
func (p *control) keepRegistered(ctx context.Context, informers cache.Informers) error {
	return onRegistration(ctx, informers, func(ctx context.Context) error {
		// Read anew: another manager may have renewed the authority, and registered it.
		keys, err := p.webhookKeys(ctx)
		if err != nil {
			return err
		}
		return p.registerWebhooks(ctx, keys)
	})
}

// onRegistration calls register after each change of the configurations of the webhooks. Register
// writes nothing where they are as they have to be, so that its own change ends the matter.
func onRegistration(ctx context.Context, informers cache.Informers, register func(context.Context) error) error {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // it is looked at later than this change anyway
		}
	}
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingWebhookConfiguration{},
		&admissionregistrationv1.MutatingWebhookConfiguration{}} {
		i, err := informers.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("follow the configurations of the webhooks: %w", err)
		}
		handler, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(_, _ any) { notify() },
			DeleteFunc: func(any) {
				slog.Warn("a configuration of the webhooks was deleted; it is made again")
				notify()
			},
		})
		if err != nil {
			return fmt.Errorf("follow the configurations of the webhooks: %w", err)
		}
		defer func() { _ = i.RemoveEventHandler(handler) }() // a cache that has ended has none
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		if err := register(ctx); err != nil {
			return ended(ctx, err)
		}
	}
}
