package ssync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"ankole.storage/dataplane/disk"
	"ankole.storage/host/listener"
)

const (
	// batch is how much a request sends, in bytes: with Workers of them for each of the few
	// transfers that a process has, its memory stays small.
	batch = 512 << 10
	// alignment is that of ranges and of memory, for direct I/O.
	alignment = 4096
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// giveUpTimeout bounds the last request of a sender that has failed.
	giveUpTimeout = 3 * time.Second
	maxAnswer     = 4 << 10
)

// File is what is sent, opened for direct reads.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error)
	Stat() (disk.Info, error)
}

// Send sends a file to the receiver at "host:port". checksum, if it is not empty, is the SHA-512 of
// the file, for the receiver to compare. A receiver that has begun is told why it fails.
func Send(ctx context.Context, to, token string, f File, checksum string) error {
	return send(ctx, to, token, f, checksum, Workers)
}

// SendInOrder is Send with one request after the other, in the order of the file.
func SendInOrder(ctx context.Context, to, token string, f File, checksum string) error {
	return send(ctx, to, token, f, checksum, 1)
}

func send(ctx context.Context, to, token string, f File, checksum string, workers int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return listener.Dial(ctx, address)
	}, MaxIdleConnsPerHost: workers, DisableCompression: true}
	defer t.CloseIdleConnections()
	s := &sender{client: &http.Client{Transport: t, Timeout: requestTimeout, CheckRedirect: refuseRedirect},
		base: "http://" + to + prefix, token: token, workers: workers}
	direct := strconv.FormatBool(info.Size%alignment == 0)
	existed, err := s.request(ctx, http.MethodGet, "open", 0, info.Size, url.Values{"directIO": {direct}}, nil)
	if err != nil {
		return err
	}
	if strings.TrimSpace(existed) != "false" {
		return fmt.Errorf("the receiver has content already (it says %.40q): its file is to be new", existed)
	}
	if err := s.content(ctx, f, info.Size); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		s.giveUp(ctx, err)
		return err
	}
	method := ""
	if checksum != "" {
		method = Method
	}
	_, err = s.request(ctx, http.MethodPost, "close", 0, 0, url.Values{"checksumMethod": {method},
		"checksum": {checksum}}, nil)
	return err
}

// giveUp tells the receiver, which would wait otherwise. One that cannot be told waits for a while.
func (s *sender) giveUp(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	_, _ = s.request(ctx, http.MethodPost, "close", 0, 0, url.Values{"error": {why.Error()}}, nil)
}

func refuseRedirect(*http.Request, []*http.Request) error {
	return errors.New("a receiver sends nobody elsewhere")
}

type sender struct {
	client      *http.Client
	base, token string
	workers     int
}

// content sends the ranges: as holes what the file system has not allocated, or not written.
func (s *sender) content(ctx context.Context, f File, size int64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.workers)
	buffers := make(chan []byte, s.workers)
	for range s.workers {
		buffers <- buffer()
	}
	at := int64(0)
	err := extents(f, size, func(begin, end int64) error {
		if begin > at {
			hole := at
			g.Go(func() error { return s.hole(ctx, hole, begin) })
		}
		for at = begin; at < end; {
			from, to := at, min(at+batch, end)
			g.Go(func() error {
				p := <-buffers
				defer func() { buffers <- p }()
				return s.data(ctx, f, p, from, to)
			})
			at = to
		}
		return ctx.Err()
	})
	if err == nil && at < size {
		g.Go(func() error { return s.hole(ctx, at, size) })
	}
	if failed := g.Wait(); failed != nil {
		return failed // err is then only that the others were told to stop
	}
	return err
}

// extents calls each for the ranges with content, in order and in whole blocks, except at the end
// of the file. A file system that cannot tell them has content everywhere.
func extents(f File, size int64, each func(begin, end int64) error) error {
	from, to := int64(0), int64(0) // what is found, and not given out yet
	var found []disk.Extent
	for off, more := int64(0), true; more; {
		var err error
		found, more, err = f.Extents(off, found[:0])
		if errors.Is(err, disk.ErrUnsupported) {
			return each(0, size)
		}
		if err != nil {
			return err
		}
		for _, e := range found {
			off = e.Off + e.Len
			if e.Unwritten {
				continue
			}
			begin, end := e.Off/alignment*alignment, min((off+alignment-1)/alignment*alignment, size)
			if begin > to && to > from {
				if err := each(from, to); err != nil {
					return err
				}
			}
			if begin > to || to == from {
				from = begin
			}
			to = max(to, end)
		}
		more = more && len(found) > 0
	}
	if to > from {
		return each(from, to)
	}
	return nil
}

// buffer is memory for one range.
func buffer() []byte {
	p := make([]byte, batch+alignment)
	at := int(-uintptr(unsafe.Pointer(&p[0])) % alignment)
	return p[at : at+batch : at+batch]
}

func (s *sender) hole(ctx context.Context, begin, end int64) error {
	_, err := s.request(ctx, http.MethodPost, "sendHole", begin, end, nil, nil)
	return err
}

func (s *sender) data(ctx context.Context, f File, p []byte, begin, end int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Direct reads have whole blocks; at the end of the file less comes.
	want := (end - begin + alignment - 1) / alignment * alignment
	n, err := f.ReadAt(p[:want], begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if int64(n) < end-begin {
		return fmt.Errorf("bytes %d to %d: the file is shorter now", begin, end)
	}
	_, err = s.request(ctx, http.MethodPost, "writeData", begin, end, nil, p[:end-begin])
	return err
}

// request asks for one thing and returns the text of the answer.
func (s *sender) request(ctx context.Context, method, what string, begin, end int64, more url.Values,
	body []byte) (string, error) {
	q := url.Values{}
	if what != "close" {
		q.Set("begin", strconv.FormatInt(begin, 10))
		q.Set("end", strconv.FormatInt(end, 10))
	}
	for k, v := range more {
		q[k] = v
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+what+"?"+q.Encode(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", Authorization(s.token))
	a, err := s.client.Do(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("%s: the answer of the receiver is cut: %w", what, err)
	}
	if a.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: the receiver answers %s: %s", what, a.Status, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}
