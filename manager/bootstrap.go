package manager

import (
	"context"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/node/engineimage"
	"ankole.storage/controlplane/node/settingsync"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

const (
	// bootRetryFirst and bootRetryMost bound the retry of a step of the start: the API server, or
	// another manager's webhook, may be a moment late.
	bootRetryFirst = 100 * time.Millisecond
	bootRetryMost  = 3 * time.Second
)

// persist repeats a step of the start until it succeeds or ctx ends.
func persist(ctx context.Context, what string, step func(context.Context) error) error {
	wait := bootRetryFirst
	for {
		err := step(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		level := slog.LevelWarn
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			level = slog.LevelDebug // another manager was faster
		}
		slog.Log(ctx, level, "cannot "+what+" yet, trying again", "err", err, "in", wait)
		pause(ctx, wait)
		wait = min(2*wait, bootRetryMost)
	}
}

// fixedSettings are the settings whose value comes from the flags.
func fixedSettings(cfg Config) map[string]string {
	return map[string]string{
		setting.DefaultEngineImage:              cfg.EngineImage,
		setting.DefaultInstanceManagerImage:     cfg.InstanceManagerImage,
		setting.DefaultBackingImageManagerImage: cfg.BackingImageManagerImage,
		setting.CurrentLonghornVersion:          cfg.Version,
		setting.CRDAPIVersion:                   "longhorn.io/v1beta2",
		setting.AllowedImageRegistries:          strings.Join(cfg.Origins.Images, ";"),
		setting.AllowedDiskPaths:                strings.Join(cfg.Origins.DiskPaths, ";"),
	}
}

// bootstrap creates what every cluster needs and the first process makes: settings and the default
// engine image. The webhooks must be up.
func bootstrap(ctx context.Context, c client.Client, cfg Config) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"create settings", func(ctx context.Context) error {
			return settingsync.EnsureExist(ctx, c, cfg.Namespace, cfg.PodName, fixedSettings(cfg))
		}},
		{"create the default engine image", func(ctx context.Context) error {
			return createIfMissing(ctx, c, engineimage.NewObject(cfg.Namespace, cfg.EngineImage))
		}},
		{"create the default backup target", func(ctx context.Context) error {
			return createIfMissing(ctx, c, &v1beta2.BackupTarget{ObjectMeta: metav1.ObjectMeta{
				Namespace: cfg.Namespace, Name: naming.BackupTarget, Finalizers: []string{v1beta2.Finalizer},
			}})
		}},
	}
	for _, s := range steps {
		if err := persist(ctx, s.what, s.do); err != nil {
			return err
		}
	}
	return nil
}

func createIfMissing(ctx context.Context, c client.Client, o client.Object) error {
	probe := o.DeepCopyObject().(client.Object)
	err := c.Get(ctx, client.ObjectKeyFromObject(o), probe)
	if apierrors.IsNotFound(err) {
		err = client.IgnoreAlreadyExists(c.Create(ctx, o))
	}
	return err
}
