package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// imageServer answers as a server with one image, and notes what it is asked.
type imageServer struct {
	t      *testing.T
	status int // of uploads
	asked  []string
}

func (s *imageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.RequestURI()
	switch {
	case r.URL.Query().Get("action") == "upload":
		part, err := r.MultipartReader()
		if err != nil {
			s.t.Error(err)
			return
		}
		chunk, err := part.NextPart()
		if err != nil {
			s.t.Error(err)
			return
		}
		text, _ := io.ReadAll(chunk) // what is missing is not equal
		what += " " + chunk.FormName() + "=" + string(text)
		if s.status != http.StatusOK {
			w.WriteHeader(s.status)
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "message": "it has another checksum"})
		}
	case r.Method == http.MethodPost:
		text, _ := io.ReadAll(r.Body)
		what += " " + string(text)
		_, _ = io.WriteString(w, `{"name":"iso"}`)
	case strings.HasSuffix(r.URL.Path, "/iso"):
		_, _ = io.WriteString(w, `{"name":"iso","size":7}`)
	default:
		_, _ = io.WriteString(w, `{"data":[{"name":"iso"}]}`)
	}
	s.asked = append(s.asked, what)
}

// TestBackingImages: what the server is asked, and that an upload brings the content and what the
// server says of it.
func TestBackingImages(t *testing.T) {
	s := &imageServer{t: t, status: http.StatusOK}
	web := httptest.NewServer(s)
	defer web.Close()
	c, err := New(web.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := c.CreateBackingImage(t.Context(), BackingImageSpec{Name: "iso", SourceType: "upload"}); err != nil ||
		b.Name != "iso" {
		t.Errorf("%+v, %v", b, err)
	}
	if all, err := c.BackingImages(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if b, err := c.BackingImage(t.Context(), "iso"); err != nil || b.Size != 7 {
		t.Errorf("%+v, %v", b, err)
	}
	if err := c.UploadBackingImage(t.Context(), "iso", strings.NewReader("content"), 7); err != nil {
		t.Error(err)
	}
	s.status = http.StatusInternalServerError
	if err := c.UploadBackingImage(t.Context(), "iso", strings.NewReader("content"), 7); err == nil ||
		err.Error() != "it has another checksum" {
		t.Errorf("refused: %v", err)
	}
	if err := c.DeleteBackingImage(t.Context(), "iso"); err != nil {
		t.Error(err)
	}
	const upload = "POST /v1/backingimages/iso?action=upload&size=7 chunk=content"
	want := []string{`POST /v1/backingimages {"name":"iso","sourceType":"upload","parameters":{}}`, "GET /v1/backingimages",
		"GET /v1/backingimages/iso", upload, upload, "DELETE /v1/backingimages/iso"}
	if strings.Join(s.asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(s.asked, "\n"), strings.Join(want, "\n"))
	}
	dry, err := NewOptions(web.URL, Options{DryRun: func(string, string, []byte) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := dry.UploadBackingImage(t.Context(), "iso", strings.NewReader("content"), 7); err != ErrDryRun ||
		len(s.asked) != len(want) {
		t.Errorf("dry run: %v", err)
	}
}
