package system_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
)

// TestEventsOfSeveralPages: events are read in pages, and those of others are left out.
func TestEventsOfSeveralPages(t *testing.T) {
	event := func(n int, version string) corev1.Event {
		return corev1.Event{ObjectMeta: resttest.Meta(fmt.Sprint("e", n)),
			InvolvedObject: corev1.ObjectReference{APIVersion: version, Kind: "Volume", Name: "demo"}}
	}
	pages := map[string]corev1.EventList{
		"":  {Items: []corev1.Event{event(1, "longhorn.io/v1beta2"), event(2, "v1")}},
		"2": {Items: []corev1.Event{event(3, "longhorn.io/v1beta2")}},
	}
	first := pages[""]
	first.Continue = "2"
	pages[""] = first
	funcs := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		events, is := list.(*corev1.EventList)
		if !is {
			return c.List(ctx, list, opts...)
		}
		var o client.ListOptions
		o.ApplyOptions(opts)
		if o.Limit == 0 {
			t.Error("a page has no bound")
		}
		*events = pages[o.Continue]
		return nil
	}}
	f := newFixtureWith(t, funcs, func(*rest.Config) {}, resttest.Cluster()...)
	a := f.Do("GET", "/v1/events", "")
	if data := a.JSON["data"].([]any); a.Status != http.StatusOK || len(data) != 2 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}
