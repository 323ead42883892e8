package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
)

// TestTrimsThatWereNotDone: only a manager that has judged the order ends it; an answer of one that
// did not come to that is a failure, and the run is repeated.
func TestTrimsThatWereNotDone(t *testing.T) {
	for status, done := range map[int]bool{200: true, 500: true, 404: true, 401: false, 403: false, 429: false, 502: false,
		503: false, 504: false} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"message":"no"}`)) // the client has what it needs, or the test fails
		}))
		api, err := restclient.New(web.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = api.TrimFilesystem(t.Context(), "v")
		if err := judged("v", err); (err == nil) != done {
			t.Errorf("%d: %v", status, err)
		}
		web.Close()
	}
	for _, err := range []error{restclient.ErrUnreachable, context.DeadlineExceeded, errors.New("no manager is ready")} {
		if judged("v", fmt.Errorf("trim: %w", err)) == nil {
			t.Errorf("%v is taken for done", err)
		}
	}
}

// TestTrimWithoutManagers: without a manager that is ready nothing was trimmed.
func TestTrimWithoutManagers(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m",
		Labels: map[string]string{naming.LabelApp: naming.AppController}}}
	m := Managers{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pod).Build(), Namespace: "ns"}
	if err := m.Trim(t.Context(), "v"); err == nil {
		t.Error("a manager that is not ready has trimmed")
	}
}
