package system

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// eventsPerPage bounds the events that are read at once. The API server forgets them after an hour.
const eventsPerPage = 1000

func listEvents(q *serve.Request) (any, error) {
	views, err := eventViews(q)
	if err != nil {
		return nil, err
	}
	return serve.Collection(q, resource.TypeEvent, views), nil
}

// eventViews lists the events about our own objects. They are read from the API server: caching
// every event of a namespace would cost more than reading them when somebody looks.
func eventViews(q *serve.Request) ([]resource.Event, error) {
	var own []corev1.Event
	for next := ""; ; {
		var page corev1.EventList
		if err := q.Objects.Live.List(q.Context(), &page, client.InNamespace(q.Objects.Namespace),
			client.Limit(eventsPerPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing events: %w", err)
		}
		for _, e := range page.Items {
			if strings.HasPrefix(e.InvolvedObject.APIVersion, lh.Group+"/") {
				own = append(own, e)
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	serve.SortByName(own)
	views := []resource.Event{}
	for _, e := range own {
		e.ManagedFields = nil
		views = append(views, resource.Event{Resource: q.Envelope(resource.TypeEvent, e.Name, resource.WhenAlways),
			Event: e, EventType: e.Type})
	}
	return views, nil
}
