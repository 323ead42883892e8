package e2e

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/proxy"
)

// apiServerName is the name by which kubectl knows the API server.
const apiServerName = "kubernetes.example"

// apiProxy serves what is at an address as an API server does below the path of a Service's proxy,
// and returns where. It is the code of API servers; those of standalone clusters refuse it, since
// their Pods have addresses of loopback. A request comes as from a browser by way of kubectl proxy.
func apiProxy(t *testing.T, to string) string {
	t.Helper()
	const prefix = "/api/v1/namespaces/longhorn-system/services/https:longhorn-frontend:https/proxy"
	at, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // as API servers do
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, prefix)
		if !ok {
			t.Errorf("the page asks for %s, which is not below its own path", r.URL.Path)
			http.NotFound(w, r)
			return
		}
		r.Host = apiServerName        // kubectl has dialled that
		r.Header.Del("Authorization") // what the API server lets in is its own
		below := *at
		below.Path = path
		proxy.NewUpgradeAwareHandler(&below, transport, true, false, asTold{}).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + prefix
}

// asTold answers with the errors of a proxy.
type asTold struct{}

func (asTold) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}
