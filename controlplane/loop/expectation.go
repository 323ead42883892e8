package loop

import (
	"context"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// catchUpLimit bounds the wait for the cache: long against any lag of a healthy watch
	// (milliseconds), short enough that an object deleted by somebody else right after we wrote it
	// does not hold us up for long.
	catchUpLimit = 5 * time.Second
	// catchUpFirst and catchUpMost bound the pause between two looks at a lagging cache, which
	// doubles; a watch event usually comes first, and a cache that lags has much to do.
	catchUpFirst = 5 * time.Millisecond
	catchUpMost  = 160 * time.Millisecond
)

// expectation is a write of ours that the cache has to show before the object is judged again.
type expectation struct {
	empty   client.Object // to read into
	key     client.ObjectKey
	uid     types.UID
	version string // resource version to reach; "" for a deletion
	since   time.Time
	pause   time.Duration // the last one
}

// next is when to look at the cache again.
func (e *expectation) next() time.Duration {
	e.pause = max(catchUpFirst, min(2*e.pause, catchUpMost))
	return e.pause
}

func expectVersion(o client.Object) *expectation {
	return &expectation{empty: emptyLike(o), key: client.ObjectKeyFromObject(o), uid: o.GetUID(),
		version: o.GetResourceVersion()}
}

func expectGone(o client.Object) *expectation {
	return &expectation{empty: emptyLike(o), key: client.ObjectKeyFromObject(o), uid: o.GetUID()}
}

func emptyLike(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

func preconditionUID(uid types.UID) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &uid}
}

// met tells whether the reader shows the write, or time is up.
func (e *expectation) met(ctx context.Context, r client.Reader, now time.Time) bool {
	if now.Sub(e.since) > catchUpLimit {
		return true
	}
	o := emptyLike(e.empty)
	err := r.Get(ctx, e.key, o, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return e.version == ""
	case err != nil:
		return false
	case e.uid != "" && o.GetUID() != e.uid:
		return true // another object of the name
	case e.version == "":
		return o.GetDeletionTimestamp() != nil
	}
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), e.version)
	if err != nil {
		return true // versions that cannot be compared cannot be waited for
	}
	return order >= 0
}
