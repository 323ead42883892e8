package serve

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind serves the objects of one kind, each shown by itself: no other object is a part of it.
type Kind[T any, P Object[T], V any] struct {
	// TypeID is the schema id, What the name of one in messages.
	TypeID, What string
	// List returns an empty list and where its items will be.
	List func() (client.ObjectList, *[]T)
	// View must not change the object, which is the reader's own.
	View func(*Request, P) V
}

// All is every object, by name.
func (k Kind[T, P, V]) All(q *Request) (any, error) {
	list, items := k.List()
	if err := q.Objects.ListShared(q.Context(), list); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", k.What, err)
	}
	SortByName[T, P](*items)
	var views []V
	for i := range *items {
		views = append(views, k.View(q, &(*items)[i]))
	}
	return Collection(q, k.TypeID, views), nil
}

// Stream is the list that clients can follow. A change of an object encodes that one.
func (k Kind[T, P, V]) Stream() Stream {
	return Stream{List: k.All, Kinds: []client.Object{P(new(T))}, Of: client.Object.GetName, Since: k.since}
}

// since makes the list from the one before, reading the objects of some names.
func (k Kind[T, P, V]) since(q *Request, before *Listing, names []string) (*Listing, error) {
	texts := map[string]*Text{}
	for _, name := range names {
		o := P(new(T))
		key := types.NamespacedName{Namespace: q.Objects.Namespace, Name: name}
		err := q.Objects.Reader.Get(q.Context(), key, o, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			texts[name] = nil
			continue
		}
		if err != nil {
			return nil, err
		}
		json, err := encode(k.View(q, o))
		if err != nil {
			return nil, err
		}
		texts[name] = &Text{json: json}
	}
	return before.With(texts), nil
}

// One is the object that the path names.
func (k Kind[T, P, V]) One(q *Request) (any, error) { return k.Named(q, q.Params["name"]) }

// Named is the object of a name.
func (k Kind[T, P, V]) Named(q *Request, name string) (any, error) {
	o := P(new(T))
	if err := q.Objects.Get(q.Context(), name, o); err != nil {
		return nil, fmt.Errorf("failed to get %s %s: %w", k.What, name, err)
	}
	return k.View(q, o), nil
}
