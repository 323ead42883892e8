package crash

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// imageManager is a backing image manager as a process, on a host of its own.
type imageManager struct {
	host   *rig.Host
	at     backingimage.Paths
	client bimrpc.BackingImageManagerServiceClient
}

func newImageManager(t *testing.T, v *rig.Volume, name string, content []byte) *imageManager {
	t.Helper()
	root := t.TempDir()
	m := &imageManager{host: v.NewHost(name), at: backingimage.InManager(root, exportedImage)}
	if content != nil {
		if err := os.MkdirAll(filepath.Dir(m.at.File), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.at.File, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.host.Run(name, "backing-image-manager", "daemon", "--allow-plaintext", "a test", "--listen", m.host.Addr+ordersPort,
		"--sync-listen", m.host.Addr+":8001", "--disk-root", root)
	conn, err := grpc.NewClient("passthrough:///"+m.host.Addr+ordersPort,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return v.Connect(ctx, address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.client = bimrpc.NewBackingImageManagerServiceClient(conn)
	return m
}

func (m *imageManager) await(t *testing.T) {
	t.Helper()
	wait.Until(t, "the image is ready on "+m.host.Name, func() bool {
		r, err := m.client.Get(t.Context(), &bimrpc.GetRequest{Name: exportedImage.Name, Uuid: exportedImage.UUID})
		return err == nil && r.GetStatus().GetState() == "ready"
	})
}

// TestC11Images: a copy of an image goes from one manager to the other over the storage network,
// and nothing of it over the other one; what users upload and download, and what is downloaded from
// a URL, does not go over the storage network.
func TestC11Images(t *testing.T) {
	t.Parallel()
	const size = 16 * mib
	v := twoNetworks(t, 0, mib)
	content := make([]byte, size)
	_, _ = rand.Read(content) // it never fails
	a, b := newImageManager(t, v, "first", content), newImageManager(t, v, "second", nil)
	a.await(t)
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn,
		error) {
		return v.Connect(ctx, address)
	}, DisableKeepAlives: true}}
	hosts := []*rig.Host{a.host, b.host}
	copied := during(t, hosts, func() {
		_, err := b.client.Sync(t.Context(), &bimrpc.SyncRequest{FromAddress: a.host.Addr + ordersPort,
			Spec: &bimrpc.BackingImageSpec{Name: exportedImage.Name, Uuid: exportedImage.UUID}})
		if err != nil {
			t.Fatal(err)
		}
		b.await(t)
	})
	copied[a.host].carried(t, "the sender", 0, size)
	copied[b.host].carried(t, "the receiver", size, 0)
	if got, err := os.ReadFile(b.at.File); err != nil || !bytes.Equal(got, content) {
		t.Errorf("another content, %v", err)
	}
	const next = mib / 4
	outside := func(what string, c counts) {
		t.Helper()
		if c.storage.In+c.storage.Out > next || c.management.In+c.management.Out < size {
			t.Errorf("%s: %+v", what, c)
		}
	}
	file := "http://" + a.host.Addr + ":8001/v1/files/" + url.PathEscape(a.at.File) + "/download"
	outside("a download", during(t, hosts[:1], func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, file, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if n, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK || n < size {
			t.Errorf("%d bytes, %s, %v", n, answer.Status, err)
		}
	})[a.host])
	d := &dataSource{t: t, v: v, host: v.NewHost("uploads"), http: web}
	d.host.Run("uploads", "backing-image-manager", "data-source", "--allow-plaintext", "a test", "--listen",
		d.host.Addr+ordersPort, "--sync-listen", d.host.Addr+":8001", "--disk-root", t.TempDir(), "--name", "mine", "--uuid",
		exportedImage.UUID, "--source-type", "upload")
	wait.Until(t, "the upload is waited for", func() bool { return d.state().State == "pending" })
	outside("an upload", during(t, []*rig.Host{d.host}, func() {
		upload(t, web, "http://"+d.host.Addr+ordersPort+"/v1/file?action=upload&size="+strconv.Itoa(size), content)
	})[d.host])
	from := &dataSource{t: t, v: v, host: v.NewHost("downloads"), root: t.TempDir(), file: "raw", http: web}
	outside("an image from a URL", during(t, []*rig.Host{from.host}, func() {
		from.host.Run("downloads", "backing-image-manager", "data-source", "--allow-plaintext", "a test", "--listen",
			from.host.Addr+ordersPort, "--sync-listen", from.host.Addr+":8001", "--disk-root", from.root, "--name",
			exportedImage.Name, "--uuid", exportedImage.UUID, "--source-type", "download", "--parameters", "url="+file)
		if s := from.await(); s.State != "ready-for-transfer" {
			t.Errorf("%+v", s)
		}
	})[from.host])
	if !bytes.Equal(from.content(), content) {
		t.Error("another content than at the URL")
	}
}

// upload sends a file as a browser does.
func upload(t *testing.T, web *http.Client, to string, content []byte) {
	t.Helper()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		part, err := form.CreateFormFile("chunk", "image")
		if err == nil {
			_, err = part.Write(content)
		}
		if err == nil {
			err = form.Close()
		}
		_ = w.CloseWithError(err) // it returns nil
	}()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, r)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", form.FormDataContentType())
	a, err := web.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", a.Status, text, err)
	}
}
