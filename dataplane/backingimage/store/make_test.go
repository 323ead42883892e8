package store

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/test/wait"
)

// heldDisk has files that are written to when held is closed.
type heldDisk struct {
	disk.Meta
	held chan struct{}
}

func (d *heldDisk) Create(path string, mode disk.Mode) (disk.File, error) {
	f, err := d.Meta.Create(path, mode)
	return &heldFile{f, d.held}, err
}

type heldFile struct {
	disk.File
	held <-chan struct{}
}

func (f *heldFile) WriteAt(p []byte, off int64) (int, error) {
	<-f.held
	return f.File.WriteAt(p, off)
}

// reader is a function as one.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// TestContentComesWhileTheDiskWrites: what comes does not wait for the disk piece by piece.
func TestContentComesWhileTheDiskWrites(t *testing.T) {
	t.Parallel()
	want := image(8 << 20)
	fs, _ := inMemory(t)
	held := &heldDisk{fs, make(chan struct{})}
	d := New(held, "/data", "d1", quiet)
	p := backingimage.InManager("/data", id)
	m, err := d.Create(p, id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	from, rest := bytes.NewReader(want), len(want)-2*chunk
	done := make(chan error, 1)
	go func() {
		_, err := m.ReadFrom(reader(func(p []byte) (int, error) {
			if from.Len() == rest { // two pieces are here, and neither is on the disk
				close(held.held)
				rest = -1
			}
			return from.Read(p)
		}))
		done <- err
	}()
	if err := wait.Receive(t, "all content has come", done); err != nil {
		t.Fatal(err)
	}
	r, err := m.Publish(sumOf(want), raw)
	if err != nil || r.CurrentChecksum != sumOf(want) || !bytes.Equal(contentOf(t, d, p), want) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDiskFailsWhileContentComes: no more is taken then, whatever else comes.
func TestDiskFailsWhileContentComes(t *testing.T) {
	t.Parallel()
	fs, d := inMemory(t)
	m, err := d.Create(backingimage.InManager("/data", id), id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "*", Times: 1, Err: disk.ErrIO})
	came := 0
	_, err = m.ReadFrom(reader(func(p []byte) (int, error) {
		if came += len(p); came > 64<<20 {
			return 0, io.EOF
		}
		p[0] = 1
		return len(p), nil
	}))
	if !errors.Is(err, disk.ErrIO) {
		t.Errorf("%d bytes were taken, %v", came, err)
	}
	if err := m.Abort(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, fs, "a disk that has failed")
}
