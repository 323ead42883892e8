package daemon

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"mime/multipart"
	"net/http"
	"os"
	"testing"

	"ankole.storage/backup"
	"ankole.storage/backup/object/directory"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/test/wait"
)

// killAtEachStep kills a data source at each step of making a file that it has to be told to make,
// ten times: what has a name is whole, and the next process has the file, or makes it when it is
// told to. tell posts the order, and returns when it is answered.
func killAtEachStep(t *testing.T, want []byte, begin func(root, ip string) *program,
	tell func(ctx context.Context, p *program) error) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			for range kills {
				root, ip := t.TempDir(), newIP()
				at := backingimage.InSource(root, id)
				p := begin(root, ip)
				p.await("pending")
				told := make(chan error, 1)
				go func() { told <- tell(t.Context(), p) }()
				if !seen(p, at, step) {
					t.Fatalf("the data source has ended:\n%s", &p.output)
				}
				p.kill()
				<-told // it may have come to its end
				there := whole(t, root, at, want)
				next := begin(root, ip)
				if !there {
					next.await("pending")
					if names, err := os.ReadDir(at.Dir); err == nil && len(names) > 0 {
						t.Fatalf("%v are left", names)
					}
					if err := tell(t.Context(), next); err != nil {
						t.Fatal(err)
					}
				}
				next.await("ready-for-transfer")
				if !whole(t, root, at, want) {
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

// post sends a request to a data source, which is to take it.
func post(ctx context.Context, p *program, query, contentType string, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.ip+":8000/v1/file?action="+query,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", contentType)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", query, a.Status)
	}
	return nil
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
	killAtEachStep(t, want, func(root, ip string) *program {
		return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "upload")
	}, func(ctx context.Context, p *program) error {
		return post(ctx, p, fmt.Sprint("upload&size=", len(want)), m.FormDataContentType(), form.Bytes())
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
	killAtEachStep(t, want, func(root, ip string) *program {
		return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "restore",
			"--parameters", "backup-url=vfs://"+dir+"?backingImage="+id.Name)
	}, func(ctx context.Context, p *program) (err error) {
		wait.For(t, "the order to restore is taken", func() error {
			if err = post(ctx, p, "restore", "application/json", []byte("{}")); err != nil && p.over() {
				return nil
			}
			return err
		})
		return err
	})
}
