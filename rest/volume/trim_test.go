package volume_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// These are the times that operations have, and that clients have for the answer.
const (
	trimLimit      = 24 * time.Hour
	requestTimeout = 30 * time.Second
	answerTimeout  = 60 * time.Second
)

// TestTrimFilesystem: the engine's node is told, and the answer is the volume. What has no file
// system mounted from it is refused before that, and what the node says reaches the client.
func TestTrimFilesystem(t *testing.T) {
	const url = "/v1/volumes/demo?action=trimFilesystem"
	f, fake := snapshotFixture(t, unchanged)
	if a := f.Do("POST", url, ""); a.Status != 200 || a.JSON["id"] != "demo" || strings.Join(fake.Calls(), ",") != "trim" {
		t.Errorf("%d %s; %s", a.Status, a.Text, fake.Calls())
	}
	for why, edit := range map[string]func(*lh.Volume, *lh.Engine){
		"is not attached":          func(v *lh.Volume, _ *lh.Engine) { v.Status.State = lh.VolumeStateAttaching },
		"engine is not running":    func(_ *lh.Volume, e *lh.Engine) { e.Status.CurrentState = lh.InstanceStateStopped },
		"has no block device":      func(v *lh.Volume, _ *lh.Engine) { v.Status.FrontendDisabled = true },
		"so that no file system":   func(v *lh.Volume, _ *lh.Engine) { v.Spec.Frontend = lh.VolumeFrontendISCSI },
		"operate during migration": func(v *lh.Volume, _ *lh.Engine) { v.Spec.MigrationNodeID = "n2" },
	} {
		f, fake := snapshotFixture(t, edit)
		f.Refused(f.Do("POST", url, ""), 500, why)
		if len(fake.Calls()) > 0 {
			t.Errorf("%s: %s", why, fake.Calls())
		}
	}
	fake.Fail(errors.New("not mounted on this node"))
	f.Refused(f.Do("POST", url, ""), 500, "failed to trim the file system for volume demo: not mounted")
}

// deadlines notes what a server would do to a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	write, read time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }
func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }

// TestTimeToTakeTheAnswer: a trim has more time than other requests, for those who may order it; a
// query that says so gives none to another one. Only streams are without a bound here. Where there
// is a body, reading is bound as well: when that time is over, the server ends the request.
func TestTimeToTakeTheAnswer(t *testing.T) {
	f, _ := snapshotFixture(t, unchanged)
	g := guarded(t, &resttest.Reviews{}, "none", apitest.Same)
	for _, tt := range []struct {
		f         *fixture
		operation string
		want      time.Duration
	}{
		{f, "POST /v1/volumes/demo?action=trimFilesystem", trimLimit},
		{f, "GET /v1/volumes/demo?action=trimFilesystem", requestTimeout},
		{f, "GET /v1/volumes?action=trimFilesystem", requestTimeout},
		{f, "POST /v1/nodes/node-1?action=trimFilesystem", requestTimeout},
		{f, "POST /v1/volumes/demo?action=snapshotList", requestTimeout},
		{f, "GET /metrics", requestTimeout}, {f, "GET /metrics?action=trimFilesystem", requestTimeout},
		{g, "POST /v1/volumes/demo?action=trimFilesystem", requestTimeout},
	} {
		method, url, _ := strings.Cut(tt.operation, " ")
		for _, body := range []string{"", "{}"} {
			w, began := &deadlines{ResponseRecorder: httptest.NewRecorder()}, time.Now()
			tt.f.Server.ServeHTTP(w, httptest.NewRequest(method, url, strings.NewReader(body)))
			within := func(end time.Time) bool {
				d := end.Sub(began)
				return d >= tt.want && d <= tt.want+answerTimeout+time.Minute
			}
			if !within(w.write) || body != "" && !within(w.read) {
				t.Errorf("%s with body %q: %s to write, %s to read, want %s", tt.operation, body, w.write.Sub(began),
					w.read.Sub(began), tt.want+answerTimeout)
			}
		}
	}
}
