package service

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/host/listener"
	"ankole.storage/test/wait"
)

var (
	id    = backingimage.ID{Name: "cirros", UUID: "0a1b2c3d"}
	quiet = slog.New(slog.DiscardHandler)
)

func image(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(p)
	clear(p[n/4 : n/2])
	return p
}

func sumOf(p []byte) string {
	sum := sha512.Sum512(p)
	return hex.EncodeToString(sum[:])
}

// site is a manager with its servers.
type site struct {
	*Manager
	disk    *store.Disk
	address string
	client  bimrpc.BackingImageManagerServiceClient
	files   *httptest.Server
}

// addresses gives each manager one of its own, so that all can have the same ports.
var addresses atomic.Int32

func newSite(t *testing.T, d *store.Disk) *site {
	t.Helper()
	ip := fmt.Sprintf("127.71.%d.1", addresses.Add(1))
	s := &site{disk: d}
	var err error
	if s.Manager, err = NewManager(d, Config{DataAddress: ip, FirstPort: 30001, LastPort: 30008, FileAddress: ip + ":8001",
		Dial: listener.Dial, Log: quiet}); err != nil {
		t.Fatal(err)
	}
	l, err := listener.Listen(t.Context(), "tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	s.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.address = l.Addr().String()
	conn, err := grpc.NewClient("passthrough:///"+s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s.client = bimrpc.NewBackingImageManagerServiceClient(conn)
	s.files = httptest.NewServer(FileHandler(s.Files(), "d1"))
	t.Cleanup(func() {
		s.Close()
		s.files.Close()
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return s
}

func newDisk(t *testing.T) *store.Disk {
	t.Helper()
	return store.New(osdisk.New(nil), t.TempDir(), "", quiet)
}

// have puts a complete file on a disk.
func have(t *testing.T, d *store.Disk, p backingimage.Paths, want []byte) {
	t.Helper()
	m, err := d.Create(p, id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.ReadFrom(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Publish("", content.Info{Format: content.Raw}); err != nil {
		t.Fatal(err)
	}
}

func siteWith(t *testing.T, want []byte) *site {
	t.Helper()
	d := newDisk(t)
	have(t, d, backingimage.InManager(d.Root(), id), want)
	return newSite(t, d)
}

func (s *site) sync(t *testing.T, from string, sum string, size int) error {
	t.Helper()
	_, err := s.client.Sync(t.Context(), &bimrpc.SyncRequest{FromAddress: from,
		Spec: &bimrpc.BackingImageSpec{Name: id.Name, Uuid: id.UUID, Checksum: sum, Size: int64(size)}})
	return err
}

// await waits for a state, and returns what the manager says then.
func (s *site) await(t *testing.T, state string) *bimrpc.BackingImageResponse {
	t.Helper()
	var got *bimrpc.BackingImageResponse
	wait.Until(t, "the file is "+state, func() bool {
		var err error
		got, err = s.client.Get(t.Context(), &bimrpc.GetRequest{Name: id.Name, Uuid: id.UUID})
		return err == nil && got.Status.State == state
	})
	return got
}

func (s *site) read(t *testing.T) []byte {
	t.Helper()
	p, err := os.ReadFile(backingimage.InManager(s.disk.Root(), id).File)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// empty fails unless a disk has nothing of images.
func empty(t *testing.T, d *store.Disk) {
	t.Helper()
	for _, folder := range []string{backingimage.Folder, backingimage.TemporaryFolder} {
		names, err := os.ReadDir(filepath.Join(d.Root(), folder))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(names) > 0 {
			t.Errorf("%s: %v, %v", folder, names, err)
		}
	}
}

// TestSync: a manager gets a file from another one, with its checksum, whether that is known before
// or not.
func TestSync(t *testing.T) {
	t.Parallel()
	want := image(8 << 20)
	for _, sum := range []string{sumOf(want), ""} {
		a, b := siteWith(t, want), newSite(t, newDisk(t))
		if err := b.sync(t, a.address, sum, len(want)); err != nil {
			t.Fatal(err)
		}
		got := b.await(t, "ready")
		if !bytes.Equal(b.read(t), want) || got.Status.Checksum != sumOf(want) || got.Status.Progress != 100 ||
			got.Spec.Size != int64(len(want)) || got.Status.SenderManagerAddress != a.address {
			t.Errorf("%+v", got)
		}
		wait.Until(t, "the sender is free", func() bool { return a.await(t, "ready").Status.SendingReference == 0 })
		if err := b.sync(t, a.address, sum, len(want)); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

// TestSyncFails with a reason, and leaves nothing.
func TestSyncFails(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	a := siteWith(t, want)
	nobody, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := nobody.Addr().String()
	_ = nobody.Close()
	none := newSite(t, newDisk(t))
	for _, tt := range []struct {
		name, from, sum string
		size            int
		says            string
	}{
		{"another checksum", a.address, sumOf(nil), len(want), "and not " + sumOf(nil)},
		{"another size", a.address, "", len(want) + 512, "is expected"}, {"no sender", closed, "", 0, "refused"},
		{"no file there", none.address, "", 0, "no such file"},
	} {
		b := newSite(t, newDisk(t))
		if err := b.sync(t, tt.from, tt.sum, tt.size); err != nil {
			t.Fatal(err)
		}
		if got := b.await(t, "failed"); !strings.Contains(got.Status.ErrorMsg, tt.says) {
			t.Errorf("%s: %s, want %q", tt.name, got.Status.ErrorMsg, tt.says)
		}
		empty(t, b.disk)
	}
	b := newSite(t, newDisk(t))
	for _, q := range []*bimrpc.SyncRequest{{FromAddress: a.address}, {FromAddress: "nowhere",
		Spec: &bimrpc.BackingImageSpec{Name: "a", Uuid: "b"}},
		{FromAddress: a.address, Spec: &bimrpc.BackingImageSpec{Name: "../a", Uuid: "b"}},
		{FromAddress: a.address, Spec: &bimrpc.BackingImageSpec{Name: "a", Uuid: "b", Checksum: "c"}},
		{FromAddress: a.address, Spec: &bimrpc.BackingImageSpec{Name: "a", Uuid: "b", Size: -1}}} {
		if _, err := b.client.Sync(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestBusySender: whoever asks one that sends three files waits, says so, and gets the file then.
func TestBusySender(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	a, b := siteWith(t, want), newSite(t, newDisk(t))
	release := make(chan struct{})
	for range files.MaxSends {
		if err := a.Files().Send(id, func(context.Context, disk.File,
			files.Image) error {
			<-release
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.sync(t, a.address, "", 0); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "it waits", func() bool { return strings.Contains(b.await(t, "pending").Status.ErrorMsg, "is busy") })
	close(release)
	if b.await(t, "ready"); !bytes.Equal(b.read(t), want) {
		t.Error("other content")
	}
}

// TestDelete in every state: nothing is left, and the other side notices.
func TestDelete(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	a, b := siteWith(t, want), newSite(t, newDisk(t))
	remove := func(s *site) {
		t.Helper()
		if _, err := s.client.Delete(t.Context(), &bimrpc.DeleteRequest{Name: id.Name, Uuid: id.UUID}); err != nil {
			t.Error(err)
		}
		empty(t, s.disk)
		if _, err := s.client.Get(t.Context(), &bimrpc.GetRequest{Name: id.Name,
			Uuid: id.UUID}); status.Code(err) != codes.NotFound {
			t.Errorf("%v", err)
		}
	}
	remove(b) // nothing there
	release := make(chan struct{})
	for range files.MaxSends {
		if err := a.Files().Send(id, func(ctx context.Context, _ disk.File, _ files.Image) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.sync(t, a.address, "", 0); err != nil {
		t.Fatal(err)
	}
	b.await(t, "pending")
	remove(b)
	if err := b.sync(t, a.address, "", 0); err != nil {
		t.Fatal(err)
	}
	close(release)
	b.await(t, "ready")
	remove(b)
	remove(a)
	have(t, b.disk, backingimage.InSource(b.disk.Root(), id), want)
	remove(b) // what a data source has left
	if _, err := b.client.Delete(t.Context(), &bimrpc.DeleteRequest{Name: "..",
		Uuid: id.UUID}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

// TestFetch: the file of a data source is taken over, and the data source ends.
func TestFetch(t *testing.T) {
	t.Parallel()
	want := image(3 << 20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(want) }))
	defer web.Close()
	d := newDisk(t)
	m := newSite(t, d)
	source, server := newSource(t, d, SourceConfig{ID: id, Type: TypeDownload,
		Parameters: map[string]string{"url": web.URL}})
	awaitSource(t, server, "ready-for-transfer")
	fetch := func(sum string) {
		t.Helper()
		_, err := m.client.Fetch(t.Context(), &bimrpc.FetchRequest{DataSourceAddress: strings.TrimPrefix(server.URL,
			"http://"),
			Spec: &bimrpc.BackingImageSpec{Name: id.Name, Uuid: id.UUID, Checksum: sum}})
		if err != nil {
			t.Fatal(err)
		}
	}
	fetch(sumOf(nil))
	if got := m.await(t, "failed"); !strings.Contains(got.Status.ErrorMsg, "expected") {
		t.Errorf("%+v", got)
	}
	awaitSource(t, server, "ready-for-transfer") // it was left alone
	if r, err := http.Post(server.URL+"/v1/file?action=transfer", "", nil); err != nil || r.StatusCode != 409 {
		t.Errorf("transferred before it was taken over: %v, %v", r, err)
	}
	fetch(sumOf(want))
	if m.await(t, "ready"); !bytes.Equal(m.read(t), want) {
		t.Error("other content")
	}
	wait.Receive(t, "the end of the data source", source.Over())
	if names, err := os.ReadDir(filepath.Join(d.Root(), "tmp")); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestAnswers: list, version, watch, and what is not built.
func TestAnswers(t *testing.T) {
	t.Parallel()
	want := image(4096)
	a := siteWith(t, want)
	list, err := a.client.List(t.Context(), &emptypb.Empty{})
	if err != nil || len(list.BackingImages) != 1 || list.BackingImages[id.Name].Spec.Uuid != id.UUID {
		t.Errorf("%v, %v", list, err)
	}
	v, err := a.client.VersionGet(t.Context(), &emptypb.Empty{})
	if err != nil || v.BackingImageManagerApiVersion != 3 || v.BackingImageManagerApiMinVersion != 3 {
		t.Errorf("%v, %v", v, err)
	}
	watch, err := a.client.Watch(t.Context(), &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Error(err)
	}
	if _, err := a.client.Delete(t.Context(), &bimrpc.DeleteRequest{Name: id.Name, Uuid: id.UUID}); err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Errorf("no hint of a deletion: %v", err)
	}
	if _, err := a.client.PrepareDownload(t.Context(), &bimrpc.PrepareDownloadRequest{Name: "x",
		Uuid: "y"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// TestDownload: whoever asks where, gets the file packed, or as it is.
func TestDownload(t *testing.T) {
	t.Parallel()
	want := image(3 << 20)
	a := siteWith(t, want)
	at, err := a.client.PrepareDownload(t.Context(), &bimrpc.PrepareDownloadRequest{Name: id.Name, Uuid: id.UUID})
	if err != nil || !strings.HasSuffix(at.Address, ":8001") {
		t.Fatalf("%v, %v", at, err)
	}
	base := a.files.URL + "/v1/files/" + url.QueryEscape(at.SrcFilePath)
	get := func(method, address string) (*http.Response, []byte) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		p, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r, p
	}
	r, p := get(http.MethodGet, base+"/download")
	z, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) ||
		r.Header.Get("Content-Disposition") != `attachment; filename="cirros.gz"` {
		t.Errorf("%d bytes, %v, %v", len(got), r.Header, err)
	}
	if r, p := get(http.MethodGet, base+"/download?forV2Creation=true"); !bytes.Equal(p, want) ||
		r.ContentLength != int64(len(want)) {
		t.Errorf("%d bytes, %v", len(p), r.Header)
	}
	if r, _ := get(http.MethodHead, base+"/download?forV2Creation=true"); r.StatusCode != 200 ||
		r.ContentLength != int64(len(want)) {
		t.Errorf("%v", r)
	}
	if _, p := get(http.MethodGet, base); !strings.Contains(string(p), `"state":"ready"`) || !strings.Contains(string(p),
		sumOf(want)) {
		t.Errorf("%s", p)
	}
	if _, p := get(http.MethodGet, a.files.URL+"/v1/files"); !strings.HasPrefix(string(p), "[{") {
		t.Errorf("%s", p)
	}
	for request, status := range map[string]int{"GET /v1/files/%2Fetc%2Fpasswd/download": 404,
		"GET /v1/files/..%2F..": 404,
		"POST /v1/files/" + url.QueryEscape(at.SrcFilePath) + "?action=sendToPeer": 400} {
		method, path, _ := strings.Cut(request, " ")
		if r, _ := get(method, a.files.URL+path); r.StatusCode != status {
			t.Errorf("%s: %s", request, r.Status)
		}
	}
}

// stuckClient reads nothing: a write to it ends when its time is over.
type stuckClient struct {
	header   http.Header
	once     sync.Once
	writing  chan struct{}
	timedOut chan struct{}
}

func (c *stuckClient) Header() http.Header { return c.header }
func (c *stuckClient) WriteHeader(int)     {}

func (c *stuckClient) Write([]byte) (int, error) {
	c.once.Do(func() { close(c.writing) })
	<-c.timedOut
	return 0, os.ErrDeadlineExceeded
}

func (c *stuckClient) SetWriteDeadline(t time.Time) error {
	if time.Until(t) < 0 {
		close(c.timedOut)
	}
	return nil
}

// TestDeletedWhileItIsDownloaded: a client that reads nothing holds no deletion up, and a part is
// not taken for the whole.
func TestDeletedWhileItIsDownloaded(t *testing.T) {
	t.Parallel()
	a := siteWith(t, image(1<<20))
	path := url.QueryEscape(backingimage.InManager(a.disk.Root(), id).File)
	for _, query := range []string{"", "?forV2Creation=true"} {
		if query != "" {
			have(t, a.disk, backingimage.InSource(a.disk.Root(), id), image(1<<20))
			if _, err := a.client.Fetch(t.Context(), &bimrpc.FetchRequest{
				Spec: &bimrpc.BackingImageSpec{Name: id.Name, Uuid: id.UUID}}); err != nil {
				t.Fatal(err)
			}
			a.await(t, "ready")
		}
		c := &stuckClient{header: http.Header{}, writing: make(chan struct{}), timedOut: make(chan struct{})}
		over := make(chan any, 1)
		go func() {
			defer func() { over <- recover() }()
			q := httptest.NewRequest(http.MethodGet, "/v1/files/"+path+"/download"+query, http.NoBody)
			FileHandler(a.Files(), "").ServeHTTP(c, q)
		}()
		wait.Receive(t, "a write", c.writing)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := a.client.Delete(ctx, &bimrpc.DeleteRequest{Name: id.Name, Uuid: id.UUID}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if got := wait.Receive(t, "the end of the download", over); got != http.ErrAbortHandler {
			t.Errorf("%q: the answer ends with %v, as if it were whole", query, got)
		}
	}
}
