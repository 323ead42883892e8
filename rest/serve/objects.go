package serve

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

const (
	// settlePeriod and settleTimeout bound the wait until a cache shows an object that was just
	// created. A client that creates and then reads must find it; one that is told nothing after
	// the timeout loses only time.
	settlePeriod  = 20 * time.Millisecond
	settleTimeout = 2 * time.Second
)

// Objects are those of the installation, as requests read and change them.
type Objects struct {
	// Client writes to the API server.
	Client client.Client
	// Live reads from the API server, past any cache.
	Live client.Reader
	// Reader serves lists and joins; a cache where there is one.
	Reader client.Reader
	// Namespace holds the objects.
	Namespace string
}

// List fills a list from the reader.
func (o *Objects) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return o.Reader.List(ctx, into, append(opts, client.InNamespace(o.Namespace))...)
}

// ListShared lists objects without copying them. Nobody may change them.
func (o *Objects) ListShared(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return o.Reader.List(ctx, into, append(opts, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy)...)
}

// Get fills an object by name from the API server itself: a client that has just written reads what
// it wrote.
func (o *Objects) Get(ctx context.Context, name string, into client.Object) error {
	return o.Live.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, into)
}

// Create creates an object and waits, for a bounded time, until the reader shows it.
func (o *Objects) Create(ctx context.Context, object client.Object) error {
	if err := o.Client.Create(ctx, object); err != nil {
		return err
	}
	seen := object.DeepCopyObject().(client.Object)
	key := client.ObjectKeyFromObject(object)
	err := wait.PollUntilContextTimeout(ctx, settlePeriod, settleTimeout, true, func(ctx context.Context) (bool, error) {
		return o.Reader.Get(ctx, key, seen) == nil, nil
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Setting returns the value of a setting as it holds for the data engine: what is stored, or the
// default.
func (o *Objects) Setting(ctx context.Context, name string) (string, error) {
	var stored lh.Setting
	err := o.Reader.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, &stored)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading setting %s: %w", name, err)
	}
	return setting.String(name, stored.Value)
}

// Object is a pointer to an API object.
type Object[T any] interface {
	*T
	client.Object
}

// SortByName sorts objects by name.
func SortByName[T any, P Object[T]](items []T) {
	// The items are large: they are compared where they lie.
	sort.Slice(items, func(i, j int) bool { return P(&items[i]).GetName() < P(&items[j]).GetName() })
}
