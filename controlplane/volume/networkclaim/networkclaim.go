// Package networkclaim keeps attachments of volumes and changes of the setting storage-network
// apart. The webhook refuses a change while a volume is in another state than detached; the change
// is stored a moment after the webhook has looked. So a volume whose state attaching is stored
// claims the network before its first process is ordered: it makes sure that no change is under way
// that has not seen that state, and then reads the setting. docs/guide/storage-network.md says why
// that is enough.
package networkclaim

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// Claims remembers the networks that volumes have claimed, from the claim until the volume is
// detached. It lives in memory only: claiming again costs one read. Use New. It may be used by
// several goroutines.
type Claims struct {
	mu sync.Mutex
	// claims are in the order in which they were made; at finds that of a volume.
	claims *list.List
	at     map[string]*list.Element
}

// claim is the network of a volume.
type claim struct{ volume, network string }

// New returns a memory without claims.
func New() *Claims { return &Claims{claims: list.New(), at: map[string]*list.Element{}} }

func (c *Claims) of(volume string) (network string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[volume]; e != nil {
		return e.Value.(claim).network, true
	}
	return "", false
}

// others are volumes but that one with a claim, the newest first, n at most.
func (c *Claims) others(volume string, n int) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.claims.Front(); e != nil && len(names) < n; e = e.Next() {
		if name := e.Value.(claim).volume; name != volume {
			names = append(names, name)
		}
	}
	return names
}

func (c *Claims) set(volume, network string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(volume)
	c.at[volume] = c.claims.PushFront(claim{volume, network})
}

// Forget ends the claim of a volume.
func (c *Claims) Forget(volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(volume)
}

// forget is Forget for a caller that holds the lock.
func (c *Claims) forget(volume string) {
	if e := c.at[volume]; e != nil {
		c.claims.Remove(e)
		delete(c.at, volume)
	}
}

// Network is the network that a volume's processes are ordered for: namespace/name, empty for the
// cluster's. claim: Claim has to be called first.
func (c *Claims) Network(v *v1beta2.Volume, settings setting.Values) (network string, claim bool) {
	switch v.Status.State {
	case "", v1beta2.VolumeStateCreating, v1beta2.VolumeStateDetached:
		c.Forget(v.Name) // also that of a former volume of this name
	}
	if network, ok := c.of(v.Name); ok {
		return network, false
	}
	// An attached volume that an earlier leader has claimed it for: the setting stays as it is.
	return canonical(settings.String(setting.StorageNetwork)), v.Status.State == v1beta2.VolumeStateAttaching
}

// canonical is the network as instance managers report it; a value that cannot be read means none,
// as for their Pods.
func canonical(value string) string {
	namespace, name, err := setting.ParseNetwork(value)
	if err != nil || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// API is what a claim reads and writes.
type API struct {
	// Client reads the cache, Live past it.
	Client client.Client
	Live   client.Reader
	// Now stamps the claim.
	Now time.Time
}

// Claim claims the network for a volume whose state attaching is stored. Where another volume has
// claimed it and is not detached, no change of the setting can be under way that has seen all
// volumes detached. Else the setting's object is written, so that the store refuses a change that
// was judged before. After an error nothing is claimed.
func (c *Claims) Claim(ctx context.Context, api API, v *v1beta2.Volume) error {
	held, err := c.anotherHolds(ctx, api, v)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: v.Namespace, Name: setting.StorageNetwork}
	var s v1beta2.Setting
	err = conflict.Retry(func() error {
		s = v1beta2.Setting{}
		if err := api.Live.Get(ctx, key, &s); err != nil || held {
			return client.IgnoreNotFound(err) // nobody can change what is not there; the network is the cluster's
		}
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[naming.AnnotationNetworkClaimed] = api.Now.UTC().Format(time.RFC3339Nano) + " " + v.Name
		return api.Client.Update(ctx, &s)
	})
	if err != nil {
		return fmt.Errorf("claim the storage network: %w", err)
	}
	c.set(v.Name, canonical(s.Value))
	return nil
}

// mostAsked bounds how many other volumes are read for one that holds the network: each may have
// been detached meanwhile.
const mostAsked = 3

// anotherHolds tells whether the store has another volume that holds the network: one in state
// attached, which it cannot get into without a claim, or one in another state but detached that has
// claimed it since it was detached.
func (c *Claims) anotherHolds(ctx context.Context, api API, v *v1beta2.Volume) (bool, error) {
	if held, err := c.anyHolds(ctx, api, v, c.others(v.Name, mostAsked)); held || err != nil {
		return held, err
	}
	names, err := attachedOthers(ctx, api, v) // that an earlier leader has claimed it for
	if err != nil {
		return false, err
	}
	return c.anyHolds(ctx, api, v, names)
}

// anyHolds tells it of these volumes.
func (c *Claims) anyHolds(ctx context.Context, api API, v *v1beta2.Volume, names []string) (bool, error) {
	for _, name := range names {
		var now v1beta2.Volume // the cache may be late
		err := api.Live.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: name}, &now)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read volume %s: %w", name, err)
		}
		if err == nil && c.holds(&now) {
			return true, nil
		}
	}
	return false, nil
}

// holds says whether a volume as the store has it holds the network. Its claim is looked up after
// it was read: that it is detached ends the claim before the state attaching is stored again, so
// that a claim that is found now is of the attachment that was read, or of a later one.
func (c *Claims) holds(now *v1beta2.Volume) bool {
	switch now.Status.State {
	case v1beta2.VolumeStateAttached:
		return true
	case v1beta2.VolumeStateAttaching:
		_, claimed := c.of(now.Name)
		return claimed
	}
	return false
}

// attachedOthers are other volumes that the cache shows in state attached, mostAsked at most.
func attachedOthers(ctx context.Context, api API, v *v1beta2.Volume) (names []string, err error) {
	var volumes v1beta2.VolumeList
	if err := api.Client.List(ctx, &volumes, client.InNamespace(v.Namespace), index.Attached(),
		client.Limit(mostAsked+1), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list attached volumes: %w", err)
	}
	for i := range volumes.Items {
		if name := volumes.Items[i].Name; name != v.Name && len(names) < mostAsked {
			names = append(names, name)
		}
	}
	return names, nil
}
