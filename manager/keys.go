package manager

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/controlplane/object/naming"
)

// keysInterval is how often the webhook keys are looked at. They are renewed a month before their
// end.
const keysInterval = 12 * time.Hour

// keysPause is how long a manager that was shown a certificate which it does not believe waits
// before it looks for new keys: anybody can show such certificates.
const keysPause = time.Minute

// webhookKeys returns the keys to serve webhooks with, renewed where they must be.
func (p *control) webhookKeys(ctx context.Context) (keys serving.Keys, err error) {
	err = persist(ctx, "make keys for the webhooks", func(ctx context.Context) (err error) {
		names := serving.Names(p.cfg.Namespace, p.cfg.WebhookURL)
		keys, err = serving.EnsureKeys(ctx, p.live, p.cfg.Namespace, names, time.Now())
		return err
	})
	return keys, err
}

// registerWebhooks tells the API server about them, and clients of REST by which authority they
// know it.
func (p *control) registerWebhooks(ctx context.Context, keys serving.Keys) error {
	err := persist(ctx, "publish the authority of REST", func(ctx context.Context) error {
		return publishAuthority(ctx, p.live, p.cfg.Namespace, keys.AuthorityPEM)
	})
	if err != nil {
		return err
	}
	return persist(ctx, "register the webhooks", func(ctx context.Context) error {
		return serving.Register(ctx, p.live, p.cfg.Namespace, p.cfg.WebhookURL, keys.AuthorityPEM, admission.Rules())
	})
}

// publishAuthority writes the ConfigMap by which clients of REST know managers, where it differs.
func publishAuthority(ctx context.Context, c client.Client, namespace string, authority []byte) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.ConfigMapAuthority}}
	err := c.Get(ctx, client.ObjectKeyFromObject(m), m)
	if apierrors.IsNotFound(err) {
		m.Data = map[string]string{naming.AuthorityKey: string(authority)}
		return c.Create(ctx, m)
	}
	if err != nil || m.Data[naming.AuthorityKey] == string(authority) {
		return err
	}
	m.Data = map[string]string{naming.AuthorityKey: string(authority)}
	return c.Update(ctx, m)
}

// serveRegistered has the API server ask this process too, where the webhooks are this system's
// already: a controller that waits judges all the same, so that users can write.
func (p *control) serveRegistered(ctx context.Context, keys serving.Keys) error {
	return persist(ctx, "serve the webhooks that are registered", func(ctx context.Context) error {
		ours, err := serving.Registered(ctx, p.live, keys.AuthorityPEM)
		p.admits.Store(err == nil && ours)
		return err
	})
}

// keepKeys renews the keys of a manager that runs for years.
func (p *control) keepKeys(ctx context.Context, hooks *serving.Server) error {
	tick := time.NewTicker(keysInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-hooks.Mistrusts():
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(keysPause):
			}
		}
		keys, err := p.webhookKeys(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		if err := hooks.SetKeys(keys); err != nil {
			slog.Error("cannot take over new webhook keys; the former ones are served", "err", err)
			continue
		}
		if err := p.registerWebhooks(ctx, keys); err != nil {
			return ended(ctx, err)
		}
	}
}
