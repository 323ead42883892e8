package rest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// maxEvents bounds the events read at once. The API server forgets events after an hour, so a busy
// cluster stays below.
const maxEvents = 5000

func listEvents(q *request) (any, error) {
	views, err := q.eventViews()
	if err != nil {
		return nil, err
	}
	return collection(q, resource.TypeEvent, views), nil
}

// eventViews lists the events about our own objects. They are read from the API server: caching
// every event of a namespace would cost more than reading them when somebody looks.
func (q *request) eventViews() ([]resource.Event, error) {
	var events corev1.EventList
	err := q.server.cfg.Live.List(q.Context(), &events, client.InNamespace(q.server.cfg.Namespace),
		client.Limit(maxEvents))
	if err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	byName(events.Items)
	views := []resource.Event{}
	for _, e := range events.Items {
		if !strings.HasPrefix(e.InvolvedObject.APIVersion, lh.Group+"/") {
			continue
		}
		e.ManagedFields = nil
		views = append(views, resource.Event{Resource: q.envelope(resource.TypeEvent, e.Name, resource.WhenAlways),
			Event: e, EventType: e.Type})
	}
	return views, nil
}
