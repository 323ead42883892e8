package ui

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ankole.storage/test/lack"
)

func get(h http.Handler, encoding string) (*httptest.ResponseRecorder, string) {
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header.Set("Accept-Encoding", encoding)
	h.ServeHTTP(w, r)
	return w, w.Body.String()
}

// TestPage: there is a page, built or not, and it may run nothing that is not a file of its own.
func TestPage(t *testing.T) {
	w, text := get(Page(), "")
	if !strings.Contains(text, "<title>Ankole</title>") || strings.Contains(text, "<style") {
		t.Errorf("the page is %.300s", text)
	}
	if !Built() && !strings.Contains(text, "make build") {
		t.Errorf("the page does not say how it is built: %s", text)
	}
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
}

// TestFiles: what the page names is there, packed and unpacked the same, kept by browsers; nothing
// else is served, whatever the name.
func TestFiles(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../index.html", "absent.js", "../../embed.go"} {
		if _, ok := File(name); ok {
			t.Errorf("%q is served", name)
		}
	}
	if !Built() {
		lack.Skip(t, "the files of the web UI: it is not built (make build)")
	}
	_, page := get(Page(), "")
	_, rest, _ := strings.Cut(page, `src="./`+Folder+"/")
	name, _, _ := strings.Cut(rest, `"`)
	h, ok := File(name)
	if !ok {
		t.Fatalf("the page names %q, which is not there: %s", name, page)
	}
	w, packed := get(h, "br, gzip")
	_, plain := get(h, "")
	unpacked, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("packed: %v, %v", w.Header(), err)
	}
	if all, err := io.ReadAll(unpacked); err != nil || string(all) != plain || len(plain) < 100_000 {
		t.Errorf("packed and plain differ, or are little: %d and %d bytes, %v", len(all), len(plain), err)
	}
	if !strings.Contains(w.Header().Get("Cache-Control"), "immutable") ||
		!strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("headers %v", w.Header())
	}
}

// maxFirst is what a browser may fetch before the first page is there, in bytes, compressed.
const maxFirst = 400_000

// TestFirstPageIsSmall: the page, and what it names; what pages fetch later is not among it.
func TestFirstPageIsSmall(t *testing.T) {
	if !Built() {
		lack.Skip(t, "the size of the web UI: it is not built (make build)")
	}
	first, page := get(Page(), "gzip")
	_, text := get(Page(), "")
	size, names := len(page), 0
	for _, part := range strings.Split(text, `="./`+Folder+"/")[1:] {
		name, _, _ := strings.Cut(part, `"`)
		h, ok := File(name)
		if !ok {
			t.Fatalf("the page names %q, which is not there", name)
		}
		_, packed := get(h, "gzip")
		size, names = size+len(packed), names+1
	}
	if first.Header().Get("Content-Encoding") != "gzip" || names < 2 || size > maxFirst {
		t.Errorf("the first page has %d files of %d bytes; %d at most", names, size, maxFirst)
	}
	t.Logf("%d bytes", size)
}
