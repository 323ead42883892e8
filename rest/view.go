package rest

import (
	"context"
	"slices"
	"sort"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// decimal writes a number of bytes the way volumes carry it.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// orEmpty returns the list, or an empty one that is not null on the wire.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// sortedKeys returns the keys of a map in order, so that equal objects give equal texts.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func conditionView(c lh.Condition) resource.Condition {
	return resource.Condition{ConditionType: c.Type, Status: string(c.Status), LastProbeTime: c.LastProbeTime,
		LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

func conditionList(list []lh.Condition) []resource.Condition {
	out := []resource.Condition{}
	for _, c := range list {
		out = append(out, conditionView(c))
	}
	return out
}

// conditionMap keys conditions by their type; it is never nil.
func conditionMap(list []lh.Condition) map[string]resource.Condition {
	out := map[string]resource.Condition{}
	for _, c := range list {
		out[c.Type] = conditionView(c)
	}
	return out
}

// list fills a list from the reader.
func (s *Server) list(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return s.cfg.Reader.List(ctx, into, append(opts, client.InNamespace(s.cfg.Namespace))...)
}

// get fills an object by name from the API server itself: a client that has just written reads what
// it wrote.
func (s *Server) get(ctx context.Context, name string, into client.Object) error {
	return s.cfg.Live.Get(ctx, types.NamespacedName{Namespace: s.cfg.Namespace, Name: name}, into)
}

// byName sorts objects by name.
func byName[T any, P interface {
	*T
	client.Object
}](items []T) {
	// The items are large: they are compared where they lie.
	sort.Slice(items, func(i, j int) bool { return P(&items[i]).GetName() < P(&items[j]).GetName() })
}
