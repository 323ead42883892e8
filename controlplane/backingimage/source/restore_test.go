package source

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/backup/store"
)

// newRestore is a data source that restores image golden, whose Pod waits for the order.
func newRestore(edits ...func(*scene)) *scene {
	c := newScene(says(file{State: "pending", Message: "waits"}))
	c.d.Spec.SourceType = v1beta2.BackingImageSourceTypeRestore
	c.d.Spec.Parameters = map[string]string{"backup-url": "s3://b@r/p/?backingImage=golden", "concurrent-limit": "3",
		"backup-target-name": "default"}
	t := &v1beta2.BackupTarget{ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/p"}}
	t.Status.Available = true
	c.s.Restore.Target = t
	for _, e := range edits {
		e(c)
	}
	return c
}

// TestDecideRestore is the fourth table "source" of docs/design/backing-images.md.
func TestDecideRestore(t *testing.T) {
	gone := func(c *scene) { c.s.Restore.Target = nil }
	away := func(c *scene) { c.s.Restore.Target.Status.Available = false }
	elsewhere := func(c *scene) { c.s.Restore.Target.Spec.BackupTargetURL = "s3://other@r/p" }
	const restore = "restore a backup from backup target default"
	const lies = "the backup lies in s3://b@r/p/, and backup target default is s3://other@r/p/: name the target that has it"
	for _, tt := range []struct {
		name    string
		edits   []func(*scene)
		want    string
		state   v1beta2.BackingImageState
		message string
	}{
		{"waits for the order", nil, restore, "pending", "waits"},
		{"no Pod", []func(*scene){noPod}, "create the Pod", "pending", notStarted},
		{"no Pod, no target", []func(*scene){noPod, gone}, "wait", "failed", "backup target default does not exist any more"},
		{"no Pod, target away", []func(*scene){noPod, away}, "wait", "pending", "backup target default is not available"},
		{"waits, target away", []func(*scene){away}, "wait after 2s", "pending", "backup target default is not available"},
		{"another store", []func(*scene){elsewhere}, "wait after 2s", "failed", lies},
		{"ordered a moment ago", []func(*scene){tried(time.Second, nil)}, "wait after 2s", "pending", "waits"},
		{"restores", []func(*scene){says(file{State: "in-progress"})}, "wait after 2s", "in-progress", ""},
		{"complete", []func(*scene){says(file{State: "ready-for-transfer"})}, "wait after 2s", "ready-for-transfer", ""},
		{"deleted", []func(*scene){deleted, noPod}, "no finalizer", "", ""},
	} {
		c := newRestore(tt.edits...)
		got := outcome(decide(t0, c.d, c.s))
		if st := c.d.Status; got != tt.want || st.CurrentState != tt.state || st.Message != tt.message {
			t.Errorf("%s: %s, %q, %q; want %s, %q, %q", tt.name, got, st.CurrentState, st.Message, tt.want, tt.state, tt.message)
		}
	}
}

// TestRestore: the process gets the order with the body that it reads, and a refusal is an error.
func TestRestore(t *testing.T) {
	t.Parallel()
	status, got := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // what is missing is seen
		got = q.Method + " " + q.URL.String() + " " + string(body)
		w.WriteHeader(status)
	}))
	defer server.Close()
	r := New(Config{Access: &store.Access{}, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}})
	c := newRestore()
	c.s.Restore.BytesPerSecond = 7 << 20
	if err := r.restore(t.Context(), "10.0.0.1", c.d, c.s.Restore); err != nil {
		t.Fatal(err)
	}
	what, body, _ := strings.Cut(got, " {")
	var order struct {
		ConcurrentLimit int
		NodeBandwidth   int64
	}
	if err := json.Unmarshal([]byte("{"+body), &order); err != nil || order.ConcurrentLimit != 3 ||
		order.NodeBandwidth != 7<<20 ||
		what != "POST /v1/file?action=restore" {
		t.Errorf("%s: %v", got, err)
	}
	status = http.StatusConflict
	if err := r.restore(t.Context(), "10.0.0.1", c.d, c.s.Restore); err == nil {
		t.Error("refused, and no error")
	}
}

// TestRestoringPod: only the Pod that restores from a share may mount one.
func TestRestoringPod(t *testing.T) {
	for url, want := range map[string]bool{"s3://b@r/p/?backingImage=golden": false,
		"nfs://s:/p?backingImage=golden": true, "cifs://s/p?backingImage=golden": true} {
		c := newRestore()
		c.d.Spec.Parameters["backup-url"] = url
		if got := backingimage.MayMount(podFor(c.d, c.d.Spec.Parameters, "bim", c.s.Settings)); got != want {
			t.Errorf("%s: may mount %v", url, got)
		}
	}
	c := newScene()
	c.d.Spec.Parameters["backup-url"] = "nfs://s:/p?backingImage=golden"
	if backingimage.MayMount(podFor(c.d, c.d.Spec.Parameters, "bim", c.s.Settings)) {
		t.Error("a download may mount")
	}
}
