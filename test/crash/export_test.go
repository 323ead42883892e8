package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/qcow2"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// exportPorts are those of a data source.
const (
	ordersPort  = ":8000"
	receivePort = ":8002"
)

var exportedImage = backingimage.ID{Name: "exported", UUID: "0a1b2c3d"}

// dataSource is a data source as a process, on a host of its own, which receives a volume.
type dataSource struct {
	t    *testing.T
	v    *rig.Volume
	host *rig.Host
	proc *rig.Other
	root string
	file string
	runs int
	http *http.Client
}

// newDataSource starts one, which makes a file of that type.
func newDataSource(t *testing.T, v *rig.Volume, fileType string) *dataSource {
	t.Helper()
	host := v.NewHost("source-" + fileType)
	d := &dataSource{t: t, v: v, host: host, root: t.TempDir(), file: fileType,
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
			address string) (net.Conn, error) {
			return v.Connect(ctx, address)
		}}}}
	d.start()
	return d
}

func (d *dataSource) start() {
	d.t.Helper()
	d.runs++
	d.proc = d.host.Run(fmt.Sprintf("%s-%d", d.host.Name, d.runs), "backing-image-manager", "data-source",
		"--allow-plaintext", "a test", "--listen", d.host.Addr+ordersPort, "--sync-listen", d.host.Addr+":8001",
		"--disk-root", d.root,
		"--name", exportedImage.Name, "--uuid", exportedImage.UUID, "--source-type", "export-from-volume",
		"--parameters", "volume-name=vol", "--parameters", "snapshot-name=s", "--parameters", "file-type="+d.file)
}

// receiver is where it receives, and the token for that.
type receiver struct{ Address, Token string }

// ask asks the process; false if it does not answer so.
func (d *dataSource) ask(method, path string, into any) bool {
	q, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.host.Addr+ordersPort+path, http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	a, err := d.http.Do(q)
	if err != nil {
		return false
	}
	defer a.Body.Close()
	return a.StatusCode == http.StatusOK && json.NewDecoder(a.Body).Decode(into) == nil
}

// fileState is what it says of its file.
type fileState struct {
	State, Message  string
	RealSize        int64
	CurrentChecksum string
}

func (d *dataSource) state() (s fileState) {
	d.ask(http.MethodGet, "/v1/file", &s)
	return s
}

// export has the volume's engine send snapshot s, once the process receives.
func (d *dataSource) export() *enginev1.SnapshotExportResponse {
	d.t.Helper()
	var to receiver
	wait.Until(d.t, "the data source receives", func() bool {
		return d.ask(http.MethodPost, "/v1/file?action=receive", &to)
	})
	if want := d.host.Storage + receivePort; to.Address != want {
		d.t.Errorf("the receiver is at %s, want %s", to.Address, want)
	}
	sent, err := d.v.Control().SnapshotExport(d.t.Context(), &enginev1.SnapshotExportRequest{Snapshot: "s",
		Address: to.Address, Token: to.Token, InOrder: d.file == "qcow2"})
	if err != nil {
		d.t.Fatal(err)
	}
	return sent
}

// await waits until the file is made or has failed.
func (d *dataSource) await() (s fileState) {
	d.t.Helper()
	wait.Until(d.t, "the export is over", func() bool {
		s = d.state()
		return s.State == "ready-for-transfer" || s.State == "failed"
	})
	return s
}

// content is that of the disk in the file.
func (d *dataSource) content() []byte {
	d.t.Helper()
	file, err := os.ReadFile(backingimage.InSource(d.root, exportedImage).File)
	if err != nil {
		d.t.Fatal(err)
	}
	if d.file == "raw" {
		return file
	}
	i, err := qcow2.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		d.t.Fatal(err)
	}
	content := make([]byte, i.Size)
	if _, err := i.ReadAt(content, 0); err != nil {
		d.t.Fatal(err)
	}
	return content
}

// nothing requires that no file is left.
func (d *dataSource) nothing() {
	d.t.Helper()
	for _, folder := range []string{"tmp", "backing-images"} {
		if names, err := os.ReadDir(filepath.Join(d.root, folder)); err == nil && len(names) > 0 {
			d.t.Errorf("%s has %v", folder, names)
		}
	}
}

// TestExport: an image of a snapshot of a volume that is in use holds what the snapshot did, raw
// and qcow2, with and without an image below the volume.
func TestExport(t *testing.T) {
	const imageSize, size = 6*mib + 512, 16 * mib
	src := seeded.New(t, "an exported image holds what the volume held at the snapshot")
	for _, below := range []bool{false, true} {
		t.Run(fmt.Sprintf("image below %v", below), func(t *testing.T) {
			r := src.Rand(src.Seed(1))
			image := make([]byte, imageSize)
			for at := range image {
				image[at] = byte(r.Uint32())
			}
			path := filepath.Join(t.TempDir(), "backing")
			if err := os.WriteFile(path, image, 0o400); err != nil {
				t.Fatal(err)
			}
			v := rig.New(t, 0, size)
			want := make([]byte, size)
			for _, name := range []string{"a", "b"} {
				c := v.AddReplica(name)
				if below {
					c.Flags = []string{"--backing-file", path}
					copy(want, image)
				}
				c.Start()
			}
			v.StartEngine(v.Replicas...)
			u := &imageUser{t: t, d: v.Dial(), want: want, r: r}
			u.use(100)
			if _, err := v.Control().SnapshotCreate(t.Context(), &enginev1.SnapshotCreateRequest{Name: "s"}); err != nil {
				t.Fatal(err)
			}
			then := bytes.Clone(u.want)
			u.use(100)
			for _, fileType := range []string{"raw", "qcow2"} {
				d := newDataSource(t, v, fileType)
				d.export()
				u.use(100)
				if s := d.await(); s.State != "ready-for-transfer" {
					t.Fatalf("%s: %+v", fileType, s)
				}
				if !bytes.Equal(d.content(), then) {
					t.Errorf("%s: another content than at the snapshot", fileType)
				}
			}
			u.same("after the exports")
		})
	}
}

// filled is a volume with two replicas, the first bytes of which are written, and a snapshot s of
// that.
func filled(t *testing.T, v *rig.Volume, written int64) (want []byte) {
	t.Helper()
	v.StartEngine()
	c := v.Dial()
	want = make([]byte, written)
	for i := range want {
		want[i] = byte(i>>9 + i*7 + 1)
	}
	for off := int64(0); off < written; off += mib {
		if _, err := c.WriteAt(want[off:off+mib], off); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Control().SnapshotCreate(t.Context(), &enginev1.SnapshotCreateRequest{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	return want
}

// TestExportIsKilled: whoever is killed in the middle of an export, it ends in a file that is
// right, or has failed with a reason and has left nothing; another one succeeds.
func TestExportIsKilled(t *testing.T) {
	const size = 64 * mib
	for _, victim := range []string{"engine", "replica", "data source"} {
		t.Run(victim, func(t *testing.T) {
			v := rig.New(t, 2, size)
			want := filled(t, v, size)
			d := newDataSource(t, v, "raw")
			from := d.export().FromAddress
			wait.Until(t, "content comes", func() bool { return d.state().State != "pending" })
			switch victim {
			case "engine":
				v.KillEngine()
			case "data source":
				d.proc.Kill()
				d.start()
			case "replica":
				for _, r := range v.Replicas {
					if "tcp://"+r.Addr == from {
						r.Kill()
					}
				}
			}
			s := fileState{}
			if victim == "data source" {
				wait.Until(t, "the next process answers", func() bool { s = d.state(); return s.State != "" })
			} else {
				s = d.await()
			}
			t.Logf("after the end of the %s: %+v", victim, s)
			switch {
			case s.State == "failed" && victim == "engine":
				if !strings.Contains(s.Message, "snapshot s of volume vol") || !strings.Contains(s.Message,
					"ended its connections") {
					t.Errorf("%q", s.Message)
				}
				d.nothing()
				d.proc.Kill()
				d.start()
				v.StartEngine()
				d.export()
			case s.State == "failed":
				t.Errorf("%+v", s)
			case victim == "data source" && s.State == "pending":
				d.export()
			}
			if s := d.await(); s.State != "ready-for-transfer" || !bytes.Equal(d.content(), want) {
				t.Errorf("%+v, or another content", s)
			}
		})
	}
}

// TestC12: an export is received at the IPv4 address of lhnet1, and its bytes go there and not over
// the other network (C11); what holds no data is neither read nor sent.
func TestC12(t *testing.T) {
	t.Parallel()
	const size, written = 512 * mib, 24 * mib
	v := twoNetworks(t, 2, size)
	want := filled(t, v, written)
	d := newDataSource(t, v, "raw")
	exported := during(t, append(hostsOf(v), d.host), func() {
		d.export() // it compares the address
		if s := d.await(); s.State != "ready-for-transfer" || s.RealSize > written+mib {
			t.Errorf("%+v", s)
		}
	})
	if got := d.content(); len(got) != size || !bytes.Equal(got[:written], want) {
		t.Errorf("%d bytes, or another content", len(got))
	}
	exported[d.host].carried(t, "data source", written, 0)
	engine := exported[v.Engine().Host]
	engine.carried(t, "engine", written, written)
	if most := int64(written + written/8); engine.storage.In > most || engine.storage.Out > most {
		t.Errorf("the engine has carried %+v for %d bytes of data", engine.storage, written)
	}
	for _, r := range v.Replicas {
		exported[r.Host].carried(t, r.Name, 0, 0)
	}
	v.StopEngine()
}
