package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/qcow2"
)

// snapshotFile is a file that is sent as a snapshot is.
func snapshotFile(t *testing.T, content []byte) disk.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := osdisk.New(nil).Open(name, disk.ReadOnly|disk.Direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func exportOf(fileType string) SourceConfig {
	return SourceConfig{ID: id, Type: TypeExport, Receive: "127.0.0.1:0", Parameters: map[string]string{
		"volume-name": "v", "snapshot-name": "s", "file-type": fileType}}
}

// ask orders an action of a data source.
func ask(t *testing.T, server *httptest.Server, action string) (status int, body []byte) {
	t.Helper()
	a, err := http.Post(server.URL+"/v1/file?action="+action, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if body, err = io.ReadAll(a.Body); err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, body
}

// awaitReceiver asks for the receiver of an export.
func awaitReceiver(t *testing.T, server *httptest.Server) (at Receiver) {
	t.Helper()
	awaitMessage(t, server, "is to be sent")
	status, body := ask(t, server, "receive")
	for status == http.StatusConflict {
		status, body = ask(t, server, "receive")
	}
	if err := json.Unmarshal(body, &at); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	return at
}

// TestExport: what an engine sends is the file, raw or as an image of the format qcow2.
func TestExport(t *testing.T) {
	t.Parallel()
	want := image(6 << 20)
	for _, fileType := range []string{"raw", "qcow2"} {
		d := newDisk(t)
		_, server := newSource(t, d, exportOf(fileType))
		at := awaitReceiver(t, server)
		if err := ssync.Send(t.Context(), at.Address, "guessed", snapshotFile(t, want), ""); err == nil {
			t.Errorf("%s: a stranger sends", fileType)
		}
		if err := ssync.SendInOrder(t.Context(), at.Address, at.Token, snapshotFile(t, want), ""); err != nil {
			t.Fatalf("%s: %v", fileType, err)
		}
		got := awaitSource(t, server, "ready-for-transfer")
		file, err := os.ReadFile(backingimage.InSource(d.Root(), id).File)
		if err != nil {
			t.Fatal(err)
		}
		if got.CurrentChecksum != sumOf(file) || got.Size != int64(len(file)) || got.VirtualSize != int64(len(want)) {
			t.Errorf("%s: %d bytes, %+v", fileType, len(file), got)
		}
		content := file
		if fileType == "qcow2" {
			i, err := qcow2.Open(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			content = make([]byte, i.Size)
			if _, err := i.ReadAt(content, 0); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(content, want) {
			t.Errorf("%s: another content", fileType)
		}
		if status, body := ask(t, server, "receive"); status != http.StatusConflict {
			t.Errorf("%s: received once more: %d %s", fileType, status, body)
		}
	}
}

// TestClone: the file of another image comes as it is, and has to have the checksum that its sender
// tells, or that is expected.
func TestClone(t *testing.T) {
	t.Parallel()
	content := image(3<<20 + 512)
	for _, tt := range []struct{ expected, told, state, says string }{
		{"", sumOf(content), "ready-for-transfer", ""}, {sumOf(content), "", "ready-for-transfer", ""},
		{"", sumOf(nil), "failed", "SHA-512"}, {sumOf(nil), "", "failed", "SHA-512"},
	} {
		d := newDisk(t)
		_, server := newSource(t, d, SourceConfig{ID: id, Type: TypeClone, Receive: "127.0.0.1:0", Checksum: tt.expected,
			Parameters: map[string]string{"backing-image": "golden"}})
		at := awaitReceiver(t, server)
		if err := ssync.Send(t.Context(), at.Address, at.Token, snapshotFile(t, content), tt.told); err != nil {
			t.Fatal(err)
		}
		got := awaitSource(t, server, tt.state)
		if !strings.Contains(got.Message, tt.says) {
			t.Errorf("%+v, want %q", got, tt.says)
		}
		if tt.state == "failed" {
			empty(t, d)
		} else if p, err := os.ReadFile(backingimage.InSource(d.Root(), id).File); err != nil || !bytes.Equal(p, content) {
			t.Errorf("%d bytes of another content, %v", len(p), err)
		}
	}
}

// broken is a snapshot that cannot be read from its middle on.
type broken struct{ disk.File }

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if off >= 2<<20 {
		return 0, errors.New("no replica left")
	}
	return b.File.ReadAt(p, off)
}

// TestExportFails: what a sender says, or a checksum that is not the expected one, is the message,
// and nothing is left.
func TestExportFails(t *testing.T) {
	t.Parallel()
	content := image(4 << 20)
	for _, tt := range []struct {
		name, fileType, sum, says string
		broken                    bool
	}{
		{"sender", "raw", "", "no replica left", true}, {"sender of qcow2", "qcow2", "", "no replica left", true},
		{"checksum", "raw", sumOf(nil), "SHA-512", false},
	} {
		d, cfg := newDisk(t), exportOf(tt.fileType)
		cfg.Checksum = tt.sum
		_, server := newSource(t, d, cfg)
		at, f := awaitReceiver(t, server), snapshotFile(t, content)
		if tt.broken {
			f = broken{f}
		}
		if err := ssync.Send(t.Context(), at.Address, at.Token, f, ""); (err != nil) != tt.broken {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := awaitSource(t, server, "failed"); !strings.Contains(got.Message, tt.says) {
			t.Errorf("%s: %q, want %q", tt.name, got.Message, tt.says)
		}
		empty(t, d)
	}
}

// TestExportsThatAreRefused: parameters that make no export, and who may not order one.
func TestExportsThatAreRefused(t *testing.T) {
	t.Parallel()
	for says, cfg := range map[string]SourceConfig{"file-type": exportOf("vmdk"), "an address": {ID: id,
		Type: TypeExport, Parameters: map[string]string{"file-type": "raw"}}} {
		cfg.Log = quiet
		if _, err := NewSource(newDisk(t), cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	_, server := newSource(t, newDisk(t), SourceConfig{ID: id, Type: TypeUpload})
	if status, body := ask(t, server, "receive"); status != http.StatusBadRequest ||
		!strings.Contains(string(body), "upload") {
		t.Errorf("%d %s", status, body)
	}
	s, _ := newSource(t, newDisk(t), exportOf("raw"))
	strict := httptest.NewServer(s.Handler(func(context.Context) error { return errors.New("not a controller") }))
	defer strict.Close()
	if status, body := ask(t, strict, "receive"); status == http.StatusOK || !strings.Contains(string(body),
		"not a controller") {
		t.Errorf("%d %s", status, body)
	}
}
