package rest

import (
	"reflect"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/test/wait"
)

// TestEveryStreamFollowsItsObjects changes, adds and removes objects of each stream: the list that
// a stream makes of the one before is the list made anew, and no view has changed an object that
// the cache holds.
func TestEveryStreamFollowsItsObjects(t *testing.T) {
	all, byChange := populations(), 0
	for name, which := range streamTable {
		if name == "volumes" || which.Since == nil {
			continue // TestCacheAgainstFreshViews; the others are made whole
		}
		byChange++
		p := all[name]
		p.objects = p.objects[:min(len(p.objects), 5)]
		first, last := p.objects[0], p.objects[len(p.objects)-1]
		c := newLeaderCache(t, p.objects[:len(p.objects)-1]...)
		f := newFixtureWith(t, interceptor.Funcs{}, func(cfg *Config) {
			cfg.Reader = c
			cfg.Informers = func() cache.Informers { return c }
		})
		q := f.request(f.url, "")
		one := &follower{server: f.server, q: q, which: which, news: newNews()}
		look := func(o client.Object) *Listing {
			t.Helper()
			one.news.add(which.Of(o))
			list, err := one.look()
			must(t, err)
			return list
		}
		fresh := func() *Listing {
			t.Helper()
			answer, err := which.List(q)
			must(t, err)
			list, err := listingOf(answer)
			must(t, err)
			return list
		}
		before := fresh()
		for step, change := range map[string]func() client.Object{
			"changed": func() client.Object { p.change(first, 7); c.put(t, first, false); return first },
			"added":   func() client.Object { c.put(t, last, true); return last },
			"removed": func() client.Object { c.remove(t, p.objects[1]); return p.objects[1] },
		} {
			one.sent = before
			o := change()
			wait.Until(t, name+": "+step, func() bool { return !fresh().equal(one.sent) })
			after := look(o)
			if !after.equal(fresh()) {
				t.Errorf("%s, %s:\n%s, made anew\n%s", name, step, after.appendTo(nil), fresh().appendTo(nil))
			}
			before = after
		}
		for _, o := range slices.Delete(slices.Clone(p.objects), 1, 2) {
			have := o.DeepCopyObject().(client.Object)
			must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), have))
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
