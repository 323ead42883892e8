package volume_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
)

// remembered are answers of the fake API server, by kind, until an object of that kind is written.
// The fake one decodes what it has from JSON for each read, which took most of the time of a
// simulated history.
type remembered struct {
	mu      sync.Mutex
	answers map[reflect.Type]map[string]runtime.Object
	version map[reflect.Type]int
}

func newRemembered() *remembered {
	return &remembered{answers: map[reflect.Type]map[string]runtime.Object{}, version: map[reflect.Type]int{}}
}

// kindOfObject is the type of an object, or of the items of a list.
func kindOfObject(o runtime.Object) reflect.Type {
	t := reflect.TypeOf(o).Elem()
	if items, ok := t.FieldByName("Items"); ok {
		return items.Type.Elem()
	}
	return t
}

// read answers from memory, or by ask. Errors are not remembered.
func (r *remembered) read(key string, o runtime.Object, ask func() error) error {
	kind := kindOfObject(o)
	if kind == reflect.TypeFor[metav1.PartialObjectMetadata]() {
		return ask()
	}
	r.mu.Lock()
	have, version := r.answers[kind][key], r.version[kind]
	r.mu.Unlock()
	if have != nil {
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(have.DeepCopyObject()).Elem())
		return nil
	}
	if err := ask(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version[kind] != version {
		return nil
	}
	if r.answers[kind] == nil {
		r.answers[kind] = map[string]runtime.Object{}
	}
	r.answers[kind][key] = o.DeepCopyObject()
	return nil
}

// written forgets what is known of the object's kind. It is called after the write.
func (r *remembered) written(o runtime.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := kindOfObject(o)
	delete(r.answers, kind)
	r.version[kind]++
}

// reads adds Get and List to hooks, whose writes call written.
func (r *remembered) reads(hooks interceptor.Funcs) interceptor.Funcs {
	hooks.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
		opts ...client.GetOption) error {
		return r.read("get "+key.String(), o, func() error { return c.Get(ctx, key, o, opts...) })
	}
	hooks.List = func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		var o client.ListOptions
		o.ApplyOptions(opts)
		key := fmt.Sprintf("list %s %v %v %d %s", o.Namespace, o.LabelSelector, o.FieldSelector, o.Limit, o.Continue)
		return r.read(key, l, func() error { return c.List(ctx, l, opts...) })
	}
	return hooks
}

func (w *world) wrote(o client.Object) {
	w.writes.Add(1)
	if r, ok := o.(*v1beta2.Replica); ok {
		w.unshown[r.Name] = true
	}
}

// hooks count writes and answer reads from memory.
func (w *world) hooks() interceptor.Funcs {
	memory := newRemembered()
	return memory.reads(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer memory.written(o)
			w.wrote(o)
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.writes.Load())))
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			defer memory.written(o)
			w.wrote(o)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer memory.written(o)
			w.wrote(o)
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			defer memory.written(o)
			w.wrote(o)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			defer memory.written(o)
			w.wrote(o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			defer memory.written(o)
			w.wrote(o)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}
