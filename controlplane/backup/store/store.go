// Package store is how the controllers of backups reach what backup targets hold: by the engine
// binary, on a node that has it, with the credentials of the target's Secret.
//
// A store may leave a question without an answer for minutes. So nobody waits for one: a question
// is an errand (Errands), which wakes the object that it is for when it is over.
package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/share"
	"ankole.storage/backup/target"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// Access reaches stores.
type Access struct {
	// Namespace of all objects.
	Namespace string
	// Image is the engine image whose binary looks into stores.
	Image string
	// Cached reads our objects, Live reads Secrets: managers keep none.
	Cached, Live client.Reader
	// Runner has the binary run.
	Runner engineclient.Runner
}

// BytesPerSecond is what backups and restores of a node send and read at most, as the settings say;
// 0 is no limit.
func BytesPerSecond(settings setting.Values) int64 {
	return int64(settings.Int(setting.BackupBandwidthLimit)) << 20
}

// Store is a backup target with what it takes to reach it.
type Store struct {
	engineclient.BackupTargetBinaryClient
	// URL is the target's, Credentials are the keys of its Secret.
	URL         string
	Credentials map[string]string
}

// Open returns the store of a target. Nothing is asked of it yet.
func (a *Access) Open(ctx context.Context, t *v1beta2.BackupTarget) (*Store, error) {
	credentials, err := a.Credentials(ctx, t)
	if err != nil {
		return nil, err
	}
	node, err := a.node(ctx)
	if err != nil {
		return nil, err
	}
	return &Store{URL: t.Spec.BackupTargetURL, Credentials: credentials,
		BackupTargetBinaryClient: &engineclient.TargetBinary{Runner: a.Runner, Node: node, Image: a.Image}}, nil
}

// Target returns a BackupTarget; nil if there is none.
func (a *Access) Target(ctx context.Context, name string) (*v1beta2.BackupTarget, error) {
	t := &v1beta2.BackupTarget{}
	err := a.Cached.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, t, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get backup target %s: %w", name, err)
	}
	return t, nil
}

// Credentials reads the Secret of a target, and of it the keys that stores know. Errors have none
// of the values.
func (a *Access) Credentials(ctx context.Context, t *v1beta2.BackupTarget) (map[string]string, error) {
	data, err := a.secret(ctx, t)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, key := range target.Keys {
		if value, ok := data[key]; ok {
			out[key] = string(value)
		}
	}
	return out, nil
}

// Role reads the role of AWS that the Secret of a target names, "" if none: Pods have it, and
// stores are told nothing of it.
func (a *Access) Role(ctx context.Context, t *v1beta2.BackupTarget) (string, error) {
	data, err := a.secret(ctx, t)
	return string(data[target.KeyRole]), err
}

// secret is what the Secret of a target has; nil if the target names none.
func (a *Access) secret(ctx context.Context, t *v1beta2.BackupTarget) (map[string][]byte, error) {
	name := t.Spec.CredentialSecret
	if name == "" {
		return nil, nil
	}
	var s corev1.Secret
	err := a.Live.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("secret %s of backup target %s does not exist", name, t.Name)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the managers may not read secret %s of backup target %s: name it in value backupTargetSecrets "+
			"of the chart", name, t.Name)
	case err != nil:
		return nil, fmt.Errorf("read secret %s of backup target %s: %w", name, t.Name, err)
	}
	return s.Data, nil
}

// Compression is the method of a backup of a volume.
func Compression(v *v1beta2.Volume, credentials map[string]string) string {
	return Method(string(v.Spec.BackupCompressionMethod), credentials)
}

// Method is what the order of a backup names for a compression. It says that the backup is
// encrypted where the Secret has a key: an engine of before encryption refuses that, and would
// leave the key aside.
func Method(compression string, credentials map[string]string) string {
	method := format.Compression(compression)
	if credentials[encryption.Variable] != "" {
		method = method.Encrypted()
	}
	return string(method)
}

// node is one that has the binary, and a running instance manager to run it: always the same one
// while that is so.
func (a *Access) node(ctx context.Context) (string, error) {
	var image v1beta2.EngineImage
	key := client.ObjectKey{Namespace: a.Namespace, Name: naming.EngineImageName(a.Image)}
	if err := a.Cached.Get(ctx, key, &image, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get engine image %s: %w", a.Image, err)
	}
	var nodes v1beta2.NodeList
	var managers v1beta2.InstanceManagerList
	for _, list := range []client.ObjectList{&nodes, &managers} {
		if err := a.Cached.List(ctx, list, client.InNamespace(a.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("list %T: %w", list, err)
		}
	}
	var able []string
	for i := range nodes.Items {
		n := &nodes.Items[i]
		runs := slices.ContainsFunc(managers.Items, func(m v1beta2.InstanceManager) bool {
			return m.Spec.NodeID == n.Name && m.Status.CurrentState == v1beta2.InstanceManagerStateRunning
		})
		if image.Status.NodeDeploymentMap[n.Name] && condition.NodeReady(n) && runs {
			able = append(able, n.Name)
		}
	}
	if len(able) == 0 {
		return "", fmt.Errorf("no node is ready that has engine image %s and a running instance manager", a.Image)
	}
	return slices.Min(able), nil
}

// BackupURL is where a backup of a target lies. Both are as backup objects have them.
func BackupURL(targetURL, volume, backup string) (string, error) {
	t, err := target.Parse(targetURL)
	if err != nil {
		return "", err
	}
	return target.Object{Target: t, Volume: volume, Backup: backup}.URL(), nil
}

// Mounted says whether the target is a share, which who uses it has to mount.
func Mounted(t *v1beta2.BackupTarget) bool {
	at, err := target.Parse(t.Spec.BackupTargetURL)
	return err == nil && share.Is(at)
}

// ImageURL is where the backup of a backing image lies.
func ImageURL(targetURL, image string) (string, error) {
	t, err := target.Parse(targetURL)
	if err != nil {
		return "", err
	}
	return target.Image{Target: t, Name: image}.URL(), nil
}

// Elsewhere says whether a backup lies in another store than that of a target.
func Elsewhere(backupURL, targetURL string) bool {
	o, err := target.ParseObject(backupURL)
	t, at := target.Parse(targetURL)
	return err == nil && at == nil && o.Target.String() != t.String()
}

// Named is a backup as the URL of a volume's source names it.
func Named(url string) (volume, backup string) {
	o, err := target.ParseObject(url)
	if err != nil {
		return "", ""
	}
	return o.Volume, o.Backup
}

// Refusal is the part of an error that people are told: what a binary was run for, and where, is in
// the log.
func Refusal(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}
