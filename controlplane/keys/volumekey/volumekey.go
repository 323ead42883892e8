// Package volumekey derives what the processes of a volume prove to each other from a master key.
//
// Format, rules of rotation and what happens when the Secret is lost: docs/design/volume-keys.md.
package volumekey

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

const (
	// AnnotationRotate on the Secret asks for a new master key. It goes when there is one.
	AnnotationRotate = naming.LabelPrefix + "rotate"

	// lookEvery is how often the Secret is compared with what this process knows.
	lookEvery = 5 * time.Second
	// life of a master key until the next one is made: that of a certificate of the same system.
	life = 365 * 24 * time.Hour
	// nameLayout is the time at which a key was made, in UTC; a data key of a Secret has no colon.
	nameLayout = "20060102T150405Z"
	// keyBytes is the length of a master key, which is stored in hex.
	keyBytes = 32
	// label begins what is authenticated, so that no other use of the key yields the same.
	label = "ankole volume 1 "
)

// ErrUnknown: there is no such master key, for errors.Is.
var ErrUnknown = errors.New("master key is gone")

// Keys are the master keys. The leader has them; the zero value with a client and a namespace is
// ready for Load. Safe for concurrent use.
type Keys struct {
	// Client reads and writes past every cache.
	Client    client.Client
	Namespace string
	// Used returns the names of master keys that volumes name in their status; nil: no key is removed.
	Used func(ctx context.Context) (map[string]bool, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu sync.RWMutex
	// master keys by name, hex. What is known here is not forgotten when somebody deletes the Secret.
	master map[string]string
}

// Load reads the master keys, and makes the first one where there is none.
func (k *Keys) Load(ctx context.Context) error { return k.look(ctx) }

// Start keeps the Secret as it has to be until ctx ends.
func (k *Keys) Start(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("the master keys of volumes are not looked after, trying again", "err", err)
		}
	}
}

// Newest is the name of the master key for volumes of which no process runs.
func (k *Keys) Newest() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return newest(k.master)
}

// Has tells whether there is a master key of that name.
func (k *Keys) Has(name string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.master[name] != ""
}

// Of returns what the processes of a volume show each other: 64 hex digits.
func (k *Keys) Of(v *v1beta2.Volume) (string, error) {
	k.mu.RLock()
	master := k.master[v.Status.ProcessKey]
	k.mu.RUnlock()
	if master == "" {
		return "", fmt.Errorf("volume %s: %q of Secret %s: %w", v.Name, v.Status.ProcessKey, naming.SecretVolumeKeys,
			ErrUnknown)
	}
	return Derive(master, string(v.UID)), nil
}

// Named is Of for the volume of that name, as a reader has it.
func (k *Keys) Named(ctx context.Context, c client.Reader, volume string) (string, error) {
	v := &v1beta2.Volume{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: volume}, v); err != nil {
		return "", fmt.Errorf("read volume %s: %w", volume, err)
	}
	return k.Of(v)
}

// Derive is HMAC-SHA-256 (RFC 2104), keyed with a master key, over the label and the volume's UID.
func Derive(master, uid string) string {
	key, err := hex.DecodeString(master)
	if err != nil {
		panic(fmt.Sprintf("master key of %d characters: %v", len(master), err)) // sound takes no such key
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(label + uid))
	return hex.EncodeToString(mac.Sum(nil))
}

func (k *Keys) now() time.Time {
	if k.Now == nil {
		return time.Now()
	}
	return k.Now()
}

// look compares the Secret with what is known, and writes what has to differ.
func (k *Keys) look(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: naming.SecretVolumeKeys}, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Secret %s: %w", naming.SecretVolumeKeys, err)
	}
	there := err == nil
	var used map[string]bool
	if there && len(secret.Data) > 1 && k.Used != nil {
		if used, err = k.Used(ctx); err != nil {
			return err
		}
	}
	_, rotate := secret.Annotations[AnnotationRotate]
	master, changed := k.wanted(secret.Data, rotate, used)
	if !changed && there && !rotate {
		k.set(master)
		return nil
	}
	secret.Namespace, secret.Name, secret.Type = k.Namespace, naming.SecretVolumeKeys, corev1.SecretTypeOpaque
	metav1.SetMetaDataLabel(&secret.ObjectMeta, naming.LabelManagedBy, naming.ManagedByManager)
	delete(secret.Annotations, AnnotationRotate)
	secret.Data = map[string][]byte{}
	for name, key := range master {
		secret.Data[name] = []byte(key)
	}
	write := k.Client.Update
	if !there {
		write = func(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
			return k.Client.Create(ctx, o)
		}
	}
	// A key is used when it is stored, so that none gets lost with this process.
	if err := write(ctx, secret); err != nil {
		return fmt.Errorf("write Secret %s: %w", naming.SecretVolumeKeys, err)
	}
	slog.Info("wrote the master keys of volumes", "secret", naming.SecretVolumeKeys, "newest", newest(master))
	k.set(master)
	return nil
}

// set takes over what is stored. The map is never changed afterwards.
func (k *Keys) set(master map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.master = master
}

// wanted is what the Secret should hold, and whether that is something else than it does.
func (k *Keys) wanted(data map[string][]byte, rotate bool, used map[string]bool) (master map[string]string,
	changed bool) {
	k.mu.RLock()
	master = maps.Clone(k.master)
	k.mu.RUnlock()
	if master == nil {
		master = map[string]string{}
	}
	for name, value := range data {
		switch known := master[name]; {
		case !sound(name, value):
			slog.Warn("an entry of the Secret is no master key and is removed", "secret", naming.SecretVolumeKeys,
				"entry", name)
			changed = true
		case known == "":
			master[name] = string(value)
		case known != string(value): // processes that run have the former
			changed = true
		}
	}
	for name := range master {
		if _, ok := data[name]; !ok {
			changed = true
		}
	}
	last := newest(master)
	now := k.now().UTC()
	if made, err := time.Parse(nameLayout, last); err != nil || rotate || now.Sub(made) >= life {
		next := now
		if err == nil && !now.After(made) { // a clock that was put back, or two wishes within a second
			next = made.Add(time.Second)
		}
		master[next.Format(nameLayout)] = fresh()
		return master, true
	}
	for name := range master {
		if used != nil && name != last && !used[name] {
			delete(master, name)
			changed = true
		}
	}
	return master, changed
}

// sound tells whether an entry of the Secret is a master key.
func sound(name string, value []byte) bool {
	_, err := time.Parse(nameLayout, name)
	key := make([]byte, hex.DecodedLen(len(value)))
	n, badHex := hex.Decode(key, value)
	return err == nil && badHex == nil && n == keyBytes
}

func newest(master map[string]string) string {
	if len(master) == 0 {
		return ""
	}
	return slices.Max(slices.Collect(maps.Keys(master)))
}

func fresh() string {
	var b [keyBytes]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime aborts instead
	return hex.EncodeToString(b[:])
}

// UsedBy reads in the status of all volumes which master keys they use.
func UsedBy(c client.Reader, namespace string) func(ctx context.Context) (map[string]bool, error) {
	return func(ctx context.Context) (map[string]bool, error) {
		var list v1beta2.VolumeList
		if err := c.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list volumes: %w", err)
		}
		used := map[string]bool{}
		for i := range list.Items {
			used[list.Items[i].Status.ProcessKey] = true
		}
		return used, nil
	}
}
