package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ankole.storage/backup"
	"ankole.storage/backup/object/directory"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/crypt"
	"ankole.storage/dataplane/backingimage/service"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// kills is how often each step is tried.
const kills = 10

// killAtEachStep kills a data source at each step of making a file, ten times: what has a name is
// whole, and the next process has the file, or makes it. tell gives a process what it waits for,
// and returns when that is over; same says whether a file is what it is to be.
func killAtEachStep(t *testing.T, steps []string, same func(file []byte) bool, begin func(root, ip string) *program,
	tell func(ctx context.Context, p *program) error) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			for range kills {
				root, ip := t.TempDir(), newIP()
				at := backingimage.InSource(root, id)
				p := begin(root, ip)
				told := make(chan error, 1)
				go func() { told <- tell(t.Context(), p) }()
				if !seen(p, at, step) {
					t.Fatalf("the data source has ended:\n%s", &p.output)
				}
				p.kill()
				<-told // it may have come to its end
				there := whole(t, root, at, same)
				next := begin(root, ip)
				if !there {
					if err := tell(t.Context(), next); err != nil {
						t.Fatal(err)
					}
				}
				next.await("ready-for-transfer")
				if !whole(t, root, at, same) {
					t.Fatal("ready, and no file")
				}
				next.kill()
				if names, err := os.ReadDir(at.Dir); err != nil || len(names) != 2 {
					t.Fatalf("%v, %v", names, err)
				}
			}
		})
	}
}

func equal(want []byte) func([]byte) bool {
	return func(file []byte) bool { return bytes.Equal(file, want) }
}

// post sends a request to a data source, which is to take it.
func post(ctx context.Context, p *program, query, contentType string, body []byte) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.ip+":8000/v1/file?action="+query,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", contentType)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", query, a.Status)
	}
	return io.ReadAll(a.Body)
}

// ordered posts a request until the data source takes it, or has ended.
func (p *program) ordered(ctx context.Context, query, contentType string, body []byte) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	for {
		if text, err = post(ctx, p, query, contentType, body); err == nil || p.over() || ctx.Err() != nil {
			return text, err
		}
	}
}

// send sends a file to a data source that is ordered to receive it.
func (p *program) send(ctx context.Context, order []byte, f ssync.File) error {
	text, err := p.ordered(ctx, "receive", "application/json", order)
	if err != nil {
		return err
	}
	var to service.Receiver
	if err := json.Unmarshal(text, &to); err != nil {
		return err
	}
	if want := p.ip + ":8002"; to.Address != want {
		return fmt.Errorf("it receives at %s, not at %s", to.Address, want)
	}
	return ssync.Send(ctx, to.Address, to.Token, f, "")
}

// onDisk is a file that is sent.
func onDisk(t *testing.T, content []byte) disk.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	err := os.WriteFile(name, content, 0o600)
	var f disk.File
	if err == nil {
		f, err = osdisk.New(nil).Open(name, disk.ReadOnly|disk.Direct)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it was only read
	return f
}

// TestDataSourceIsKilled needs no order.
func TestDataSourceIsKilled(t *testing.T) {
	t.Parallel()
	want := image(4 << 20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(want) }))
	defer web.Close()
	killAtEachStep(t, steps, equal(want), func(root, ip string) *program { return startSource(t, root, ip, web.URL) },
		func(context.Context, *program) error { return nil })
}

func TestExportIsKilled(t *testing.T) {
	t.Parallel()
	want := image(4 << 20)
	f := onDisk(t, want)
	killAtEachStep(t, steps, equal(want), func(root, ip string) *program {
		return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type",
			"export-from-volume", "--parameters", "volume-name=v", "--parameters", "snapshot-name=s", "--parameters",
			"file-type=raw")
	}, func(ctx context.Context, p *program) error { return p.send(ctx, nil, f) })
}

func TestUploadIsKilled(t *testing.T) {
	t.Parallel()
	want := image(4 << 20)
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, err := m.CreateFormFile(source.Part, "image.raw")
	if err == nil {
		_, err = part.Write(want)
	}
	if err == nil {
		err = m.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	killAtEachStep(t, steps, equal(want), func(root, ip string) *program {
		return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "upload")
	}, func(ctx context.Context, p *program) error {
		_, err := p.ordered(ctx, fmt.Sprint("upload&size=", len(want)), m.FormDataContentType(), form.Bytes())
		return err
	})
}

// read is an image that is backed up.
type read []byte

func (r read) SizeBytes() int64 { return int64(len(r)) }

func (r read) Changed(context.Context, backup.Base) iter.Seq2[backup.Extent, error] {
	return func(yield func(backup.Extent, error) bool) { yield(backup.Extent{Length: int64(len(r))}, nil) }
}

func (r read) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, r[off:])
	return nil
}

func TestRestoreIsKilled(t *testing.T) {
	t.Parallel()
	want, dir := image(16<<20), t.TempDir()
	s, err := directory.Open(dir, "vfs://"+dir)
	if err == nil {
		_, err = backup.CreateImage(t.Context(), s, read(want), backup.ImageCreateOptions{Image: id.Name})
	}
	if err != nil {
		t.Fatal(err)
	}
	killAtEachStep(t, steps, equal(want), func(root, ip string) *program {
		return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "restore",
			"--parameters", "backup-url=vfs://"+dir+"?backingImage="+id.Name)
	}, func(ctx context.Context, p *program) error {
		_, err := p.ordered(ctx, "restore", "application/json", []byte("{}"))
		return err
	})
}

// encrypted is a file that begins with a header.
type encrypted []byte

func (e encrypted) Head(w io.Writer, n int64) error {
	_, err := w.Write(e[:min(n, int64(len(e)))])
	return err
}

// TestEncryptedCloneIsKilled: what comes is encrypted in place behind a header that is put before
// it, so that there is a file of neither for a while.
func TestEncryptedCloneIsKilled(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		lack.Skip(t, "cryptsetup")
	}
	want := image(4 << 20)
	f := onDisk(t, want)
	secret := map[string]string{luks.SecretValue: "many words", luks.SecretPBKDF: "pbkdf2", luks.SecretIterations: "1000"}
	key, err := crypt.Key(secret)
	if err != nil {
		t.Fatal(err)
	}
	order, err := json.Marshal(map[string]any{"credentials": secret})
	if err != nil {
		t.Fatal(err)
	}
	decrypts := func(file []byte) bool {
		c, err := crypt.Open(t.Context(), key, encrypted(file))
		if err != nil || len(file) != luks.HeaderBytes+len(want) {
			return false
		}
		c.Decrypt(file[luks.HeaderBytes:], 0)
		return bytes.Equal(file[luks.HeaderBytes:], want)
	}
	killAtEachStep(t, append([]string{"encrypting"}, steps...), decrypts, func(root, ip string) *program {
		return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "clone",
			"--parameters", "backing-image=golden", "--parameters", "encryption=encrypt")
	}, func(ctx context.Context, p *program) error { return p.send(ctx, order, f) })
}
