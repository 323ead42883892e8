package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

func TestDiscovery(t *testing.T) {
	f := newFixture(t)
	root := f.Get("/")
	data := root["data"].([]any)
	if root["resourceType"] != "apiVersion" || len(data) != 1 || root["links"].(map[string]any)["latest"] != f.URL+"/v1" {
		t.Errorf("root: %v", root)
	}
	for _, path := range []string{"/v1", "/v1/apiversions/v1"} {
		a := f.Do(http.MethodGet, path, "")
		if got := a.Header.Get(serve.HeaderSchemas); got != f.URL+"/v1/schemas" {
			t.Errorf("%s: X-API-Schemas %q", path, got)
		}
		links := a.JSON["links"].(map[string]any)
		if links["self"] != f.URL+"/v1" || links["backingImages"] != f.URL+"/v1/backingimages" ||
			a.JSON["id"] != "v1" || a.JSON["type"] != "apiVersion" {
			t.Errorf("%s: %v", path, a.JSON)
		}
		if len(links) != len(resource.Types)+1 {
			t.Errorf("%d links, want one per schema and self", len(links))
		}
	}
}

func TestSchemaDocument(t *testing.T) {
	f := newFixture(t)
	document := f.Get("/v1/schemas")
	data := document["data"].([]any)
	if document["type"] != "collection" || document["resourceType"] != "schema" || len(data) != 88 {
		t.Fatalf("type %v, resourceType %v, %d schemas", document["type"], document["resourceType"], len(data))
	}
	for i, raw := range data {
		s := raw.(map[string]any)
		want := resource.Types[i]
		links := s["links"].(map[string]any)
		if s["id"] != want.ID || s["type"] != "schema" || links["self"] != f.URL+"/v1/schemas/"+want.ID ||
			links["collection"] != f.URL+"/v1/"+resource.Path(want.ID) || s["actions"] == nil {
			t.Errorf("schema %d: %v %v", i, s["id"], links)
		}
	}
	volume := f.Get("/v1/schemas/VOLUME")
	actions := volume["resourceActions"].(map[string]any)
	built := apitest.Routes(f.Server.Table())["/v1/volumes/{name}"].Actions
	if volume["id"] != "volume" || len(actions) != len(built) || actions["attach"] == nil ||
		actions["snapshotBackup"] == nil {
		t.Errorf("the volume schema lists actions %v; those that are built belong there", actions)
	}
	size := volume["resourceFields"].(map[string]any)["size"].(map[string]any)
	if fmt.Sprint(size) != "map[create:true default:100G required:true type:string]" {
		t.Errorf("field size: %v", size)
	}
	unknown := f.Get("/v1/schemas/nonsense")
	if _, has := unknown["id"]; has || unknown["links"] == nil || unknown["actions"] == nil {
		t.Errorf("an unknown schema has an id: %v", unknown)
	}
}

func TestRouting(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/v1/volumes/", 301, ""},
		{"GET", "/nothing", 404, "404 page not found"},
		{"GET", "/v1/backups", 404, "404 page not found"},
		{"POST", "/v1/systembackups", 500, "needs system backups"},
		{"POST", "/v1/volumes/demo?action=nonsense", 404, "404 page not found"},
		{"POST", "/v1/volumes/demo", 404, "404 page not found"},
		{"PUT", "/v1/volumes/demo", 405, ""},
		{"DELETE", "/v1/settings/log-level", 405, ""},
		{"GET", "/v1/volumes/missing", 404, ""},
		{"POST", "/v1/volumes/missing?action=detach", 404, "unable to detach volume missing"},
		{"GET", "/v1/healthz", 200, ""},
		{"GET", "/v1/ws/nonsense", 404, "404 page not found"},
		{"GET", "/v1/ws/volumes", 500, "is a websocket"},
		{"GET", "/v1/volumes?limit=1&marker=x&sort=name&name=other", 200, `"id":"demo"`},
	} {
		a := f.Do(c.method, c.path, "")
		if a.Status != c.status || c.body == "" && c.status != 301 && a.Text != "" || !strings.Contains(a.Text, c.body) {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, a.Status, a.Text, c.status, c.body)
		}
	}
	if to := f.Do("GET", "/v1/volumes/?x=1", "").Header.Get("Location"); to != "/v1/volumes?x=1" {
		t.Errorf("redirect to %q", to)
	}
	// A path of slashes must not send a browser to another host.
	if to := f.Do("GET", "//evil.example/", "").Header.Get("Location"); strings.HasPrefix(to, "//") {
		t.Errorf("redirect to %q", to)
	}
}

func TestLinksFollowTheRequest(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	for _, c := range []struct {
		name    string
		headers []string
		want    string
	}{
		{"host", []string{"Host", "manager:9500"}, "http://manager:9500"},
		{"request URL", []string{"X-API-request-url", "https://ui.example/longhorn/v1/volumes/demo?x=1, other"},
			"https://ui.example/longhorn"},
		{"proto", []string{"Host", "h:9500", "X-Forwarded-Proto", "https"}, "https://h:9500"},
		{"proto, host and port", []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "ui.example:80",
			"X-Forwarded-Port", "8443"}, "https://ui.example:8443"},
		{"default port", []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "ui.example:8443",
			"X-Forwarded-Port", "443"}, "https://ui.example"},
		{"forwarded host alone", []string{"X-Forwarded-Host", "ui.example, inner"}, "http://ui.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := f.Do("GET", "/v1/volumes/demo", "", c.headers...)
			links, actions := a.JSON["links"].(map[string]any), a.JSON["actions"].(map[string]any)
			if links["self"] != c.want+"/v1/volumes/demo" || actions["attach"] != c.want+"/v1/volumes/demo?action=attach" {
				t.Errorf("self %v, attach %v, want base %s", links["self"], actions["attach"], c.want)
			}
			if got := a.Header.Get(serve.HeaderSchemas); got != c.want+"/v1/schemas" {
				t.Errorf("X-API-Schemas %q", got)
			}
		})
	}
	if a := f.Do("PUT", "/v1/settings/manager-url", `{"value":"https://set.example:8443"}`); a.Status != 200 {
		t.Fatal(a.Text)
	}
	self := f.Do("GET", "/v1/volumes/demo", "", "X-Forwarded-Proto", "http", "X-Forwarded-Host",
		"other").JSON["links"].(map[string]any)["self"]
	if self != "https://set.example:8443/v1/volumes/demo" {
		t.Errorf("manager-url does not win: %v", self)
	}
}

func TestBadBodies(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	for _, c := range []struct{ body, message string }{
		{"", "EOF"},
		{"   \n", "EOF"},
		{"hello", "not the JSON object expected"},
		{`{"name":"demo"`, "not the JSON object expected"},
		{`{"name":"demo"} {"name":"other"}`, "not the JSON object expected"},
		{`["demo"]`, "not the JSON object expected"},
		{`{"name":"demo","size":1073741824}`, "size is a number; write a string"},
		{`{"name":` + strings.Repeat("[", 20000) + `}`, "not the JSON object expected"},
	} {
		f.Refused(f.Do("POST", "/v1/volumes", c.body), 500, c.message)
	}
	if n := len(f.Get("/v1/volumes")["data"].([]any)); n != 0 {
		t.Errorf("%d volumes were created from bad bodies", n)
	}
}

// zeroes is an endless body.
type zeroes struct{ left int64 }

func (z *zeroes) Read(p []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	for i := range p[:n] {
		p[i] = '1'
	}
	z.left -= n
	return int(n), nil
}

// A body of 100 MB gets a clear error, with and without a length told beforehand, and is not kept
// in memory.
func TestHugeBody(t *testing.T) {
	f := newFixture(t)
	for _, chunked := range []bool{false, true} {
		req, _ := http.NewRequest("POST", f.URL+"/v1/volumes", &zeroes{100 << 20})
		if !chunked {
			req.ContentLength = 100 << 20
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("chunked %t: %v", chunked, err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		runtime.ReadMemStats(&after)
		if resp.StatusCode != 500 || !strings.Contains(string(text), "longer than 1048576 bytes") {
			t.Errorf("chunked %t: %d %s", chunked, resp.StatusCode, text)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
			t.Errorf("chunked %t: %d MiB were allocated for a body that is refused", chunked, grown>>20)
		}
	}
}

// A client that says it has a body and never sends it must not block the others, nor the end of the
// server.
func TestExpectContinueIsAnsweredAtOnce(t *testing.T) {
	f := newFixture(t)
	u, _ := url.Parse(f.URL)
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/volumes HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\nExpect: 100-continue\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "500") {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestExplorer(t *testing.T) {
	f := newFixture(t, resttest.Cluster(resttest.Volume("demo")...)...)
	browser := []string{"User-Agent", "Mozilla/5.0", "Accept", "text/html,*/*"}
	for _, c := range []struct {
		path    string
		headers []string
		html    bool
	}{
		{"/v1/volumes", browser, true},
		{"/v1/volumes?_format=json", browser, false},
		{"/v1/volumes?_format=html", nil, true},
		{"/v1/volumes", []string{"User-Agent", "Mozilla/5.0", "Accept", "application/json"}, false},
		{"/v1/volumes", []string{"User-Agent", "curl/8"}, false},
	} {
		a := f.Do("GET", c.path, "", c.headers...)
		if html := strings.HasPrefix(a.Header.Get("Content-Type"), "text/html"); html != c.html ||
			a.Header.Get(serve.HeaderSchemas) == "" {
			t.Errorf("%s %v: content type %s", c.path, c.headers, a.Header.Get("Content-Type"))
		}
	}
	// Values cannot break out of the page's script.
	f.Do("PUT", "/v1/settings/registry-secret", `{"value":"</script><script>alert(1)</script>"}`)
	if a := f.Do("GET", "/v1/settings/registry-secret?_format=html", ""); strings.Contains(a.Text, "<script>alert") {
		t.Error("a value is executed by the explorer page")
	}
}

func TestCrossSiteChangesAreRefused(t *testing.T) {
	f := newFixture(t, resttest.Cluster()...)
	a := f.Do("POST", "/v1/volumes", `{"name":"demo"}`, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	f.Refused(a, 403, "page of another site")
	if a := f.Do("GET", "/v1/volumes", "", "Origin", "https://evil.example"); a.Status != 200 {
		t.Errorf("reading: %d", a.Status)
	}
	if a := f.Do("PUT", "/v1/settings/log-level", `{"value":"debug"}`, "Origin", "http://ui.example",
		"X-Forwarded-Host", "ui.example"); a.Status != 200 {
		t.Errorf("a page behind a proxy is refused: %d %s", a.Status, a.Text)
	}
}
