package simulated_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
)

// view is the cache of one manager process: of each kind it has shown the changes up to some point.
// A change is shown a drawn time after it was written, in order within its kind.
type view struct {
	w *world
	// keep says whether the cache has the object at all.
	keep     func(client.Object) bool
	shown    map[*kind]*shelf
	position map[*kind]int
	// last is when the newest change of a kind is shown.
	last     map[*kind]time.Time
	handlers map[reflect.Type][]func(before, after client.Object)
	over     bool
}

func newView(w *world, keep func(client.Object) bool) *view {
	v := &view{w: w, keep: keep, shown: map[*kind]*shelf{}, position: map[*kind]int{},
		last: map[*kind]time.Time{}, handlers: map[reflect.Type][]func(before, after client.Object){}}
	for _, k := range w.store.order {
		v.list(k)
	}
	return v
}

// list shows a kind as it is now.
func (v *view) list(k *kind) {
	v.shown[k] = newShelf(k.of)
	for key, o := range k.objects {
		if v.keep(o) {
			v.shown[k].put(key, o)
		}
	}
	v.position[k] = len(k.changes)
}

// written plans when a change is shown.
func (v *view) written(k *kind) {
	if v.shown[k] == nil {
		v.shown[k] = newShelf(k.of)
	}
	at := time.Now().Add(v.w.lag())
	if at.Before(v.last[k]) {
		at = v.last[k]
	}
	v.last[k] = at
	upTo := len(k.changes)
	v.w.at(at, func() {
		if !v.over && v.position[k] < upTo {
			v.show(k, v.w.rng.IntN(4) == 0)
		}
	})
}

// behind lists the kinds of which not every change is shown.
func (v *view) behind() (out []*kind) {
	for _, k := range v.w.store.order {
		if v.position[k] < len(k.changes) {
			out = append(out, k)
		}
	}
	return out
}

// show shows the next change of a kind; with all, as after a watch that broke, the result of all.
func (v *view) show(k *kind, all bool) {
	next := k.changes[v.position[k] : v.position[k]+1]
	if all {
		next = k.changes[v.position[k]:]
	}
	v.position[k] += len(next)
	var keys []client.ObjectKey
	result := map[client.ObjectKey]client.Object{}
	for _, c := range next {
		if _, again := result[c.key]; !again {
			keys = append(keys, c.key)
		}
		result[c.key] = c.object
	}
	v.w.passed(k)
	for _, key := range keys {
		before, after := v.shown[k].objects[key], result[key]
		if after != nil && !v.keep(after) {
			after = nil
		}
		if after == nil {
			v.shown[k].remove(key)
		} else {
			v.shown[k].put(key, after)
		}
		v.tell(k.of, before, after)
	}
}

func (v *view) tell(of reflect.Type, before, after client.Object) {
	if before == nil && after == nil {
		return
	}
	v.w.counts.telling = true
	defer func() { v.w.counts.telling = false }()
	for _, h := range v.handlers[of] {
		if before != nil && after != nil && before.GetUID() != after.GetUID() {
			h(before, nil)
			h(nil, after)
			continue
		}
		h(before, after)
	}
}

// handle adds a handler and tells it of what is there.
func (v *view) handle(of reflect.Type, h func(before, after client.Object)) {
	v.handlers[of] = append(v.handlers[of], h)
	k := v.w.store.kind(of)
	if v.shown[k] == nil {
		v.list(k)
	}
	for _, key := range v.shown[k].keys() {
		h(nil, v.shown[k].objects[key])
	}
}

// api is a client: it reads a view, or live without one, and writes to the store.
type api struct {
	client.Client
	w    *world
	view *view
}

func (a *api) objects(of reflect.Type) *shelf {
	k := a.w.store.kind(of)
	if a.view == nil {
		a.w.counts.live++
		return &k.shelf
	}
	a.w.interrupt(a.view)
	if a.view.shown[k] == nil {
		return newShelf(of)
	}
	return a.view.shown[k]
}

// nested bounds how many looks at volumes run inside each other: the workers of the controller.
const nested = 4

// lookAtOthers lets other volumes be looked at in the middle of a look at one.
func (w *world) lookAtOthers() {
	c, reading := w.looking, w.reading
	for c != nil && c.Name == "longhorn-volume-controller" && !w.calm && len(c.busy) < nested && w.rng.IntN(2) == 0 {
		due := c.free(time.Now())
		if len(due) == 0 {
			return
		}
		c.look(reconcile.Request{NamespacedName: pick(w, due)})
		w.looking, w.reading = c, reading
	}
}

// Get implements client.Reader.
func (a *api) Get(_ context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	of := reflect.TypeOf(into).Elem()
	o := a.objects(of).objects[key]
	a.counted(of, 1)
	if o == nil {
		return apierrors.NewNotFound(resourceOf(a.w.store.kind(of)), key.Name)
	}
	var options client.GetOptions
	options.ApplyOptions(opts)
	if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
		o = o.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
	return nil
}

// List implements client.Reader.
func (a *api) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	of := items.Type().Elem()
	objects := a.objects(of)
	if of == reflect.TypeFor[v1beta2.Node]() {
		a.w.lookAtOthers()
	}
	keys, err := objects.found(options)
	if err != nil {
		return err
	}
	a.counted(of, len(keys))
	items.Set(reflect.MakeSlice(items.Type(), 0, len(keys)))
	for _, key := range keys {
		o := objects.objects[key]
		if options.Namespace != "" && key.Namespace != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if options.Limit > 0 && int64(items.Len()) == options.Limit && a.view != nil {
			break // as a cache does, which has no next page
		}
		if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
			o = o.DeepCopyObject().(client.Object)
		}
		items.Set(reflect.Append(items, reflect.ValueOf(o).Elem()))
	}
	return nil
}

// Create implements client.Writer.
func (a *api) Create(_ context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := a.w.refused(a, "create", o); err != nil {
		return err
	}
	var options client.CreateOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 {
		return nil
	}
	return a.w.store.create(o)
}

// Update implements client.Writer.
func (a *api) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	if err := a.w.refused(a, "update", o); err != nil {
		return err
	}
	if a.view != nil && a.view != a.w.leader.view {
		a.w.released(o)
	}
	return a.w.store.update(o, false)
}

// Delete implements client.Writer.
func (a *api) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := a.w.refused(a, "delete", o); err != nil {
		return err
	}
	if a.view != nil {
		a.w.removed(o)
	}
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	return a.w.store.delete(o, options)
}

// Status implements client.StatusClient.
func (a *api) Status() client.SubResourceWriter { return statusWriter{api: a} }

type statusWriter struct {
	client.SubResourceWriter
	api *api
}

// Update implements client.SubResourceWriter.
func (s statusWriter) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	if err := s.api.w.refused(s.api, "status of", o); err != nil {
		return err
	}
	return s.api.w.store.update(o, true)
}

// Patch implements client.SubResourceWriter for JSON patches: all of one is written, or nothing.
func (s statusWriter) Patch(_ context.Context, o client.Object, p client.Patch,
	_ ...client.SubResourcePatchOption) error {
	k := s.api.w.store.kindOf(o)
	have := k.objects[client.ObjectKeyFromObject(o)]
	if have == nil {
		return apierrors.NewNotFound(resourceOf(k), o.GetName())
	}
	next, err := patched(have, o, p)
	if err != nil {
		return err
	}
	if err := s.api.w.refused(s.api, "status of", next); err != nil {
		return err
	}
	if err := s.api.w.store.update(next, true); err != nil {
		return err
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(next).Elem())
	return nil
}

// patched is what a stored object becomes by the patch that turns its caller's object into another.
// An operation that tests a value which the stored object has not is an error.
func patched(have, given client.Object, p client.Patch) (client.Object, error) {
	if p.Type() != types.JSONPatchType {
		return nil, fmt.Errorf("patches of type %s are not simulated", p.Type())
	}
	data, err := p.Data(given)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	if text, err = operations.Apply(text); err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(have).Elem()).Interface().(client.Object)
	return next, json.Unmarshal(text, next)
}

// informers are the view as the allocator asks for it.
type informers struct {
	cache.Cache
	view *view
}

// GetInformer implements cache.Informers.
func (i informers) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer,
	error) {
	return informer{view: i.view, of: reflect.TypeOf(o).Elem()}, nil
}

type informer struct {
	cache.Informer
	view *view
	of   reflect.Type
}

type synced struct {
	toolscache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

// AddEventHandler implements cache.Informer.
func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration,
	error) {
	i.view.w.mu.Lock() // the allocator asks from a goroutine of its own
	defer i.view.w.mu.Unlock()
	i.view.handle(i.of, func(before, after client.Object) {
		switch {
		case before == nil:
			h.OnAdd(after, false)
		case after == nil:
			h.OnDelete(before)
		default:
			h.OnUpdate(before, after)
		}
	})
	return synced{}, nil
}
