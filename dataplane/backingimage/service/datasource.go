package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/host/luks"
)

// Types of data sources.
const (
	TypeDownload = "download"
	TypeUpload   = "upload"
	TypeExport   = "export-from-volume"
	TypeClone    = "clone"
	TypeRestore  = "restore"
)

// uploadSilence is how long a user who uploads may send nothing.
const uploadSilence = time.Minute

// SourceConfig is what a data source is told.
type SourceConfig struct {
	ID backingimage.ID
	// Type is where the content comes from, Parameters are that type's.
	Type       string
	Parameters map[string]string
	// Checksum is what the file must have, empty for any.
	Checksum string
	DiskUUID string
	// Receive is HOST:PORT where the content of an export or a clone comes: on the storage network, if
	// there is one.
	Receive string
	// Options are of downloads.
	Options source.Options
	// Worker starts the process that reads a backup; nil: as package worker says.
	Worker []string
	Log    *slog.Logger
}

// Source is a data source: one file that is made for a manager to take over.
type Source struct {
	cfg   SourceConfig
	disk  *store.Disk
	files *files.Set
	// over is closed when the file was taken over.
	over chan struct{}
	once sync.Once
	// receiver is of an export, while one is served.
	receiver atomic.Pointer[Receiver]
	// key is of a clone that is encrypted or decrypted, from its order on until it is used.
	key atomic.Pointer[luks.Key]
	// restores has the order of a restore.
	restores chan RestoreOrder
}

// NewSource takes in a file that an earlier process has completed, or begins to make it; an upload
// begins when a user sends it. Close ends it.
func NewSource(d *store.Disk, cfg SourceConfig) (*Source, error) {
	if err := errors.Join(cfg.ID.Check(), backingimage.CheckChecksum(cfg.Checksum)); err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	found, ok, err := d.Look(cfg.ID, backingimage.InSource(d.Root(), cfg.ID))
	if err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg, disk: d, files: files.New(d, true, cfg.Log), over: make(chan struct{}),
		restores: make(chan RestoreOrder)}
	switch {
	case ok:
		err = s.files.Take(found)
	case cfg.Type == TypeDownload:
		_, _, err = s.files.Order(cfg.ID, cfg.Checksum, "", s.download)
	case cfg.received():
		_, _, err = s.files.Order(cfg.ID, cfg.Checksum, "", s.receiveFile)
	case cfg.Type == TypeRestore:
		_, _, err = s.files.Order(cfg.ID, cfg.Checksum, "", s.restoreFile)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// check says what a type of source lacks.
func (cfg *SourceConfig) check() error {
	switch cfg.Type {
	case TypeDownload:
		if cfg.Parameters["url"] == "" {
			return errors.New("source type download needs parameter url")
		}
		return nil
	case TypeUpload:
		return nil
	case TypeExport, TypeClone:
		return cfg.checkSent()
	case TypeRestore:
		return cfg.checkRestore()
	}
	return fmt.Errorf("source type %.40q: %s, %s, %s, %s and %s are possible", cfg.Type, TypeDownload, TypeUpload,
		TypeExport, TypeClone, TypeRestore)
}

// Close ends what is under way, and waits for it.
func (s *Source) Close() { s.files.Close() }

// Files are the one file.
func (s *Source) Files() *files.Set { return s.files }

// Over is closed when the file was taken over.
func (s *Source) Over() <-chan struct{} { return s.over }

// download is the maker of a file from a URL.
func (s *Source) download(ctx context.Context, run files.Run) (backingimage.Record, error) {
	run.Begun()
	o := s.cfg.Options
	o.Checked = s.cfg.Checksum != ""
	d, err := source.Open(ctx, s.cfg.Parameters["url"], o)
	if err != nil {
		return backingimage.Record{}, err
	}
	defer d.Close()
	return s.fill(ctx, run, d, d.Size())
}

// fill makes the file of a stream of that many bytes, -1 if that is not known.
func (s *Source) fill(ctx context.Context, run files.Run, r io.Reader, size int64) (backingimage.Record, error) {
	counted := &counter{r: r, told: func(done int64) { run.Received(done, size) }}
	c, err := content.Open(counted)
	if err != nil {
		return backingimage.Record{}, err
	}
	defer c.Close()
	m, err := s.disk.Create(backingimage.InSource(s.disk.Root(), s.cfg.ID), s.cfg.ID.UUID)
	if err != nil {
		return backingimage.Record{}, err
	}
	if c.Packing == "" {
		err = m.Fits(size)
	}
	if err == nil {
		_, err = m.ReadFrom(c)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return backingimage.Record{}, errors.Join(err, m.Abort())
	}
	return m.Publish(s.cfg.Checksum, c.Info)
}

// counter tells how many bytes have come.
type counter struct {
	r    io.Reader
	done int64
	told func(done int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		c.done += int64(n)
		c.told(c.done)
	}
	return n, err
}

// sourceStatus is the file of a data source as clients know it.
type sourceStatus struct {
	fileStatus
	Name       string            `json:"name"`
	SourceType string            `json:"sourceType"`
	Parameters map[string]string `json:"parameters"`
}

func (s *Source) status() sourceStatus {
	i, err := s.files.Get(s.cfg.ID)
	if err != nil { // nobody has uploaded it yet
		i = files.Image{ID: s.cfg.ID, Path: backingimage.InSource(s.disk.Root(), s.cfg.ID).File, Expected: s.cfg.Checksum,
			File: backingimage.File{State: backingimage.Pending}}
	}
	return sourceStatus{statusOf(i, s.cfg.DiskUUID), s.cfg.ID.Name, s.cfg.Type, s.cfg.Parameters}
}

// Handler serves the file to the control plane and to users who upload. permit refuses who may give
// no orders; the manager of the disk, which has a node's certificate, has the file transferred.
func (s *Source) Handler(permit func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/file", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.status()) })
	mux.HandleFunc("POST /v1/file", func(w http.ResponseWriter, q *http.Request) {
		var err error
		switch action := q.URL.Query().Get("action"); action {
		case "upload":
			if err = permit(q.Context()); err == nil {
				err = s.upload(w, q)
			}
		case "receive":
			if err = permit(q.Context()); err == nil {
				err = s.receive(w, q)
			}
		case "restore":
			if err = permit(q.Context()); err == nil {
				err = s.beginRestore(w, q)
			}
		case "transfer":
			err = s.transfer(q.Context())
		default:
			err = fmt.Errorf("%w: action %.40q; upload, receive, restore and transfer are possible", source.ErrRefused, action)
		}
		if err != nil {
			fail(w, err)
		}
	})
	return mux
}

// upload makes the file of a request, and returns when that is over.
func (s *Source) upload(w http.ResponseWriter, q *http.Request) error {
	if s.cfg.Type != TypeUpload {
		return fmt.Errorf("%w: the content of this image comes from a %s, not from an upload", source.ErrRefused, s.cfg.Type)
	}
	u, err := source.OpenUpload(q)
	if err != nil {
		return err
	}
	connection := http.NewResponseController(w)
	done := make(chan error, 1)
	_, began, err := s.files.Order(s.cfg.ID, s.cfg.Checksum, "", func(ctx context.Context,
		run files.Run) (backingimage.Record, error) {
		run.Begun()
		// A read that waits for the user ends when the file is not wanted any more.
		stop := context.AfterFunc(ctx, func() { _ = connection.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		r, err := s.fill(ctx, run, &patient{ctx, u, connection}, u.Size())
		done <- err
		return r, err
	})
	if err != nil {
		return err
	}
	if !began {
		return fmt.Errorf("%w: the file is being uploaded, or is there already", files.ErrConflict)
	}
	err = <-done // the maker has the request's body until then
	s.told(q.Context())
	return err
}

// told returns when what a run has led to can be seen: who has uploaded looks at once.
func (s *Source) told(ctx context.Context) {
	for {
		changed := s.files.Changed()
		if i, err := s.files.Get(s.cfg.ID); err != nil || !i.File.Running {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// patient gives a user some time for each read.
type patient struct {
	ctx        context.Context
	r          io.Reader
	connection *http.ResponseController
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.connection.SetReadDeadline(time.Now().Add(uploadSilence)) // not every connection has deadlines
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// transfer forgets the file, which a manager has taken over, and ends the data source. A manager
// that takes it over has removed its name here.
func (s *Source) transfer(ctx context.Context) error {
	i, err := s.files.Get(s.cfg.ID)
	if err != nil {
		return err
	}
	if i.File.State != backingimage.ReadyForTransfer {
		return fmt.Errorf("%w: it is %s", backingimage.ErrNotReady, i.File.State)
	}
	switch _, there, err := s.disk.Look(s.cfg.ID, backingimage.InSource(s.disk.Root(), s.cfg.ID)); {
	case err != nil:
		return err
	case there:
		return fmt.Errorf("%w: no manager has taken the file over", files.ErrConflict)
	}
	if err := s.files.Remove(ctx, s.cfg.ID, true); err != nil {
		return err
	}
	s.once.Do(func() { close(s.over) })
	return nil
}
