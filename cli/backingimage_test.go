package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// imageOf is a backing image with a copy on each disk, in a state.
func imageOf(name string, kind lh.BackingImageSourceType, copies map[string]lh.BackingImageDiskFileStatus,
) *lh.BackingImage {
	b := &lh.BackingImage{ObjectMeta: resttest.Meta(name),
		Spec: lh.BackingImageSpec{SourceType: kind, MinNumberOfCopies: 2,
			SourceParameters: map[string]string{"url": "https://example.org/i.raw"}},
		Status: lh.BackingImageStatus{UUID: "0a1b2c3d", Size: 64 << 20, VirtualSize: 64 << 20, Checksum: "sum",
			DiskFileStatusMap: copies}}
	return b
}

// TestBackingImageList: what is ready, what comes, and what has failed.
func TestBackingImageList(t *testing.T) {
	type copies = map[string]lh.BackingImageDiskFileStatus
	b := newBed(t, imageOf("ready", "download", copies{"d1": {State: "ready", Progress: 100}, "d2": {State: "starting"}}),
		imageOf("coming", "download", copies{"d1": {State: "in-progress", Progress: 40}}),
		imageOf("broken", "upload", copies{"d1": {State: "failed", Message: "damaged"}}), imageOf("new", "upload", nil))
	for name, args := range map[string][]string{"backing-image-list": {"list"}, "describe-backing-image": {"describe",
		"ready"},
		"backing-image-get": {"get", "ready", "broken", "-o", "wide"}} {
		golden(t, name, b.ok(append([]string{"backing-image"}, args...)...))
	}
	if out := b.ok("backing-image", "describe", "coming"); !strings.Contains(out, "40 % have come") {
		t.Errorf("%s", out)
	}
	if out := b.ok("backing-image", "delete", "new", "--yes"); out != "backing image new is being deleted\n" {
		t.Errorf("%q", out)
	}
}

// TestBackingImageCreate: it is ordered, waited for, and a failure is told.
func TestBackingImageCreate(t *testing.T) {
	b := newBed(t)
	const url = "https://example.org/i.raw"
	if out := b.ok("backing-image", "create", "one", "--url", url, "--copies", "3", "--disk-tag", "ssd",
		"--wait=false"); !strings.Contains(out, "backing image one is being made") {
		t.Errorf("%q", out)
	}
	made := &lh.BackingImage{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "longhorn-system", Name: "one"}, made); err != nil ||
		made.Spec.MinNumberOfCopies != 3 || made.Spec.DiskSelector[0] != "ssd" || made.Spec.SourceParameters["url"] != url {
		t.Errorf("%+v, %v", made.Spec, err)
	}
	if r := b.run("backing-image", "create", "two", "--url", url, "--timeout", "300ms"); r.status != exitError ||
		!strings.Contains(r.err, "is not ready after 300ms: it is pending") {
		t.Errorf("%+v", r)
	}
	b.ok("backing-image", "create", "of-volume", "--from-volume", "v", "--snapshot", "s", "--format", "qcow2",
		"--wait=false")
	made = &lh.BackingImage{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "longhorn-system", Name: "of-volume"},
		made); err != nil || made.Spec.SourceType != "export-from-volume" || !maps.Equal(made.Spec.SourceParameters,
		map[string]string{"volume-name": "v", "snapshot-name": "s", "export-type": "qcow2"}) {
		t.Errorf("%+v, %v", made.Spec, err)
	}
	if out := b.ok("backing-image", "describe", "of-volume"); !strings.Contains(out,
		"export-from-volume volume v, snapshot s") {
		t.Errorf("%s", out)
	}
	b.ok("backing-image", "create", "of-image", "--from-image", "one", "--wait=false")
	if out := b.ok("backing-image", "describe", "of-image"); !strings.Contains(out, "clone backing image one") {
		t.Errorf("%s", out)
	}
	// The key is not there, and who answers says so: the order had it.
	for _, secret := range []string{"longhorn-crypto", "longhorn-system/longhorn-crypto"} {
		made = &lh.BackingImage{}
		b.ok("backing-image", "create", "encrypted", "--from-image", "one", "--encrypt", secret, "--wait=false")
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "longhorn-system", Name: "encrypted"},
			made); err != nil || !maps.Equal(made.Spec.SourceParameters, map[string]string{"backing-image": "one",
			"encryption": "encrypt", "secret": "longhorn-crypto", "secret-namespace": "longhorn-system"}) {
			t.Errorf("%+v, %v", made.Spec, err)
		}
		if err := b.client.Delete(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
		opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		if i, ok := o.(*lh.BackingImage); ok {
			i.Status.DiskFileStatusMap = map[string]lh.BackingImageDiskFileStatus{"d1": {State: "failed", Message: "404"}}
		}
		return err
	}
	b = newBedOf(t, interceptor.Funcs{Get: fails})
	if r := b.run("backing-image", "create", "three", "--url", url); r.status != exitError ||
		!strings.Contains(r.err, "backing image three has failed on disk d1: 404") {
		t.Errorf("%+v", r)
	}
}

// bedWithPods is a server of the API for which every Pod is this server.
func bedWithPods(t *testing.T, pod *httptest.Server, objects ...client.Object) *bed {
	t.Helper()
	c := resttest.Client(t, interceptor.Funcs{}, objects...)
	s, err := rest.New(rest.Config{
		Config:      serve.Config{Client: c, Open: true, Logger: slog.New(slog.DiscardHandler)},
		EngineImage: resttest.Image,
		DialPod: func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", pod.Listener.Addr().String())
		}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &bed{t, c, web.URL}
}

// TestBackingImageDownload: the file has the content, unpacked; what is not whole, or another
// content, leaves none, and a file that is there stays.
func TestBackingImageDownload(t *testing.T) {
	const content = "the content"
	sum := sha512.Sum512([]byte(content))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, content)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	sent := packed.Bytes()
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/files" {
			_, _ = io.WriteString(w, `[{"filePath":"/data/i","uuid":"0a1b2c3d"}]`) // the client has gone
			return
		}
		_, _ = w.Write(sent)
	}))
	defer pod.Close()
	i := imageOf("iso", "upload", map[string]lh.BackingImageDiskFileStatus{"d1": {State: "ready"}})
	i.Status.Checksum = hex.EncodeToString(sum[:])
	b := bedWithPods(t, pod, i, &lh.BackingImageManager{ObjectMeta: resttest.Meta("a"),
		Status: lh.BackingImageManagerStatus{IP: "10.0.0.1", CurrentState: lh.BackingImageManagerStateRunning,
			BackingImageFileMap: map[string]lh.BackingImageFileInfo{"iso": {UUID: "0a1b2c3d", State: "ready"}}}})
	file := filepath.Join(t.TempDir(), "disk.raw")
	if out := b.ok("backing-image", "download", "iso", file); out != "backing image iso is in "+file+"\n" {
		t.Errorf("%q", out)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != content {
		t.Errorf("%q, %v", got, err)
	}
	if r := b.run("backing-image", "download", "iso", file); r.status != exitError || !strings.Contains(r.err, "exists") {
		t.Errorf("a file that is there: %+v", r)
	}
	for what, refused := range map[string]string{"cut": "unexpected EOF", "another content": "SHA-512"} {
		sent = packed.Bytes()[:packed.Len()-10]
		if what == "another content" {
			sent = packed.Bytes()
			i.Status.Checksum = strings.Repeat("0", 128)
			if err := b.client.Update(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		r := b.run("backing-image", "download", "iso", file+"2")
		if _, err := os.Stat(file + "2"); r.status != exitError || !strings.Contains(r.err, refused) || err == nil {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
		i.Status.Checksum = hex.EncodeToString(sum[:])
		if err := b.client.Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackingImageUpload: the file is sent when the image waits for it.
func TestBackingImageUpload(t *testing.T) {
	got := ""
	pod := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is missing is not found
		got = string(text)
	}))
	defer pod.Close()
	waits := imageOf("mine", "upload", map[string]lh.BackingImageDiskFileStatus{"d1": {State: "pending"}})
	b := bedWithPods(t, pod, waits, &lh.BackingImageDataSource{ObjectMeta: resttest.Meta("mine"),
		Status: lh.BackingImageDataSourceStatus{IP: "10.0.0.1"}})
	file := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(file, []byte("the content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := b.ok("backing-image", "upload", "mine", file, "--wait=false"); !strings.Contains(out, "is being made") ||
		!strings.Contains(got, "the content") {
		t.Errorf("%q, sent %q", out, got)
	}
	waits.Status.DiskFileStatusMap["d1"] = lh.BackingImageDiskFileStatus{State: "pending", Message: "no Pod yet"}
	if err := b.client.Update(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	if r := b.run("backing-image", "upload", "mine", file, "--timeout", "300ms"); r.status != exitError ||
		!strings.Contains(r.err, "takes no upload after 300ms: it is pending") {
		t.Errorf("%+v", r)
	}
}
