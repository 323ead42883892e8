package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/lack"
)

const imageSize = 64 * mib

// scenarioBackingImage: an image from a URL, on two disks; a manager is killed, a copy is lost, and
// comes back; a changed number of copies; volumes made from it; deleted, nothing is left. One that
// is uploaded, backed up and restored. What cannot be is refused.
func scenarioBackingImage(t *testing.T, c *cluster) {
	web, content := serveImage(t)
	at := &imageTest{cluster: c, content: content}
	at.refused(web)

	t.Log("the first copy")
	at.order("golden", web+"/golden.raw", 1)
	first := at.awaitCopies("golden", 1)[0]
	b := at.image("golden")
	if b.Status.Size != imageSize || b.Status.VirtualSize != imageSize || len(b.Status.Checksum) != 128 {
		t.Errorf("learnt of the image: %+v", b.Status)
	}
	at.eventually("the data source is over", func(ctx context.Context) error {
		d := &longhorn.BackingImageDataSource{}
		if err := c.kube.Get(ctx, key("golden"), d); err != nil {
			return err
		}
		pods, err := kubernetesOf(t, c).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "longhorn.io/component=backing-image-data-source"})
		if err != nil || len(pods.Items) > 0 || !d.Spec.FileTransferred || d.Status.CurrentState != "ready" {
			return fmt.Errorf("%d Pods, %+v, %v", len(pods.Items), d.Status, err)
		}
		return nil
	})

	t.Log("a second copy")
	at.change("golden", func(b *longhorn.BackingImage) { b.Spec.MinNumberOfCopies = 2 })
	both := at.awaitCopies("golden", 2)

	t.Log("a manager is killed")
	at.killManager(first)
	at.awaitCopies("golden", 2)

	t.Log("a copy is damaged while its manager is away")
	second := both[0]
	if second == first {
		second = both[1]
	}
	if err := os.Truncate(second+"/backing", 1<<20); err != nil {
		t.Fatal(err)
	}
	at.killManager(second)
	at.awaitCopies("golden", 2)

	t.Log("volumes on it")
	at.volumes("golden")

	t.Log("deleted")
	if err := c.kube.Delete(t.Context(), at.image("golden")); err != nil {
		t.Fatal(err)
	}
	at.awaitNothing()
	at.uploaded()
	at.exported()
}

// uploaded: an image that a user uploads by the REST API, downloads and deletes again.
func (at *imageTest) uploaded() {
	at.t.Helper()
	at.t.Log("uploaded, and downloaded")
	ctx, content := at.t.Context(), at.content[:8*mib+512]
	if _, err := at.rest.CreateBackingImage(ctx, restclient.BackingImageSpec{Name: "mine", SourceType: "upload",
		MinNumberOfCopies: 1}); err != nil {
		at.t.Fatal(err)
	}
	at.eventually("the upload is taken", func(ctx context.Context) error {
		return at.rest.UploadBackingImage(ctx, "mine", bytes.NewReader(content), int64(len(content)))
	})
	at.awaitImage("mine")
	if got := at.download("mine"); !bytes.Equal(got, content) {
		at.t.Errorf("%d bytes of another content were downloaded", len(got))
	}
	at.backedUp(content)
	if err := at.rest.DeleteBackingImage(ctx, "mine"); err != nil {
		at.t.Fatal(err)
	}
	at.awaitNothing()
}

// download reads an image by the REST API, and unpacks it.
func (at *imageTest) download(name string) []byte {
	at.t.Helper()
	token, err := os.ReadFile(at.TokenFile)
	if err != nil {
		at.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(at.t.Context(), http.MethodGet, at.API+"/v1/backingimages/"+name+"/download", nil)
	if err != nil {
		at.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		at.t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		at.t.Fatalf("download of %s: %s", name, a.Status)
	}
	z, err := gzip.NewReader(a.Body)
	if err != nil {
		at.t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		at.t.Fatal(err)
	}
	return content
}

// volumes makes two volumes from an image at once. They read as the image where nothing was
// written, and what was written stays over the end of the engine. The image stays as long as they
// do.
func (at *imageTest) volumes(image string) {
	at.t.Helper()
	const size = imageSize + 4*mib
	names := []string{"made-1", "made-2"}
	for _, name := range names {
		_, err := at.rest.CreateVolume(at.t.Context(), restclient.VolumeSpec{Name: name, Size: strconv.Itoa(size),
			NumberOfReplicas: 2, BackingImage: image})
		if err != nil {
			at.t.Fatal(err)
		}
	}
	want := append(bytes.Clone(at.content), make([]byte, size-imageSize)...)
	var endpoints []string
	for _, name := range names {
		endpoint := at.attach(name, "node-1", 2)
		at.reads(endpoint, want)
		endpoints = append(endpoints, endpoint)
	}
	written := []byte(strings.Repeat("written", 1000))
	d := at.device(endpoints[0])
	for _, off := range []int64{5*mib + 100, imageSize - 512} {
		if _, err := d.WriteAt(written, off); err != nil {
			at.t.Fatal(err)
		}
		copy(want[off:], written)
	}
	if err := errors.Join(d.Flush(), d.Close()); err != nil {
		at.t.Fatal(err)
	}
	at.killEngine(names[0])
	at.reads(at.awaitUsable(names[0], "node-1", 2), want)
	if err := at.kube.Delete(at.t.Context(), at.image(image)); err == nil || !strings.Contains(err.Error(), names[0]) {
		at.t.Errorf("an image in use is deleted: %v", err)
	}
	for _, name := range names {
		at.detach(name)
		at.remove(name)
	}
}

// reads compares what a volume holds.
func (at *imageTest) reads(endpoint string, want []byte) {
	at.t.Helper()
	d := at.device(endpoint)
	defer d.Close() // it was only read
	got := make([]byte, mib)
	for off := 0; off < len(want); off += mib {
		if _, err := d.ReadAt(got, int64(off)); err != nil || !bytes.Equal(got, want[off:off+mib]) {
			at.t.Fatalf("%s has another content in the mebibyte at %d, %v", endpoint, off, err)
		}
	}
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: namespace, Name: name} }

type imageTest struct {
	*cluster
	content []byte
}

// serveImage serves an image at an address of this machine that is not its own alone, as downloads
// ask for.
func serveImage(t *testing.T) (url string, content []byte) {
	t.Helper()
	content = make([]byte, imageSize)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content[:imageSize/2]) // the rest are holes
	address := outsideAddress(t)
	if address == "" {
		lack.Skip(t, "an IPv4 address of this machine other than loopback")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/golden.raw" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content) // the client has gone
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, content
}

// outsideAddress is an address that a download may connect to.
func outsideAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

func (at *imageTest) image(name string) *longhorn.BackingImage {
	at.t.Helper()
	b := &longhorn.BackingImage{}
	if err := at.kube.Get(at.t.Context(), key(name), b); err != nil {
		at.t.Fatal(err)
	}
	return b
}

func newImage(name, url string, copies int) *longhorn.BackingImage {
	return &longhorn.BackingImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: longhorn.BackingImageSpec{SourceType: longhorn.BackingImageSourceTypeDownload, MinNumberOfCopies: copies,
			SourceParameters: map[string]string{"url": url}}}
}

func (at *imageTest) order(name, url string, copies int) {
	at.t.Helper()
	if err := at.kube.Create(at.t.Context(), newImage(name, url, copies)); err != nil {
		at.t.Fatal(err)
	}
}

func (at *imageTest) change(name string, edit func(*longhorn.BackingImage)) {
	at.t.Helper()
	at.eventually("image "+name+" is changed", func(ctx context.Context) error {
		b := &longhorn.BackingImage{}
		if err := at.kube.Get(ctx, key(name), b); err != nil {
			return err
		}
		edit(b)
		return at.kube.Update(ctx, b)
	})
}

// refused has what no image is made of.
func (at *imageTest) refused(web string) {
	at.t.Helper()
	for url, want := range map[string]string{"http://127.0.0.1/i": "address of the node itself", "ftp://h/i": "scheme"} {
		if err := at.kube.Create(at.t.Context(), newImage("bad", url, 1)); err == nil || !strings.Contains(err.Error(),
			want) {
			at.t.Errorf("%s: %v", url, err)
		}
	}
	at.order("absent", web+"/absent.raw", 1)
	at.eventually("an image that the server does not have fails, and says so", func(context.Context) error {
		for _, f := range at.image("absent").Status.DiskFileStatusMap {
			if f.State == longhorn.BackingImageStateFailed && strings.Contains(f.Message, "404") {
				return nil
			}
		}
		return fmt.Errorf("%+v", at.image("absent").Status.DiskFileStatusMap)
	})
	if err := at.kube.Delete(at.t.Context(), at.image("absent")); err != nil {
		at.t.Fatal(err)
	}
	at.awaitNothing()
}

// directories are those of files of images on the disks of all nodes.
func (at *imageTest) directories() (found []string) {
	at.t.Helper()
	for _, n := range at.Nodes {
		dirs, err := filepath.Glob(filepath.Join(n.Root, "var", "lib", "longhorn", "backing-images", "*"))
		if err != nil {
			at.t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// awaitCopies waits until an image is ready on so many disks, and compares what lies there. It
// returns the directories.
func (at *imageTest) awaitCopies(name string, n int) []string {
	at.t.Helper()
	at.eventually(fmt.Sprintf("%d copies of image %s", n, name), func(context.Context) error {
		b, ready := at.image(name), 0
		for _, f := range b.Status.DiskFileStatusMap {
			if f.State == longhorn.BackingImageStateReady {
				ready++
			}
		}
		if ready != n || len(b.Spec.DiskFileSpecMap) != n {
			return fmt.Errorf("%+v", b.Status.DiskFileStatusMap)
		}
		dirs := at.directories()
		if len(dirs) != n {
			return fmt.Errorf("directories %q", dirs)
		}
		for _, dir := range dirs {
			// A damaged copy is ready by its record until its manager has looked.
			if got, err := os.ReadFile(filepath.Join(dir, "backing")); err != nil || !bytes.Equal(got, at.content) {
				return fmt.Errorf("%s has %d bytes of another content, %v", dir, len(got), err)
			}
		}
		return nil
	})
	return at.directories()
}

// killManager kills the process that serves the disk with a directory.
func (at *imageTest) killManager(dir string) {
	at.t.Helper()
	config, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(dir)), "longhorn-disk.cfg"))
	if err != nil {
		at.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(config), `"diskUUID":"`)
	uuid, _, ok := strings.Cut(rest, `"`)
	if !ok {
		at.t.Fatalf("%s", config)
	}
	at.kill("daemon\x00--listen\x00" + at.managerAddress(uuid) + ":8000")
}

// managerAddress is where the manager of a disk serves.
func (at *imageTest) managerAddress(disk string) string {
	at.t.Helper()
	var list longhorn.BackingImageManagerList
	if err := at.kube.List(at.t.Context(), &list, client.InNamespace(namespace)); err != nil {
		at.t.Fatal(err)
	}
	for _, m := range list.Items {
		if m.Spec.DiskUUID == disk && m.Status.IP != "" {
			return m.Status.IP
		}
	}
	at.t.Fatalf("no manager of disk %s runs", disk)
	return ""
}

// awaitNothing waits until no object of images is left, no Pod, and no file on a disk.
func (at *imageTest) awaitNothing() {
	at.t.Helper()
	at.eventually("nothing is left of images", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&longhorn.BackingImageList{}, &longhorn.BackingImageDataSourceList{},
			&longhorn.BackingImageManagerList{}} {
			if err := at.kube.List(ctx, list, client.InNamespace(namespace)); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if n := itemsOf(list); n > 0 {
				return fmt.Errorf("%d objects of %T", n, list)
			}
		}
		for _, n := range at.Nodes {
			for _, folder := range []string{"backing-images", "tmp"} {
				dir := filepath.Join(n.Root, "var", "lib", "longhorn", folder)
				entries, err := os.ReadDir(dir)
				if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
					return fmt.Errorf("%s has %v, %v", dir, entries, err)
				}
			}
		}
		pods, err := kubernetesOf(at.t, at.cluster).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "longhorn.io/component in (backing-image-manager, backing-image-data-source)"})
		if err != nil || len(pods.Items) > 0 {
			return fmt.Errorf("%d Pods, %v", len(pods.Items), err)
		}
		return nil
	})
}

func itemsOf(list client.ObjectList) int {
	switch l := list.(type) {
	case *longhorn.BackingImageList:
		return len(l.Items)
	case *longhorn.BackingImageDataSourceList:
		return len(l.Items)
	case *longhorn.BackingImageManagerList:
		return len(l.Items)
	}
	return 0
}
