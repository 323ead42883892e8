package serving

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Bounds of what callers of the webhooks make the server hold. Nobody shows credentials there, the
// API server neither, so strangers must not keep its reviews out.
const (
	// maxBodyBytes bounds a review: the API server limits an object to 3 MiB, an update carries two.
	maxBodyBytes = 8 << 20
	// budgetBytes bounds the bodies of all reviews under way. Decoded they take several times as much.
	budgetBytes = 32 << 20
	// firstBytes is the buffer that a body begins with: the budget bounds the number of reviews too.
	firstBytes = 64 << 10
	// bodyTime is how long a body may take to arrive, slowBody how long while others need its memory.
	bodyTime = 10 * time.Second
	slowBody = 250 * time.Millisecond
)

var (
	errTooLong = errors.New("an admission review is longer than 8 MiB, which no object of the API server is")
	errGaveWay = errors.New("the body of the review came too slowly while others needed the memory")
)

// bodies reads reviews whole before they are judged, within one budget. Where there is no room, the
// body that has been read for longest gives way: that of an API server arrives within milliseconds.
type bodies struct {
	budget   int64
	patience time.Duration
	mu       sync.Mutex
	// freed is broadcast to when bytes are given back, and when a body has to give way.
	freed sync.Cond
	held  int64
	// reading are the bodies that have not arrived whole, the oldest first.
	reading []*body
}

// body is one that is read or judged. cut ends its reading; it is called under the lock of bodies,
// and only while the body is among those that are read.
type body struct {
	began time.Time
	held  int64
	cut   func()
	gone  bool
}

func newBodies(budget int64, patience time.Duration) *bodies {
	b := &bodies{budget: budget, patience: patience}
	b.freed.L = &b.mu
	return b
}

// read has next see requests with a body that has arrived whole.
func (b *bodies) read(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTime))
		one := &body{began: time.Now(), cut: func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }}
		defer b.release(one)
		text, err := b.whole(one, r)
		switch {
		case errors.Is(err, errTooLong):
			_, _ = io.CopyN(io.Discard, r.Body, maxBodyBytes) // else the client may not come to read the answer
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		case errors.Is(err, errGaveWay):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		case err != nil:
			http.Error(w, "the body of the review cannot be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout*time.Second)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(w, r)
	})
}

// whole reads the body of a request; the memory for it is charged to one before it is used.
func (b *bodies) whole(one *body, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBodyBytes {
		return nil, errTooLong
	}
	if err := b.begin(one); err != nil {
		return nil, err
	}
	defer b.arrived(one)
	text := make([]byte, 0, firstBytes)
	for {
		if len(text) == cap(text) {
			if err := b.charge(one, int64(cap(text))); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, 2*cap(text)), text...)
		}
		n, err := r.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case len(text) > maxBodyBytes:
			return nil, errTooLong
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil && b.gaveWay(one):
			return nil, errGaveWay
		case err != nil:
			return nil, err
		}
	}
}

// begin lists one as read, with the first of its memory.
func (b *bodies) begin(one *body) error {
	b.mu.Lock()
	b.reading = append(b.reading, one)
	b.mu.Unlock()
	if err := b.charge(one, firstBytes); err != nil {
		b.arrived(one)
		return err
	}
	return nil
}

// charge waits until there is room for so many bytes more, and has the oldest body that is read
// give way as long as there is none.
func (b *bodies) charge(one *body, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !one.gone && b.held+bytes > b.budget {
		if oldest := b.holding(); oldest != nil {
			b.giveWay(oldest)
		}
		if !one.gone {
			b.freed.Wait()
		}
	}
	if one.gone {
		return errGaveWay
	}
	b.held += bytes
	one.held += bytes
	return nil
}

// giveWay ends the reading of a body that is slow, and has others look again when one that is not
// slow yet would be. Called with the lock held.
func (b *bodies) giveWay(oldest *body) {
	if left := b.patience - time.Since(oldest.began); left > 0 {
		time.AfterFunc(left, b.freed.Broadcast)
		return
	}
	oldest.gone = true
	oldest.cut()
	b.freed.Broadcast() // it may wait for memory itself
}

// holding is the body that is read for longest and holds memory, unless one that is about to give
// its memory back is there. Called with the lock held.
func (b *bodies) holding() *body {
	var oldest *body
	for _, x := range b.reading {
		switch {
		case x.held == 0:
		case x.gone:
			return nil
		case oldest == nil:
			oldest = x
		}
	}
	return oldest
}

func (b *bodies) gaveWay(one *body) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return one.gone
}

// arrived takes one from those that are read. Its memory stays charged.
func (b *bodies) arrived(one *body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.reading {
		if x == one {
			b.reading = append(b.reading[:i], b.reading[i+1:]...)
			return
		}
	}
}

// release gives back what one was charged.
func (b *bodies) release(one *body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= one.held
	one.held = 0
	b.freed.Broadcast()
}
