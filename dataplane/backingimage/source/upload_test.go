package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// form is an upload of some bytes, as its content type and its body.
func form(t *testing.T, part string, content []byte) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	p, err := w.CreateFormFile(part, "image.raw")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.Bytes()
}

func upload(t *testing.T, size any, contentType string, body io.Reader) ([]byte, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/file?action=upload&size="+fmt.Sprint(size), body)
	r.Header.Set("Content-Type", contentType)
	u, err := OpenUpload(r)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(u)
}

// TestUpload: what was announced comes, and everything else is an error that says what happened.
func TestUpload(t *testing.T) {
	t.Parallel()
	want := bytesOf(200_000)
	kind, body := form(t, Part, want)
	if got, err := upload(t, len(want), kind, bytes.NewReader(body)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	lost := errors.New("connection lost")
	otherKind, other := form(t, "file", want)
	for _, tt := range []struct {
		name, kind string
		size       any
		body       io.Reader
		says       string
	}{
		{"cut", kind, len(want), bytes.NewReader(body[:100_000]), "was cut after"},
		{"lost", kind, len(want), io.MultiReader(bytes.NewReader(body[:100_000]), iotest.ErrReader(lost)), "connection lost"},
		{"cut at its end", kind, len(want), bytes.NewReader(body[:len(body)-20]), "cut"},
		{"shorter", kind, len(want) + 1, bytes.NewReader(body), "of 200001 bytes"},
		{"longer", kind, len(want) - 1, bytes.NewReader(body), "more than the 199999 bytes"},
		{"no size", kind, "", bytes.NewReader(body), "give the size"}, {"negative", kind, -1, bytes.NewReader(body),
			"give the size"},
		{"zero", kind, 0, bytes.NewReader(body), "give the size"}, {"no form", "text/plain", 5, strings.NewReader("hello"),
			"multipart"},
		{"other part", otherKind, len(want), bytes.NewReader(other), `part "chunk"`},
		{"no part", kind, 5, strings.NewReader(""), "no part"},
	} {
		got, err := upload(t, tt.size, tt.kind, tt.body)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d bytes, %v, want %q", tt.name, len(got), err, tt.says)
		}
	}
}
