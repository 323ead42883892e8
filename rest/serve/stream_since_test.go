package serve_test

import (
	"reflect"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/wait"
)

// TestEveryStreamFollowsItsObjects changes, adds and removes objects of each stream: the list that
// a stream makes of the one before is the list made anew, and no view has changed an object that
// the cache holds.
func TestEveryStreamFollowsItsObjects(t *testing.T) {
	t.Parallel()
	all, byChange := populations(), 0
	for name, which := range apitest.Tables().Streams {
		if name == "volumes" || which.Since == nil {
			continue // TestCacheAgainstFreshViews; the others are made whole
		}
		byChange++
		p := all[name]
		p.objects = p.objects[:min(len(p.objects), 5)]
		first, last := p.objects[0], p.objects[len(p.objects)-1]
		c := apitest.NewLeaderCache(t, p.objects[:len(p.objects)-1]...)
		f := newFixtureWith(t, interceptor.Funcs{}, func(cfg *rest.Config) {
			cfg.Reader = c
			cfg.Informers = func() cache.Informers { return c }
		})
		q := serve.NewRequest(t.Context(), f.Server, f.URL, "")
		one := serve.NewLooker(f.Server, q, which, false)
		look := func(o client.Object) *serve.Listing {
			t.Helper()
			one.Tell(which.Of(o))
			list, err := one.Look()
			apitest.Must(t, err)
			return list
		}
		fresh := func() *serve.Listing {
			t.Helper()
			answer, err := which.List(q)
			apitest.Must(t, err)
			list, err := serve.ListingOf(answer)
			apitest.Must(t, err)
			return list
		}
		before := fresh()
		for step, change := range map[string]func() client.Object{
			"changed": func() client.Object { p.change(first, 7); c.Put(t, first, false); return first },
			"added":   func() client.Object { c.Put(t, last, true); return last },
			"removed": func() client.Object { c.Remove(t, p.objects[1]); return p.objects[1] },
		} {
			one.SetSent(before)
			o := change()
			wait.Until(t, name+": "+step, func() bool { return !fresh().Equal(one.Sent()) })
			after := look(o)
			if !after.Equal(fresh()) {
				t.Errorf("%s, %s:\n%s, made anew\n%s", name, step, after.AppendTo(nil), fresh().AppendTo(nil))
			}
			before = after
		}
		for _, o := range slices.Delete(slices.Clone(p.objects), 1, 2) {
			have := o.DeepCopyObject().(client.Object)
			apitest.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), have))
			have.SetResourceVersion("")
			want := o.DeepCopyObject().(client.Object)
			want.SetResourceVersion("")
			want.GetObjectKind().SetGroupVersionKind(have.GetObjectKind().GroupVersionKind())
			if !reflect.DeepEqual(have, want) {
				t.Errorf("%s: a view has changed\n%+v to\n%+v", name, want, have)
			}
		}
	}
	if byChange != 10 {
		t.Errorf("%d streams are made of the list before, want 10", byChange)
	}
}
