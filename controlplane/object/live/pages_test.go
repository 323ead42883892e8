package live

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server answers with pages as an API server writes them: an empty field is left out.
type server struct {
	client.Reader
	pages []string
	asked []string
	err   error
}

func (s *server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := &client.ListOptions{}
	for _, opt := range opts {
		opt.ApplyToList(o)
	}
	s.asked = append(s.asked, o.Namespace+"/"+o.Continue)
	if s.err != nil || o.Limit != 500 || len(s.asked) > len(s.pages) {
		return errors.Join(s.err, errors.New("refused"))
	}
	return json.Unmarshal([]byte(s.pages[len(s.asked)-1]), list)
}

// TestPages: what a page leaves out is not what the page before had in its place, and the list ends
// with the page that names no next one.
func TestPages(t *testing.T) {
	s := &server{pages: []string{
		`{"metadata":{"continue":"x"},"items":[{"metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"},
			"spec":{"nodeName":"n1"}}]}`,
		`{"metadata":{},"items":[{"metadata":{"name":"b"},"spec":{}}]}`,
	}}
	var pods []*corev1.Pod
	err := Pages(t.Context(), s, func(l *corev1.PodList) {
		for i := range l.Items {
			pods = append(pods, &l.Items[i])
		}
	}, client.InNamespace("ns"))
	if err != nil || len(pods) != 2 || !slices.Equal(s.asked, []string{"ns/", "ns/x"}) {
		t.Fatalf("%v, %d Pods, asked for %q", err, len(pods), s.asked)
	}
	if a, b := pods[0], pods[1]; a.Name != "a" || a.Spec.NodeName != "n1" || a.DeletionTimestamp == nil ||
		b.Name != "b" || b.Spec.NodeName != "" || b.DeletionTimestamp != nil {
		t.Errorf("the Pods are %+v and %+v", a, b)
	}
	s = &server{err: errors.New("away")}
	if err := Pages(t.Context(), s, func(*corev1.PodList) { t.Error("a page") }); !errors.Is(err, s.err) {
		t.Errorf("error %v", err)
	}
}
