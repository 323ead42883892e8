package rest

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ankole.storage/rest/resttest"
)

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
		f := guarded(t, &resttest.Reviews{Rights: users}, "all", func(c *Config) {
			c.TLS, c.Plaintext = tt.config, tt.plaintext
			c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		})
		r := httptest.NewRequest(tt.method, "http://127.0.0.1"+tt.path, nil)
		if r.RemoteAddr = tt.from; tt.byTLS {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
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
