package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/host/patience"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
)

// TestTenVolumesOfAnImage: ten volumes are made of an image of 2 GiB, and attached at once. No file
// of the image is made or changed for that, and the first bytes of all ten are read within seconds.
func TestTenVolumesOfAnImage(t *testing.T) {
	lack.RealTime(t, "the time to the first byte")
	const size, volumes, soon = 2048 * mib, 10, 5 * time.Second
	url, first := serveLarge(t, size)
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace})
	at := &imageTest{cluster: c}
	at.order("large", url, len(c.Nodes))
	at.eventually("every disk has a copy", func(context.Context) error {
		ready := 0
		for _, f := range at.image("large").Status.DiskFileStatusMap {
			if f.State == longhorn.BackingImageStateReady {
				ready++
			}
		}
		if ready != len(c.Nodes) {
			return fmt.Errorf("%+v", at.image("large").Status.DiskFileStatusMap)
		}
		return nil
	})
	before := at.files()
	where := map[string]string{}
	for k := range volumes {
		name := fmt.Sprint("of-large-", k)
		_, err := at.rest.CreateVolume(t.Context(), restclient.VolumeSpec{Name: name, Size: strconv.Itoa(size),
			NumberOfReplicas: 2, BackingImage: "large"})
		if err != nil {
			t.Fatal(err)
		}
		where[name] = c.Nodes[k%len(c.Nodes)].Name
	}
	began := time.Now()
	endpoints := at.attachAll(where)
	for name, endpoint := range endpoints {
		d := at.device(endpoint)
		got := make([]byte, len(first))
		if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, first) {
			t.Errorf("%s does not begin as the image, %v", name, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	t.Logf("from the order to attach to the first bytes of %d volumes: %.1f s", volumes, took.Seconds())
	if took > patience.Of(soon) {
		t.Errorf("the first bytes of all volumes came after %v, want %v", took, soon)
	}
	if after := at.files(); !slices.Equal(before, after) || len(after) != len(c.Nodes) {
		t.Errorf("files of the image: %v, before %v", after, before)
	}
	for name := range where {
		at.detach(name)
		at.remove(name)
	}
}

// files are those of images on the disks of all nodes, with what changes when they are written.
func (at *imageTest) files() (found []string) {
	at.t.Helper()
	for _, dir := range at.directories() {
		info, err := os.Stat(filepath.Join(dir, "backing"))
		if err != nil {
			at.t.Fatal(err)
		}
		found = append(found, fmt.Sprint(dir, " ", info.Size(), " ", info.ModTime().UnixNano()))
	}
	slices.Sort(found)
	return found
}

// serveLarge serves so many bytes that cannot be packed, and returns the first ones.
func serveLarge(t *testing.T, size int) (url string, first []byte) {
	t.Helper()
	address := outsideAddress(t)
	if address == "" {
		lack.Skip(t, "an IPv4 address of this machine other than loopback")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	source := func() io.Reader { return rand.NewChaCha8([32]byte{8}) }
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = io.CopyN(w, source(), int64(size)) // the client has gone
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	first = make([]byte, 4096)
	if _, err := io.ReadFull(source(), first); err != nil {
		t.Fatal(err)
	}
	return s.URL + "/large.raw", first
}
