package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"ankole.storage/rest/resource"
)

// TestDryRun: what would change something is told and not sent; actions that only show are sent.
func TestDryRun(t *testing.T) {
	var told []string
	c, err := NewOptions(newServer(t).URL, Options{DryRun: func(method, path string, body []byte) {
		told = append(told, method+" "+path+" "+string(body))
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := c.DeleteVolume(ctx, "demo"); !errors.Is(err, ErrDryRun) {
		t.Errorf("%v", err)
	}
	if _, err := c.UpdateReplicaCount(ctx, "demo", 2); !errors.Is(err, ErrDryRun) {
		t.Errorf("%v", err)
	}
	if _, err := c.SetSetting(ctx, "log-level", "Debug"); !errors.Is(err, ErrDryRun) {
		t.Errorf("%v", err)
	}
	want := "DELETE /v1/volumes/demo |POST /v1/volumes/demo?action=updateReplicaCount {\"replicaCount\":2}|" +
		"PUT /v1/settings/log-level {\"value\":\"Debug\"}"
	if got := strings.Join(told, "|"); got != want {
		t.Errorf("%s", got)
	}
	told = nil
	if _, err := c.Volume(ctx, "demo"); err != nil {
		t.Error(err)
	}
	if _, err := c.SnapshotObjects(ctx, "demo"); err != nil {
		t.Error(err)
	}
	if _, err := c.VolumeJobs(ctx, "demo"); err != nil {
		t.Error(err)
	}
	if len(told) > 0 {
		t.Errorf("only shown, but told: %v", told)
	}
}

// TestTLSAndDial: requests and streams use the given authorities and connections.
func TestTLSAndDial(t *testing.T) {
	to, err := url.Parse(newServer(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to))
	t.Cleanup(web.Close)
	pool := x509.NewCertPool()
	pool.AddCert(web.Certificate())
	dials := 0
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		dials++
		return (&net.Dialer{}).DialContext(ctx, network, web.Listener.Addr().String())
	}
	trusting := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	for server, o := range map[string]Options{web.URL: {TLS: trusting}, "https://example.com": {TLS: trusting,
		Dial: dial}} {
		c, err := NewOptions(server, o)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := c.Volumes(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%s: %d volumes, %v", server, len(all), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := c.WaitVolume(ctx, "demo", func(v *resource.Volume) (bool, error) { return v != nil, nil }); err != nil {
			t.Errorf("%s: %v", server, err)
		}
		cancel()
	}
	if dials < 2 {
		t.Errorf("%d connections were made by the given function", dials)
	}
	c, err := NewOptions(web.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var unknown x509.UnknownAuthorityError
	if _, err := c.Volumes(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
}
