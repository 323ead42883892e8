// Package service is what a backing image manager and a data source say to others: the gRPC service
// of a manager, the HTTP interface for files, that of a data source. It makes files of what package
// source brings and of what package ssync copies.
package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
	"ankole.storage/host/listener"
)

// API versions of the manager, as the reference counts them.
const (
	APIVersion    = 3
	APIMinVersion = 3
)

const (
	// askAgain is how long a receiver waits before it asks a busy sender once more.
	askAgain = time.Second
	// callTimeout bounds a call to another manager.
	callTimeout = time.Minute
	// closeTimeout is how long the answer to a sender's last request may take.
	closeTimeout = 5 * time.Second
)

// receiverBounds are for the listener of one transfer.
var receiverBounds = listener.Bounds{Connections: 32, OfAddress: 16}

// Config is what a manager is told.
type Config struct {
	// DataAddress is the IP address where copies are received: that of the storage network, else
	// the Pod's.
	DataAddress string
	// FirstPort and LastPort are where they are received.
	FirstPort, LastPort int
	// FileAddress is where files can be downloaded, as clients are told.
	FileAddress string
	// Dial connects to other managers and to data sources.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Worker starts the process that backs an image up; nil: as package worker says.
	Worker []string
	Log    *slog.Logger
}

// Manager is the files of one disk, and how they get there.
type Manager struct {
	bimrpc.UnimplementedBackingImageManagerServiceServer
	cfg   Config
	disk  *store.Disk
	files *files.Set
	// receiving bounds the copies that come at the same time.
	receiving chan struct{}
	backups   backups
	work      sync.WaitGroup

	mu   sync.Mutex
	next int // the port to try first
}

// scrubbing has each file read once a week, at 20 MiB/s at most.
var scrubbing = files.Scrubbing{Every: 7 * 24 * time.Hour, Look: 10 * time.Minute, Pause: 50 * time.Millisecond}

// NewManager takes in what is on the disk. Close ends it.
func NewManager(d *store.Disk, cfg Config) (*Manager, error) {
	found, err := d.Scan()
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, disk: d, files: files.New(d, false, cfg.Log), receiving: make(chan struct{}, files.MaxSends),
		next: cfg.FirstPort}
	for _, f := range found {
		if err := m.files.Take(f); err != nil {
			m.Close()
			return nil, err
		}
	}
	m.files.Scrub(scrubbing)
	return m, nil
}

// Close ends all that is under way, and waits for it.
func (m *Manager) Close() {
	m.files.Close()
	m.work.Wait()
}

// copyFrom is the maker of a file that another manager has.
func (m *Manager) copyFrom(id backingimage.ID, from, expected string, size int64) files.Maker {
	return func(ctx context.Context, run files.Run) (backingimage.Record, error) {
		run.Waits(fmt.Sprintf("%d copies are being received; this one is next", files.MaxSends))
		select {
		case m.receiving <- struct{}{}:
			defer func() { <-m.receiving }()
		case <-ctx.Done():
			return backingimage.Record{}, ctx.Err()
		}
		making, err := m.disk.Create(backingimage.InManager(m.disk.Root(), id), id.UUID)
		if err != nil {
			return backingimage.Record{}, err
		}
		sum, err := m.receive(ctx, run, making, id, from, size)
		switch {
		case err != nil:
		case expected != "" && sum != "" && sum != expected:
			err = fmt.Errorf("%w: the sender %s has an image of SHA-512 %s, and not %s", store.ErrDamaged, from, sum, expected)
		case expected == "" && sum == "":
			err = fmt.Errorf("the sender %s tells no checksum, and none is expected: what has come cannot be verified", from)
		}
		if err != nil {
			return backingimage.Record{}, errors.Join(err, making.Abort())
		}
		if expected == "" {
			expected = sum
		}
		return making.PublishRead(expected, func(int64) error { return ctx.Err() })
	}
}

// receive listens for the sender, orders it to send, and returns the checksum that it tells. When
// it returns nothing writes to the file.
func (m *Manager) receive(ctx context.Context, run files.Run, to ssync.Target, id backingimage.ID, from string,
	size int64) (string, error) {
	l, err := m.listen(ctx)
	if err != nil {
		return "", err
	}
	token := rand.Text()
	sum, err := receive(ctx, l, ssync.NewReceiver(to, token, size, run.Received), m.cfg.Log, func() error {
		if err := m.order(ctx, run, id, from, l.Addr().String(), token); err != nil {
			return err
		}
		run.Begun()
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("copy from %s: %w", from, err)
	}
	return sum, nil
}

// receive serves a receiver, has the sender begin, and returns the checksum that it tells. When it
// returns the listener is closed and nothing writes to the file.
func receive(ctx context.Context, l net.Listener, r *ssync.Receiver, log *slog.Logger,
	begin func() error) (string, error) {
	server := &http.Server{Handler: r, ReadHeaderTimeout: ssync.Patience, IdleTimeout: ssync.Patience,
		ConnState: r.Connection, MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener.Bounded(l, receiverBounds, log)) // ends with the server
	}()
	sum, err := "", begin()
	if err == nil {
		sum, err = r.Wait(ctx, ssync.Patience)
	}
	if err == nil {
		// The sender is to get its last answer.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		_ = server.Shutdown(closing)
		cancel()
	}
	_ = server.Close()
	<-served
	r.Drain()
	return sum, err
}

// listen opens a listener at a free port of the range, another one each time.
func (m *Manager) listen(ctx context.Context) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last error
	for range m.cfg.LastPort - m.cfg.FirstPort + 1 {
		port := m.next
		if m.next++; m.next > m.cfg.LastPort {
			m.next = m.cfg.FirstPort
		}
		l, err := listener.Listen(ctx, "tcp", net.JoinHostPort(m.cfg.DataAddress, strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no port of %s between %d and %d is free for a copy: %w", m.cfg.DataAddress, m.cfg.FirstPort,
		m.cfg.LastPort, last)
}

// order has the manager at from send; a busy one is asked again.
func (m *Manager) order(ctx context.Context, run files.Run, id backingimage.ID, from, to, token string) error {
	conn, err := grpc.NewClient("passthrough:///"+from, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(m.cfg.Dial))
	if err != nil {
		return err
	}
	defer conn.Close()
	sender := bimrpc.NewBackingImageManagerServiceClient(conn)
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := sender.Send(call, &bimrpc.SendRequest{Name: id.Name, Uuid: id.UUID, ToAddress: to, Token: token})
		cancel()
		if status.Code(err) != codes.ResourceExhausted {
			return err
		}
		run.Waits(fmt.Sprintf("the sender %s is busy: it is asked again", from))
		t := time.NewTimer(askAgain)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// takeOver is the maker of a file that a data source has made on this disk.
func (m *Manager) takeOver(id backingimage.ID, expected, source string) files.Maker {
	return func(ctx context.Context, run files.Run) (backingimage.Record, error) {
		run.Begun()
		r, err := m.disk.TakeOver(id, expected, func(done int64) error {
			run.Received(done, 0)
			return ctx.Err()
		})
		if err == nil && source != "" {
			// The file is here; that the source goes on for a while changes nothing.
			if err := m.release(ctx, source); err != nil {
				m.cfg.Log.Warn("a data source was not told that its file is taken over", "address", source, "err", err)
			}
		}
		return r, err
	}
}

// release tells a data source that its file was taken over.
func (m *Manager) release(ctx context.Context, source string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+source+"/v1/file?action=transfer", http.NoBody)
	if err != nil {
		return err
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return m.cfg.Dial(ctx, address)
	}}
	defer t.CloseIdleConnections()
	a, err := (&http.Client{Transport: t}).Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", a.Status)
	}
	return nil
}

// send is the reader that sends a file to the receiver of another manager.
func send(to, token string) files.Reader {
	return func(ctx context.Context, f disk.File, i files.Image) error {
		return ssync.Send(ctx, to, token, f, i.File.Checksum)
	}
}

// Files are those of the disk.
func (m *Manager) Files() *files.Set { return m.files }
