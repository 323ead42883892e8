package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/test/wait"
)

func newSource(t *testing.T, d *store.Disk, cfg SourceConfig) (*Source, *httptest.Server) {
	t.Helper()
	cfg.Log, cfg.Options = quiet, source.Options{Policy: func(netip.Addr) error { return nil }, Pause: time.Microsecond,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
	s, err := NewSource(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler(func(context.Context) error { return nil }))
	t.Cleanup(func() {
		s.Close()
		server.Close()
	})
	return s, server
}

func sourceState(t *testing.T, server *httptest.Server) sourceStatus {
	t.Helper()
	r, err := http.Get(server.URL + "/v1/file")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var s sourceStatus
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func awaitSource(t *testing.T, server *httptest.Server, state string) (s sourceStatus) {
	t.Helper()
	wait.Until(t, "the data source is "+state, func() bool {
		s = sourceState(t, server)
		return s.State == state
	})
	return s
}

// awaitMessage waits until a data source that has nothing yet says what it waits for.
func awaitMessage(t *testing.T, server *httptest.Server, part string) {
	t.Helper()
	wait.Until(t, "the data source says "+part, func() bool {
		s := sourceState(t, server)
		return s.State == "pending" && strings.Contains(s.Message, part)
	})
}

// TestDownloads: what a server gives is on the disk, unpacked; or it is failed with the reason, and
// nothing is.
func TestDownloads(t *testing.T) {
	t.Parallel()
	want := image(2 << 20)
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	qcow2 := append([]byte("QFI\xfb\x00\x00\x00\x02"), make([]byte, 1016)...)
	based := bytes.Clone(qcow2)
	based[15] = 72
	for _, tt := range []struct {
		name        string
		served      []byte
		sum         string
		state, says string
	}{
		{"raw", want, sumOf(want), "ready-for-transfer", ""}, {"packed", w.EncodeAll(want, nil), sumOf(want),
			"ready-for-transfer", ""},
		{"another checksum", want, sumOf(nil), "failed", sumOf(want)},
		{"sum of the packed", w.EncodeAll(want, nil), sumOf(w.EncodeAll(want, nil)), "failed", "unpacked"},
		{"no sectors", want[:1000], "", "failed", "1000 bytes"}, {"a base", based, "", "failed", "another file"},
		{"damaged", w.EncodeAll(want, nil)[:100_000], "", "failed", "damaged or cut"},
		{"nothing", nil, "", "failed", "empty"},
	} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = w.Write(tt.served)
		}))
		d := newDisk(t)
		_, server := newSource(t, d, SourceConfig{ID: id, Type: TypeDownload, Parameters: map[string]string{"url": web.URL},
			Checksum: tt.sum})
		got := awaitSource(t, server, tt.state)
		if !strings.Contains(got.Message, tt.says) || got.Name != id.Name || got.SourceType != TypeDownload {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.says)
		}
		if tt.state == "failed" {
			empty(t, d)
		} else if p, err := os.ReadFile(backingimage.InSource(d.Root(), id).File); err != nil || !bytes.Equal(p, want) ||
			got.CurrentChecksum != sumOf(want) || got.Progress != 100 || got.Size != int64(len(want)) {
			t.Errorf("%s: %d bytes, %v, %+v", tt.name, len(p), err, got)
		}
		web.Close()
	}
}

// upload sends a file as a browser does, and returns the answer.
func upload(ctx context.Context, server *httptest.Server, size int, content io.Reader) (int, string, error) {
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		part, err := form.CreateFormFile(source.Part, "image")
		if err == nil {
			_, err = io.Copy(part, content)
		}
		if err == nil {
			err = form.Close()
		}
		_ = w.CloseWithError(err)
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/v1/file?action=upload&size=%d",
		server.URL, size), r)
	if err != nil {
		return 0, "", err
	}
	q.Header.Set("Content-Type", form.FormDataContentType())
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), err
}

// TestUploads: a whole one is stored; one that is cut is gone, says so, and can be repeated.
func TestUploads(t *testing.T) {
	t.Parallel()
	want := image(2 << 20)
	d := newDisk(t)
	_, server := newSource(t, d, SourceConfig{ID: id, Type: TypeUpload})
	if got := sourceState(t, server); got.State != "pending" || got.SourceType != TypeUpload {
		t.Errorf("%+v", got)
	}
	ctx, cut := context.WithCancel(t.Context())
	rest, more := io.Pipe()
	over := make(chan error, 1)
	go func() {
		code, text, err := upload(ctx, server, len(want), io.MultiReader(bytes.NewReader(want[:1<<20]), rest))
		if err == nil && code != http.StatusOK {
			err = errors.New(text) // the server was quicker
		}
		over <- err
	}()
	wait.Until(t, "half of it", func() bool { return sourceState(t, server).ProcessedSize >= 1<<19 })
	if code, text, err := upload(t.Context(), server, len(want), bytes.NewReader(want)); err != nil ||
		code != http.StatusConflict {
		t.Errorf("a second one beside it: %d %s, %v", code, text, err)
	}
	cut()
	_ = more.Close()
	if err := wait.Receive(t, "the cut", over); err == nil {
		t.Error("a cut upload was taken for a whole one")
	}
	if got := awaitSource(t, server, "failed"); !strings.Contains(got.Message, "was cut after") {
		t.Errorf("%+v", got)
	}
	empty(t, d)
	if code, text, err := upload(t.Context(), server, len(want)+512, bytes.NewReader(want)); err != nil || code == 200 ||
		!strings.Contains(text, "cut after") {
		t.Errorf("shorter than announced: %d %s, %v", code, text, err)
	}
	empty(t, d)
	if code, text, err := upload(t.Context(), server, len(want), bytes.NewReader(want)); err != nil || code != 200 {
		t.Errorf("whole: %d %s, %v", code, text, err)
	}
	if got := sourceState(t, server); got.State != "ready-for-transfer" || got.CurrentChecksum != sumOf(want) {
		t.Errorf("%+v", got)
	}
	if code, _, err := upload(t.Context(), server, len(want), bytes.NewReader(want)); err != nil ||
		code != http.StatusConflict {
		t.Errorf("once more: %d, %v", code, err)
	}
}

// TestRemovedWhileItIsUploaded: the user is not waited for.
func TestRemovedWhileItIsUploaded(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	s, server := newSource(t, d, SourceConfig{ID: id, Type: TypeUpload})
	rest, more := io.Pipe()
	defer more.Close()
	over := make(chan error, 1)
	go func() {
		_, _, err := upload(t.Context(), server, 2<<20, io.MultiReader(bytes.NewReader(image(1<<20)), rest))
		over <- err
	}()
	wait.Until(t, "half of it", func() bool { return sourceState(t, server).ProcessedSize >= 1<<19 })
	if err := s.Files().Remove(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	empty(t, d)
	_ = more.Close()
	_ = wait.Receive(t, "the answer", over) // an error or an answer that says so
}

// TestRestartedSource: a data source that comes again shows what is complete, and begins anew
// otherwise.
func TestRestartedSource(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	d := newDisk(t)
	have(t, d, backingimage.InSource(d.Root(), id), want)
	_, server := newSource(t, d, SourceConfig{ID: id, Type: TypeDownload,
		Parameters: map[string]string{"url": "http://127.0.0.1:1/"}})
	if got := sourceState(t, server); got.State != "ready-for-transfer" || got.CurrentChecksum != sumOf(want) {
		t.Errorf("%+v", got)
	}
	d = newDisk(t)
	if _, err := d.Create(backingimage.InSource(d.Root(), id), id.UUID); err != nil {
		t.Fatal(err)
	}
	_, server = newSource(t, d, SourceConfig{ID: id, Type: TypeUpload})
	if got := sourceState(t, server); got.State != "pending" {
		t.Errorf("%+v", got)
	}
	empty(t, d)
}

func TestSourceRefuses(t *testing.T) {
	t.Parallel()
	for _, cfg := range []SourceConfig{{}, {ID: id}, {ID: id, Type: "clone"}, {ID: id, Type: TypeDownload},
		{ID: id, Type: TypeUpload, Checksum: "abc"}, {ID: backingimage.ID{Name: "..", UUID: "x"}, Type: TypeUpload}} {
		cfg.Log = quiet
		if s, err := NewSource(newDisk(t), cfg); err == nil {
			s.Close()
			t.Errorf("%+v is taken", cfg)
		}
	}
	_, server := newSource(t, newDisk(t), SourceConfig{ID: id, Type: TypeUpload})
	for action, status := range map[string]int{"upload": 400, "transfer": 404, "format": 400} {
		r, err := http.Post(server.URL+"/v1/file?action="+action, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != status {
			t.Errorf("%s: %s", action, r.Status)
		}
	}
}
