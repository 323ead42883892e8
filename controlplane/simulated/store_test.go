package simulated_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is the API server. An object in it is never changed: a write puts another one in its place.
type store struct {
	kinds map[reflect.Type]*kind
	// order is the kinds in the order in which they came, so that a seed repeats.
	order   []*kind
	version int
	uids    int
	// wrote is told of every change; a nil object is gone.
	wrote func(k *kind, before, after client.Object)
}

// kind has the objects of one kind, and every change of them in order.
type kind struct {
	shelf
	changes []change
}

// change is one write; a nil object was removed.
type change struct {
	key    client.ObjectKey
	object client.Object
}

func newStore() *store { return &store{kinds: map[reflect.Type]*kind{}} }

func (s *store) kind(of reflect.Type) *kind {
	k := s.kinds[of]
	if k == nil {
		k = &kind{shelf: *newShelf(of)}
		s.kinds[of] = k
		s.order = append(s.order, k)
	}
	return k
}

func (s *store) kindOf(o client.Object) *kind { return s.kind(reflect.TypeOf(o).Elem()) }

// put takes over an object of which the caller has the only reference.
func (s *store) put(k *kind, o client.Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	key := client.ObjectKeyFromObject(o)
	before := k.objects[key]
	k.shelf.put(key, o)
	k.changes = append(k.changes, change{key, o})
	s.wrote(k, before, o)
}

func (s *store) remove(k *kind, o client.Object) {
	key := client.ObjectKeyFromObject(o)
	before := k.objects[key]
	k.shelf.remove(key)
	s.version++
	k.changes = append(k.changes, change{key: key})
	s.wrote(k, before, nil)
}

func resourceOf(k *kind) schema.GroupResource { return schema.GroupResource{Resource: k.of.Name()} }

func (s *store) create(o client.Object) error {
	k := s.kindOf(o)
	key := client.ObjectKeyFromObject(o)
	if key.Name == "" {
		return apierrors.NewBadRequest("no name")
	}
	if k.objects[key] != nil {
		return apierrors.NewAlreadyExists(resourceOf(k), key.Name)
	}
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	copied := o.DeepCopyObject().(client.Object)
	if status := statusOf(copied); status.IsValid() {
		status.SetZero()
	}
	s.put(k, copied)
	o.SetResourceVersion(copied.GetResourceVersion())
	return nil
}

func statusOf(o client.Object) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName("Status") }

// update writes all of an object but its status, or, with status, its status only.
func (s *store) update(o client.Object, status bool) error {
	k := s.kindOf(o)
	have := k.objects[client.ObjectKeyFromObject(o)]
	switch {
	case have == nil:
		return apierrors.NewNotFound(resourceOf(k), o.GetName())
	case o.GetResourceVersion() != "" && o.GetResourceVersion() != have.GetResourceVersion(),
		o.GetUID() != "" && o.GetUID() != have.GetUID():
		return apierrors.NewConflict(resourceOf(k), o.GetName(), fmt.Errorf("the object has been modified"))
	}
	next := o.DeepCopyObject().(client.Object)
	if status {
		next = have.DeepCopyObject().(client.Object)
		statusOf(next).Set(statusOf(o.DeepCopyObject().(client.Object)))
	} else if st := statusOf(next); st.IsValid() {
		st.Set(statusOf(have.DeepCopyObject().(client.Object)))
	}
	next.SetUID(have.GetUID())
	next.SetCreationTimestamp(have.GetCreationTimestamp())
	next.SetDeletionTimestamp(have.GetDeletionTimestamp())
	next.SetResourceVersion(have.GetResourceVersion())
	switch {
	case next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && k.of != typePod:
		s.remove(k, have)
	case !equality.Semantic.DeepEqual(have, next):
		s.put(k, next)
	}
	o.SetResourceVersion(next.GetResourceVersion())
	return nil
}

var typePod = reflect.TypeFor[corev1.Pod]()

// delete marks an object with finalizers, or a Pod, which its kubelet removes; it removes others.
func (s *store) delete(o client.Object, opts client.DeleteOptions) error {
	k := s.kindOf(o)
	have := k.objects[client.ObjectKeyFromObject(o)]
	if have == nil {
		return apierrors.NewNotFound(resourceOf(k), o.GetName())
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != have.GetUID() {
		return apierrors.NewConflict(resourceOf(k), o.GetName(), fmt.Errorf("another object of the name"))
	}
	atOnce := opts.GracePeriodSeconds != nil && *opts.GracePeriodSeconds == 0
	if len(have.GetFinalizers()) == 0 && (k.of != typePod || atOnce) {
		s.remove(k, have)
		return nil
	}
	if have.GetDeletionTimestamp() == nil {
		next := have.DeepCopyObject().(client.Object)
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		next.SetDeletionTimestamp(&now)
		s.put(k, next)
	}
	return nil
}

// text is a value without the addresses of what it points to: a history repeats to the letter.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
