package loop

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// woken is whom a watch puts into the queue for an event.
func woken(ctx context.Context, w Watch, e any) []string {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	handler := w.handler("own")
	switch e := e.(type) {
	case event.CreateEvent:
		handler.Create(ctx, e, q)
	case event.UpdateEvent:
		handler.Update(ctx, e, q)
	case event.DeleteEvent:
		handler.Delete(ctx, e, q)
	}
	var out []string
	for q.Len() > 0 {
		r, _ := q.Get()
		out = append(out, r.String())
		q.Done(r)
	}
	slices.Sort(out)
	return out
}

func secret(name, owner, content string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	s.Labels, s.StringData = map[string]string{"of": owner}, map[string]string{"content": content}
	return s
}

// TestWhoIsWoken: what is made or removed wakes those it names; an update those it concerns, and
// nobody if nothing that matters has changed.
func TestWhoIsWoken(t *testing.T) {
	byOwner := ByLabel[*corev1.Secret]("of")
	content := Changed(func(s *corev1.Secret) string { return s.StringData["content"] })
	a, moved, edited := secret("s", "a", "1"), secret("s", "b", "1"), secret("s", "a", "2")
	update := func(before, after *corev1.Secret) event.UpdateEvent {
		return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
	}
	itself := func(_, after *corev1.Secret) []string { return []string{after.Name} }
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for name, c := range map[string]struct {
		watch Watch
		event any
		want  []string
	}{
		"made":                  {Watching(a, byOwner), event.CreateEvent{Object: a}, []string{"ns/a"}},
		"removed":               {Watching(a, byOwner), event.DeleteEvent{Object: a}, []string{"ns/a"}},
		"moved":                 {Watching(a, byOwner), update(a, moved), []string{"ns/a", "ns/b"}},
		"the same":              {Watching(a, byOwner), update(a, a), []string{"ns/a"}},
		"made, with a view":     {WatchingChanges(a, content, byOwner), event.CreateEvent{Object: a}, []string{"ns/a"}},
		"removed, with a view":  {WatchingChanges(a, content, byOwner), event.DeleteEvent{Object: a}, []string{"ns/a"}},
		"edited":                {WatchingChanges(a, content, byOwner), update(a, edited), []string{"ns/a"}},
		"edited out of view":    {WatchingChanges(a, content, byOwner), update(a, moved), nil},
		"the update says whom":  {WatchingUpdates(a, byOwner, itself), update(a, moved), []string{"ns/s"}},
		"of the whole cluster":  {Watching(n, BySameName[*corev1.Node]()), event.CreateEvent{Object: n}, []string{"own/n"}},
		"made, and it may wait": {Watching(a, byOwner).Within(time.Hour), event.CreateEvent{Object: a}, nil},
	} {
		if got := woken(t.Context(), c.watch, c.event); !slices.Equal(got, c.want) {
			t.Errorf("%s: woken %v, want %v", name, got, c.want)
		}
	}
}

// TestManyChangesWakeOnce: of a watch whose wake-ups may wait.
func TestManyChangesWakeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		h := Watching(&corev1.Secret{}, ByLabel[*corev1.Secret]("of")).Within(time.Second).handler("own")
		looks := 0
		for range 100 {
			h.Create(t.Context(), event.CreateEvent{Object: secret("s", "a", "1")}, q)
			<-time.After(20 * time.Millisecond)
			for q.Len() > 0 {
				r, _ := q.Get()
				looks++
				q.Done(r)
			}
		}
		if looks < 1 || looks > 2 {
			t.Errorf("%d looks at 100 changes in 2 s, which may wait 1 s each", looks)
		}
	})
}

// TestWakeupsByName: who wakes an object from outside Kubernetes may know its name alone.
func TestWakeupsByName(t *testing.T) {
	r := Registration{Namespace: "ns"}
	for namespace, want := range map[string]string{"": "ns", "other": "other"} {
		o := &corev1.ConfigMap{}
		o.Name, o.Namespace = "n1", namespace
		if got := r.Woken(Wakeups{}, o); len(got) != 1 || got[0].Namespace != want || got[0].Name != "n1" {
			t.Errorf("namespace %q: %v", namespace, got)
		}
	}
}
