package rest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is a pointer to an API object.
type object[T any] interface {
	*T
	client.Object
}

// kind serves the objects of one kind, each shown by itself: no other object is a part of it.
type kind[T any, P object[T], V any] struct {
	// typeID is the schema id, what the name of one in messages.
	typeID, what string
	// list returns an empty list and where its items will be.
	list func() (client.ObjectList, *[]T)
	// view must not change the object, which is the reader's own.
	view func(*request, P) V
}

// all is every object, by name.
func (k kind[T, P, V]) all(q *request) (any, error) {
	list, items := k.list()
	if err := q.server.listShared(q.Context(), list); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", k.what, err)
	}
	byName[T, P](*items)
	var views []V
	for i := range *items {
		views = append(views, k.view(q, &(*items)[i]))
	}
	return collection(q, k.typeID, views), nil
}

// stream is the list that clients can follow. A change of an object encodes that one.
func (k kind[T, P, V]) stream() stream {
	return stream{list: k.all, kinds: []client.Object{P(new(T))}, of: client.Object.GetName, since: k.since}
}

// since makes the list from the one before, reading the objects of some names.
func (k kind[T, P, V]) since(q *request, before *listing, names []string) (*listing, error) {
	texts := map[string]*text{}
	for _, name := range names {
		o := P(new(T))
		key := types.NamespacedName{Namespace: q.server.cfg.Namespace, Name: name}
		err := q.server.cfg.Reader.Get(q.Context(), key, o, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			texts[name] = nil
			continue
		}
		if err != nil {
			return nil, err
		}
		json, err := encode(k.view(q, o))
		if err != nil {
			return nil, err
		}
		texts[name] = &text{json: json}
	}
	return before.with(texts), nil
}

// one is the object that the path names.
func (k kind[T, P, V]) one(q *request) (any, error) { return k.named(q, q.params["name"]) }

func (k kind[T, P, V]) named(q *request, name string) (any, error) {
	o := P(new(T))
	if err := q.server.get(q.Context(), name, o); err != nil {
		return nil, fmt.Errorf("failed to get %s %s: %w", k.what, name, err)
	}
	return k.view(q, o), nil
}
