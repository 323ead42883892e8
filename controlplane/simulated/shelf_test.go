package simulated_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/index"
)

// shelf has objects of one kind, and finds them by the indexes of the leader's cache.
type shelf struct {
	of      reflect.Type
	objects map[client.ObjectKey]client.Object
	sorted  []client.ObjectKey // nil after one has come or gone
	indexes []indexed
}

// indexed are the keys of the objects that have a value, each in order.
type indexed struct {
	index.Index
	keys map[string][]client.ObjectKey
}

func newShelf(of reflect.Type) *shelf {
	s := &shelf{of: of, objects: map[client.ObjectKey]client.Object{}}
	for _, i := range indexes {
		if reflect.TypeOf(i.Object).Elem() == of {
			s.indexes = append(s.indexes, indexed{i, map[string][]client.ObjectKey{}})
		}
	}
	return s
}

// indexes are those of the leader's cache.
var indexes = append(index.All(), index.OfKubernetes()...)

// keys are those of the objects, in order.
func (s *shelf) keys() []client.ObjectKey {
	if s.sorted == nil {
		s.sorted = slices.Collect(maps.Keys(s.objects))
		sortKeys(s.sorted)
	}
	return s.sorted
}

func (s *shelf) put(key client.ObjectKey, o client.Object) {
	before := s.objects[key]
	if before == nil {
		s.sorted = nil
	}
	s.objects[key] = o
	s.reindex(key, before, o)
}

func (s *shelf) remove(key client.ObjectKey) {
	before := s.objects[key]
	delete(s.objects, key)
	s.sorted = nil
	s.reindex(key, before, nil)
}

func (s *shelf) reindex(key client.ObjectKey, before, after client.Object) {
	for _, i := range s.indexes {
		var was, is []string
		if before != nil {
			was = i.Of(before)
		}
		if after != nil {
			is = i.Of(after)
		}
		for _, value := range was {
			if at, there := slices.BinarySearchFunc(i.keys[value], key, compareKeys); there && !slices.Contains(is, value) {
				i.keys[value] = slices.Delete(i.keys[value], at, at+1)
			}
		}
		for _, value := range is {
			if at, there := slices.BinarySearchFunc(i.keys[value], key, compareKeys); !there {
				i.keys[value] = slices.Insert(i.keys[value], at, key)
			}
		}
	}
}

// found are the keys of the objects of which a field has the value that is asked for, or all.
func (s *shelf) found(options client.ListOptions) ([]client.ObjectKey, error) {
	if options.FieldSelector == nil || options.FieldSelector.Empty() {
		return s.keys(), nil
	}
	r := options.FieldSelector.Requirements()[0]
	for _, i := range s.indexes {
		if i.Field == r.Field {
			return slices.Clone(i.keys[r.Value]), nil
		}
	}
	return nil, fmt.Errorf("no index of %s by %s", s.of, r.Field)
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func sortKeys(keys []client.ObjectKey) { slices.SortFunc(keys, compareKeys) }
