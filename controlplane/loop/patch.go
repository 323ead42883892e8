package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchStatus writes what Object's status has otherwise than Before's, where two writers share one
// status. The API server compares each value that is replaced with the one that was read, and not
// the version of the whole object, so that what another writer has changed elsewhere in the status
// makes nobody read and write again.
//
// What is stored may lack a value that reads as zero, and a value may have been changed by the
// other writer: then the patch is refused, and the status is written whole, by its version.
type patchStatus struct{ Object, Before client.Object }

func (c patchStatus) String() string { return UpdateStatus{c.Object}.String() }

func (c patchStatus) apply(ctx context.Context, cl client.Client) (*expectation, error) {
	patch, err := statusPatch(c.Before, c.Object)
	if err != nil {
		return nil, fmt.Errorf("compare two statuses of %T %s: %w", c.Object, client.ObjectKeyFromObject(c.Object), err)
	}
	patched := c.Object.DeepCopyObject().(client.Object)
	if err := cl.Status().Patch(ctx, patched, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		slog.Debug("a patch is refused, the status is written whole", "change", c.String(), "err", err)
		return UpdateStatus{c.Object}.apply(ctx, cl)
	}
	return expectVersion(patched), nil
}

// operation is one of a JSON patch (RFC 6902). A value of null has to be written.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// statusPatch makes the status of before that of after, of the same object.
func statusPatch(before, after client.Object) ([]byte, error) {
	from, err := statusOf(before)
	if err != nil {
		return nil, err
	}
	to, err := statusOf(after)
	if err != nil {
		return nil, err
	}
	var ops []operation
	if uid := before.GetUID(); uid != "" {
		ops = append(ops, operation{"test", "/metadata/uid", uid})
	}
	return json.Marshal(compare(ops, "/status", from, to))
}

// statusOf is an object's status as JSON has it.
func statusOf(o client.Object) (any, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	return fields["status"], nil
}

// compare appends what turns one value into the other: by their keys where both have keys, else as
// a whole. Lists are replaced as a whole: their entries have no place of their own.
func compare(ops []operation, path string, from, to any) []operation {
	a, both := from.(map[string]any)
	b, too := to.(map[string]any)
	if !both || !too {
		if reflect.DeepEqual(from, to) {
			return ops
		}
		return append(ops, operation{"test", path, from}, operation{"replace", path, to})
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		at := path + "/" + escaped.Replace(key)
		if value, stays := b[key]; stays {
			ops = compare(ops, at, a[key], value)
			continue
		}
		ops = append(ops, operation{"test", at, a[key]}, operation{"remove", at, nil})
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, was := a[key]; !was {
			ops = append(ops, operation{"add", path + "/" + escaped.Replace(key), b[key]})
		}
	}
	return ops
}

// escaped writes a key as a part of a path (RFC 6901).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")
