// Package source brings the content of a backing image from outside of the cluster, as a stream:
// from a URL (Download) or from a user who sends it (Upload). What the bytes are, and where they
// go, is the business of packages content and store.
//
// A download that is cut goes on where it was cut, as long as the server says that the content is
// still the same. It never continues one content with another one.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrRefused: what was asked for is not fetched; to ask again does not help.
var ErrRefused = errors.New("refused")

// Bounds of a download.
const (
	maxRedirects = 10
	// maxCuts is how often in a row a download may be cut without a byte in between.
	maxCuts = 5
	// firstPause and maxPause are between two requests; each is twice as long as the one before.
	firstPause = time.Second
	maxPause   = 16 * time.Second
	// silence is how long a server may send nothing.
	silence = 30 * time.Second
)

// Options are what a test, or a process for its environment, can change of a download. The zero
// value is for production.
type Options struct {
	// Policy checks addresses; nil is Outside.
	Policy Policy
	// Proxy returns the proxy for a request; nil goes by the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// Client changes the client before it is used, as for the certificates of a test server.
	Client func(*http.Transport)
	// Silence and Pause replace the constants, if they are not 0.
	Silence, Pause time.Duration
	// Checked: the caller compares the whole with a checksum, so a server that does not say
	// whether its content is still the same may go on.
	Checked bool
}

// Download is the content of a URL as a reader. It is used by one goroutine and must be closed.
type Download struct {
	ctx    context.Context
	url    string
	o      Options
	out    *outward
	client *http.Client

	// asked is the context of the request whose answer has that body; stop ends it.
	asked context.Context
	stop  context.CancelCauseFunc
	body  io.ReadCloser
	// watch ends the request when nothing comes.
	watch *time.Timer
	// done of total bytes have come; total is -1 while it is not known.
	done, total int64
	// skip is how many bytes of the body have come before.
	skip int64
	// validator is what the server calls this content; the first answer's.
	validator string
	cuts      int
}

// Open asks for a URL. The context ends all of the download.
func Open(ctx context.Context, address string, o Options) (*Download, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL cannot be read: %w", ErrRefused, withoutURL(err))
	}
	if err := checkURL(u); err != nil {
		return nil, err
	}
	if o.Policy == nil {
		o.Policy = Outside
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	d := &Download{ctx: ctx, url: address, o: o, out: newOutward(o.Policy, o.Proxy), total: -1}
	if o.Client != nil {
		o.Client(d.out.direct)
		o.Client(d.out.byProxy)
	}
	d.client = &http.Client{Transport: d.out, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return fmt.Errorf("%w: more than %d redirects", ErrRefused, maxRedirects)
		}
		return nil
	}}
	if err := d.again(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// withoutURL is an error without the URL, which may have a password in it.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Size is that of the content in bytes, -1 if the server does not say it.
func (d *Download) Size() int64 { return d.total }

// Close ends the download.
func (d *Download) Close() {
	d.drop()
	d.out.close()
}

func (d *Download) drop() {
	if d.body != nil {
		_ = d.body.Close()
		d.watch.Stop()
		d.stop(nil)
		d.body = nil
	}
}

// Read implements io.Reader. An error other than io.EOF is the end.
func (d *Download) Read(p []byte) (int, error) {
	for {
		if d.body == nil {
			if err := d.again(); err != nil {
				return 0, err
			}
		}
		n, err := d.read(p)
		switch {
		case d.total >= 0 && d.done > d.total:
			return 0, d.changed("more than before")
		case err == nil && n > 0:
			return n, nil
		case err == nil:
			continue
		case errors.Is(err, io.EOF) && d.skip == 0 && (d.total < 0 || d.done == d.total):
			return n, io.EOF
		}
		if cause := context.Cause(d.asked); errors.Is(cause, errSilent) {
			err = cause
		}
		d.drop()
		if err := d.ctx.Err(); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil // the rest is asked for by the next call
		}
		if err := d.pause(err); err != nil {
			return 0, err
		}
	}
}

// read reads once, and passes over what has come before.
func (d *Download) read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	if n > 0 {
		d.watch.Reset(d.silence())
		known := int(min(int64(n), d.skip))
		d.skip -= int64(known)
		n = copy(p, p[known:n])
	}
	if n > 0 {
		d.done, d.cuts = d.done+int64(n), 0
	}
	return n, err
}

// errSilent is why a request ends on which nothing comes.
var errSilent = errors.New("the server sends nothing any more")

func (d *Download) silence() time.Duration { return cmp.Or(d.o.Silence, silence) }

// again asks for what is missing, until there is an answer or no hope.
func (d *Download) again() error {
	for {
		err := d.ask()
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		if err := d.ctx.Err(); err != nil {
			return err // whatever the last answer was
		}
		if err := d.pause(err); err != nil {
			return err
		}
	}
}

// pause waits before the next request; after too many it gives up, for the reason of the last one.
func (d *Download) pause(cause error) error {
	if d.cuts++; d.cuts >= maxCuts {
		return fmt.Errorf("the download was cut after %d bytes, and %d attempts to go on have failed: %w", d.done, d.cuts-1,
			cause)
	}
	pause := min(cmp.Or(d.o.Pause, firstPause)<<(d.cuts-1), maxPause)
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// ask sends one request, for the rest of the content if a part is there.
func (d *Download) ask() error {
	d.skip = 0
	ctx, stop := context.WithCancelCause(d.ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, http.NoBody)
	if err != nil {
		stop(nil)
		return fmt.Errorf("%w: %w", ErrRefused, withoutURL(err))
	}
	r.Header.Set("Accept-Encoding", "identity")
	if d.done > 0 {
		r.Header.Set("Range", "bytes="+strconv.FormatInt(d.done, 10)+"-")
		if d.validator != "" {
			r.Header.Set("If-Range", d.validator)
		}
	}
	answer, err := d.client.Do(r)
	if err != nil {
		stop(nil)
		return withoutURL(err)
	}
	watch := time.AfterFunc(d.silence(), func() { stop(errSilent) })
	if err := d.accept(answer); err != nil {
		watch.Stop()
		stop(nil)
		_ = answer.Body.Close()
		return err
	}
	d.asked, d.body, d.stop, d.watch = ctx, answer.Body, stop, watch
	return nil
}

// transient are answers after which it is worth asking again.
func transient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusInternalServerError:
		return true
	}
	return false
}

// accept decides about an answer.
func (d *Download) accept(a *http.Response) error {
	switch {
	case transient(a.StatusCode):
		return fmt.Errorf("the server answers %s", a.Status)
	case d.done == 0 && a.StatusCode == http.StatusOK:
		if d.total >= 0 && a.ContentLength != d.total {
			return d.changed("another size")
		}
		d.total, d.validator = a.ContentLength, validatorOf(a.Header)
		return nil
	case d.done > 0 && a.StatusCode == http.StatusPartialContent:
		return d.acceptRest(a)
	case d.done > 0 && a.StatusCode == http.StatusOK:
		return d.acceptWhole(a)
	case d.done > 0 && (a.StatusCode == http.StatusRequestedRangeNotSatisfiable ||
		a.StatusCode == http.StatusPreconditionFailed):
		return d.changed("no rest of it")
	}
	return fmt.Errorf("%w: the server answers %s", ErrRefused, a.Status)
}

// changed is the end: to go on would join two contents.
func (d *Download) changed(what string) error {
	return fmt.Errorf("%w: the content at the URL has changed after %d bytes: the server has %s now; download it anew",
		ErrRefused, d.done, what)
}

// same says whether an answer is of the content that has come so far.
func (d *Download) same(h http.Header) error {
	now := validatorOf(h)
	switch {
	case d.validator == "" && !d.o.Checked:
		return fmt.Errorf("%w: the download was cut after %d bytes, and the server does not say (ETag, Last-Modified) whether "+
			"its content is still the same: give the expected checksum, with which it can go on", ErrRefused, d.done)
	case now != d.validator && now != "":
		return d.changed("another version")
	}
	return nil
}

// acceptRest takes an answer that has the rest.
func (d *Download) acceptRest(a *http.Response) error {
	if err := d.same(a.Header); err != nil {
		return err
	}
	first, last, total, err := contentRange(a.Header.Get("Content-Range"))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case first != d.done:
		return fmt.Errorf("%w: the server was asked for bytes from %d on, and sends those from %d", ErrRefused, d.done, first)
	case d.total >= 0 && total >= 0 && total != d.total:
		return d.changed("another size")
	case a.ContentLength >= 0 && a.ContentLength != last-first+1:
		return fmt.Errorf("%w: the server sends %d bytes as a range of %d", ErrRefused, a.ContentLength, last-first+1)
	}
	if d.total < 0 {
		d.total = total
	}
	return nil
}

// acceptWhole takes an answer of a server that knows no ranges: what is there already is passed
// over. With a validator that is the same content; If-Range has told the others.
func (d *Download) acceptWhole(a *http.Response) error {
	now := validatorOf(a.Header)
	if d.validator != "" && now != d.validator {
		return d.changed("another version")
	}
	if err := d.same(a.Header); err != nil {
		return err
	}
	if d.total >= 0 && a.ContentLength != d.total {
		return d.changed("another size")
	}
	d.skip = d.done
	return nil
}

// validatorOf is what a server calls a content so that it can be asked for again: a strong ETag
// (RFC 9110, 13.1.5), else the time of its last change.
func validatorOf(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	return h.Get("Last-Modified")
}

// contentRange reads "bytes 5-9/10"; the total is -1 for "*".
func contentRange(text string) (first, last, total int64, err error) {
	wrong := fmt.Errorf("the range of the answer, %.80q, cannot be read", text)
	text, ok := strings.CutPrefix(text, "bytes ")
	span, whole, ok2 := strings.Cut(text, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, wrong
	}
	total = -1
	numbers := []*int64{&first, &last, &total}
	for i, s := range []string{from, to, whole} {
		if i == 2 && s == "*" {
			continue
		}
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return 0, 0, 0, wrong
		}
		*numbers[i] = int64(n)
	}
	if last < first || total >= 0 && last >= total {
		return 0, 0, 0, wrong
	}
	return first, last, total, nil
}
