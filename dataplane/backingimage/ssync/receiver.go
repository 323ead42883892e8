// Package ssync copies one file from one process to another, holes included. The receiver is an
// HTTP server for that one file; the sender is its client. The requests are those of the reference:
//
//	GET  /v1-ssync/open?begin=0&end=<size>&directIO=<bool>  JSON: whether the file existed before
//	POST /v1-ssync/sendHole?begin=&end=                     the range is a hole
//	POST /v1-ssync/writeData?begin=&end=                    the range has the content of the body
//	GET  /v1-ssync/getChecksum?begin=&end=                  JSON: null, for a file that is new
//	GET  /v1-ssync/getRecordedMetadata                      404, for the same reason
//	POST /v1-ssync/close?checksumMethod=&checksum=          all of it was sent
//	POST /v1-ssync/close?error=                             ours: the sender has failed, and says why
//
// Every byte is either sent or told to be a hole, or the close is refused. Whoever sends has to
// know the token that went with the order to send; it is in the header Authorization.
package ssync

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of a transfer.
const (
	// Workers send and write ranges at the same time.
	Workers = 4
	// maxRange is the longest range with content, in bytes: what a sender of the reference sends.
	maxRange = 2 << 20
	// Patience is how long a receiver waits for the first request, and for the next one.
	Patience = time.Minute
	// goneAfter is how long a sender that has begun may be without a connection.
	goneAfter = 5 * time.Second
	// lookEvery is how often a sender is looked after at least.
	lookEvery = time.Second
	// mostReason is how much of what a sender says of its failure is kept, in bytes.
	mostReason = 1 << 10
)

const (
	prefix = "/v1-ssync/"
	// Method is the name of the checksum that a sender tells at the end.
	Method = "sha512"
)

// ErrGivenUp: the sender has failed, and says so.
var ErrGivenUp = errors.New("the sender has given up")

// ErrSilent: the sender has not begun, or not gone on.
var ErrSilent = errors.New("the sender sends nothing")

// Target is the file that is written. Ranges are written by several goroutines.
type Target interface {
	Resize(size int64) error
	WriteAt(p []byte, off int64) error
	Punch(off, n int64) error
}

// Receiver is the server of one transfer. Its zero value is not usable.
type Receiver struct {
	// Patient: the first request is waited for as long as the context of Wait lasts.
	Patient bool

	target Target
	token  string
	size   int64
	told   func(done, total int64)
	mux    *http.ServeMux
	// slots bound the memory for ranges.
	slots chan struct{}
	work  sync.WaitGroup

	mu sync.Mutex
	// opened: the size is known; open: ranges may come.
	opened, open bool
	come         spans
	writing      int
	last         time.Time
	// connections are known where the server tells them; since when there are none is parted.
	connections map[net.Conn]bool
	parted      time.Time
	// ended has the outcome, once.
	ended   chan outcome
	isEnded bool
}

type outcome struct {
	checksum string
	err      error
}

// NewReceiver returns the receiver of a file of that size, 0 if any will do. told hears of what has
// come.
func NewReceiver(target Target, token string, size int64, told func(done, total int64)) *Receiver {
	r := &Receiver{target: target, token: token, size: size, told: told, mux: http.NewServeMux(),
		slots: make(chan struct{}, Workers), ended: make(chan outcome, 1)}
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + prefix + "open": r.serveOpen, "POST " + prefix + "sendHole": r.hole, "POST " + prefix + "writeData": r.data,
		"POST " + prefix + "close": r.close,
		"GET " + prefix + "getChecksum": func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, "null")
			return err
		},
	} {
		r.mux.HandleFunc(pattern, func(w http.ResponseWriter, q *http.Request) { r.serve(w, q, serve) })
	}
	return r
}

// Authorization is the value of that header for a token.
func Authorization(token string) string { return "Bearer " + token }

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	// A stranger changes nothing, not even how long the sender is waited for.
	if subtle.ConstantTimeCompare([]byte(q.Header.Get("Authorization")), []byte(Authorization(r.token))) != 1 {
		http.Error(w, "the token is not that of this transfer", http.StatusUnauthorized)
		return
	}
	r.mux.ServeHTTP(w, q)
}

// errRequest: the request is wrong, and has changed nothing.
var errRequest = errors.New("wrong request")

func (r *Receiver) serve(w http.ResponseWriter, q *http.Request, serve func(http.ResponseWriter, *http.Request) error) {
	if !r.begin() {
		http.Error(w, "the transfer is over", http.StatusConflict)
		return
	}
	defer func() {
		r.mu.Lock()
		r.writing, r.last = r.writing-1, time.Now()
		r.mu.Unlock()
		r.work.Done()
	}()
	err := serve(w, q)
	switch {
	case errors.Is(err, errRequest):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		r.end(outcome{err: err}) // what is on the disk now is not known
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// begin counts a request in, unless the transfer is over.
func (r *Receiver) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isEnded {
		return false
	}
	r.work.Add(1)
	r.writing, r.last = r.writing+1, time.Now()
	return true
}

// Connection is for the server of the receiver, to call as http.Server.ConnState: a sender without
// a connection is not waited for long.
func (r *Receiver) Connection(c net.Conn, s http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connections == nil {
		r.connections = map[net.Conn]bool{}
	}
	switch s {
	case http.StateClosed, http.StateHijacked:
		delete(r.connections, c)
	default:
		r.connections[c] = true
	}
	if len(r.connections) == 0 {
		r.parted = time.Now()
	}
}

// Drain returns when nothing writes to the target any more. It is for after Wait, and after the
// connections were closed.
func (r *Receiver) Drain() { r.work.Wait() }

func (r *Receiver) end(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isEnded {
		r.isEnded = true
		r.ended <- o
	}
}

// Wait returns when the transfer is over: the checksum that the sender told, which may be empty, or
// why it has failed. It returns once.
func (r *Receiver) Wait(ctx context.Context, patience time.Duration) (string, error) {
	r.mu.Lock()
	r.last = time.Now() // the sender may have had other things to do before
	r.mu.Unlock()
	look := time.NewTicker(min(max(patience/10, time.Millisecond), lookEvery))
	defer look.Stop()
	for {
		select {
		case o := <-r.ended:
			return o.checksum, o.err
		case <-ctx.Done():
			r.end(outcome{err: ctx.Err()})
		case <-look.C:
			if err := r.silent(patience); err != nil {
				r.end(outcome{err: err})
			}
		}
	}
}

func (r *Receiver) silent(patience time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := r.opened && r.connections != nil && len(r.connections) == 0 && time.Since(r.parted) >= min(patience, goneAfter)
	switch {
	case r.writing > 0:
		return nil
	case gone:
		return fmt.Errorf("%w: it has ended its connections after %d of %d bytes", ErrSilent, r.come.bytes(), r.size)
	case time.Since(r.last) < patience || r.Patient && !r.opened:
		return nil
	}
	return fmt.Errorf("%w: %d of %d bytes have come", ErrSilent, r.come.bytes(), r.size)
}

// span reads the range of a request.
func (r *Receiver) span(q *http.Request) (begin, end int64, err error) {
	values := q.URL.Query()
	b, err1 := strconv.ParseUint(values.Get("begin"), 10, 63)
	e, err2 := strconv.ParseUint(values.Get("end"), 10, 63)
	if err := errors.Join(err1, err2); err != nil || e < b {
		return 0, 0, fmt.Errorf("%w: range %.40q to %.40q", errRequest, values.Get("begin"), values.Get("end"))
	}
	return int64(b), int64(e), nil
}

func (r *Receiver) serveOpen(w http.ResponseWriter, q *http.Request) error {
	begin, end, err := r.span(q)
	if err != nil {
		return err
	}
	if err := r.measure(begin, end); err != nil {
		return err
	}
	if err := r.target.Resize(end); err != nil {
		return err
	}
	r.mu.Lock()
	r.open = true
	r.mu.Unlock()
	r.told(0, end)
	_, err = io.WriteString(w, "false")
	return err
}

// measure takes the size of the file, once.
func (r *Receiver) measure(begin, end int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.opened:
		return fmt.Errorf("%w: opened already", errRequest)
	case begin != 0 || end == 0:
		return fmt.Errorf("%w: a file is opened from 0 to its size, not from %d to %d", errRequest, begin, end)
	case r.size != 0 && end != r.size:
		return fmt.Errorf("the sender has a file of %d bytes, and one of %d is expected", end, r.size)
	}
	r.opened, r.size = true, end
	return nil
}

// opening is the range of a request for a file that is open.
func (r *Receiver) opening(q *http.Request) (begin, end int64, err error) {
	if begin, end, err = r.span(q); err != nil {
		return 0, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open || end > r.size || end == begin {
		return 0, 0, fmt.Errorf("%w: range %d to %d of a file of %d bytes, open: %v", errRequest, begin, end, r.size,
			r.open)
	}
	return begin, end, nil
}

func (r *Receiver) hole(_ http.ResponseWriter, q *http.Request) error {
	begin, end, err := r.opening(q)
	if err != nil {
		return err
	}
	if err := r.target.Punch(begin, end-begin); err != nil {
		return err
	}
	return r.add(begin, end)
}

func (r *Receiver) data(_ http.ResponseWriter, q *http.Request) error {
	begin, end, err := r.opening(q)
	if err != nil {
		return err
	}
	if n := end - begin; n > maxRange || q.ContentLength >= 0 && q.ContentLength != n {
		return fmt.Errorf("%w: %d bytes come for a range of %d; %d at most", errRequest, q.ContentLength, n, maxRange)
	}
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	p := make([]byte, end-begin)
	if _, err := io.ReadFull(q.Body, p); err != nil {
		return fmt.Errorf("%w: the content of range %d to %d is cut: %w", errRequest, begin, end, err)
	}
	if err := r.target.WriteAt(p, begin); err != nil {
		return err
	}
	return r.add(begin, end)
}

func (r *Receiver) add(begin, end int64) error {
	r.mu.Lock()
	err := r.come.add(begin, end)
	done, size := r.come.bytes(), r.size
	r.mu.Unlock()
	r.told(done, size)
	return err
}

func (r *Receiver) close(_ http.ResponseWriter, q *http.Request) error {
	r.mu.Lock()
	open, done, size, others := r.open, r.come.bytes(), r.size, r.writing-1
	r.mu.Unlock()
	method, sum := q.URL.Query().Get("checksumMethod"), q.URL.Query().Get("checksum")
	if why := q.URL.Query().Get("error"); why != "" && open {
		r.end(outcome{err: fmt.Errorf("%w after %d of %d bytes: %s", ErrGivenUp, done, size,
			strings.ToValidUTF8(why[:min(len(why), mostReason)], ""))})
		return nil
	}
	switch {
	case !open || done != size || others > 0:
		return fmt.Errorf("the sender closes the file after %d of %d bytes", done, size)
	case sum != "" && method != Method:
		return fmt.Errorf("the sender tells a checksum of method %.40q; %s is known", method, Method)
	}
	r.end(outcome{checksum: sum})
	return nil
}
