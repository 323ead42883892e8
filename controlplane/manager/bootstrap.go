package manager

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineimage"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/node"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/settingsync"
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
		setting.DefaultEngineImage:          cfg.EngineImage,
		setting.DefaultInstanceManagerImage: cfg.InstanceManagerImage,
		setting.CurrentLonghornVersion:      cfg.Version,
		setting.CRDAPIVersion:               "longhorn.io/v1beta2",
		setting.AllowedImageRegistries:      strings.Join(cfg.Origins.Images, ";"),
		setting.AllowedDiskPaths:            strings.Join(cfg.Origins.DiskPaths, ";"),
	}
}

// bootstrap creates what every cluster needs and whoever comes first makes: settings, the default
// engine image, this node's own object. The webhooks must be up.
func bootstrap(ctx context.Context, c client.Client, cfg Config, agent node.AgentConfig) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"mark the manager Pod", func(ctx context.Context) error { return markPod(ctx, c, cfg) }},
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
		{"join the node", func(ctx context.Context) error { return node.Join(ctx, c, agent) }},
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

// markPod gives this Pod the label by which the Service of the webhooks finds it, now that it
// serves, and the one by which the other managers do.
func markPod(ctx context.Context, c client.Client, cfg Config) error {
	pod := &corev1.Pod{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cfg.Namespace, Name: cfg.PodName}, pod); err != nil {
		return fmt.Errorf("read own Pod %s: %w", cfg.PodName, err)
	}
	if pod.Labels[naming.LabelAdmissionWebhook] == naming.ServiceAdmissionWebhook &&
		pod.Labels[naming.LabelComponent] == naming.ComponentManager {
		return nil
	}
	before := pod.DeepCopy()
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[naming.LabelAdmissionWebhook] = naming.ServiceAdmissionWebhook
	pod.Labels[naming.LabelComponent] = naming.ComponentManager
	return c.Patch(ctx, pod, client.MergeFrom(before))
}
