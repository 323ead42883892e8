package serve_test

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
)

// TestAudienceOfTokens: a setting has tokens refused that are good for others too, at once and in
// sessions; it is asked before the API server is.
func TestAudienceOfTokens(t *testing.T) {
	aimed := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":["longhorn-backend"]}`)) + ".of-admin"
	for audience, want := range map[string][2]int{"any": {200, 401}, "longhorn-backend": {401, 401}} {
		reviews := &resttest.Reviews{Rights: apitest.Users}
		f := guarded(t, reviews, "none", apitest.Same)
		if err := f.Client.Create(t.Context(), &lh.Setting{ObjectMeta: resttest.Meta("api-token-audience"),
			Value: audience}); err != nil {
			t.Fatal(err)
		}
		if a := f.Do("GET", "/v1/volumes", "", "Authorization", "Bearer of-admin"); a.Status != want[0] {
			t.Errorf("%s: a token for the API server: %d %s", audience, a.Status, a.Text)
		}
		a := f.Do("POST", "/v1/session", `{"token":"of-admin"}`)
		if a.Status != want[0] || want[0] != 200 && !strings.Contains(a.Text, "--audience longhorn-backend") {
			t.Errorf("%s: a session with it: %d %s", audience, a.Status, a.Text)
		}
		// The fake API server does not know it; that it was asked shows that the setting let it pass.
		if a := f.Do("GET", "/v1/volumes", "", "Authorization", "Bearer "+aimed); a.Status != want[1] ||
			strings.Contains(a.Text, "api-token-audience") {
			t.Errorf("%s: a token for the managers: %d %s", audience, a.Status, a.Text)
		}
	}
}

// TestCredentialsDoNotTravel: without TLS a server answers what is open to everybody, and its own
// machine; with TLS, or where it is told so, everybody.
func TestCredentialsDoNotTravel(t *testing.T) {
	const far, near, near6 = "10.1.2.3:4567", "127.0.0.1:4567", "[::1]:4567"
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, tt := range []struct {
		method, path, from string
		config             *tls.Config
		plaintext, byTLS   bool
		want               int
	}{
		{"GET", "/v1/volumes", far, secure, false, false, http.StatusForbidden},
		{"POST", "/v1/session", far, secure, false, false, http.StatusForbidden},
		{"GET", "/v1/volumes", "", secure, false, false, http.StatusForbidden},
		{"GET", "/v1/volumes", far, secure, false, true, http.StatusOK},
		{"GET", "/v1/volumes", far, secure, true, false, http.StatusOK},
		{"GET", "/v1/volumes", far, nil, false, false, http.StatusOK},
		{"GET", "/v1/volumes", near, secure, false, false, http.StatusOK},
		{"GET", "/v1/volumes", near6, secure, false, false, http.StatusOK},
		{"GET", "/v1/healthz", far, secure, false, false, http.StatusOK},
		{"GET", "/metrics", far, secure, false, false, http.StatusOK},
	} {
		f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "all", func(c *rest.Config) {
			c.TLS, c.Plaintext = tt.config, tt.plaintext
			c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		})
		r := httptest.NewRequest(tt.method, "http://127.0.0.1"+tt.path, nil)
		if r.RemoteAddr = tt.from; tt.byTLS {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		f.Server.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s %s from %q: %d, want %d: %s", tt.method, tt.path, tt.from, w.Code, tt.want, w.Body)
		}
		if tt.byTLS && !strings.Contains(w.Body.String(), `"self":"https://127.0.0.1/v1/volumes"`) {
			t.Errorf("links lead away from TLS: %s", w.Body)
		}
		if says := w.Body.String(); w.Code == http.StatusForbidden && !strings.Contains(says, "https:// alone") {
			t.Errorf("the refusal does not say what to do: %s", says)
		}
	}
}
