// Package azure keeps a backup store in a container of Azure Blob Storage.
//
// An object is a block blob, its name behind a prefix, written by one request (Put Blob), which
// replaces it whole and has it durably when it is answered; no list of blocks is needed for what a
// request may have, 5000 MiB. The service has no list that begins behind a name, so After goes
// through folders. The protocol is that of version 2020-10-02, six requests signed with the key of
// the account.
package azure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankole.storage/backup/object"
)

// Bounds of a request.
const (
	attempts = 5
	// firstPause and maxPause are between attempts; each is twice the one before.
	firstPause = 500 * time.Millisecond
	maxPause   = 20 * time.Second
	// answerTimeout is how long a server may take to begin an answer.
	answerTimeout = time.Minute
	dialTimeout   = 15 * time.Second
	// maxListBytes bounds a page of a list, maxErrorBytes what is read of an error.
	maxListBytes  = 16 << 20
	maxErrorBytes = 64 << 10
)

// DefaultSuffix is that of the hosts of Azure's public cloud.
const DefaultSuffix = "core.windows.net"

// Config says where the container is, and who asks.
type Config struct {
	Container string
	// Prefix stands before each name, "" or with a slash at its end.
	Prefix string
	// Account is the storage account, Key its key in base64.
	Account, Key string
	// Suffix is that of the hosts, DefaultSuffix if "": ACCOUNT.blob.SUFFIX.
	Suffix string
	// Endpoint is the URL of the blob service instead, with the account in its path if need be.
	Endpoint string
	// CA is the certificate of the authority of the server, in PEM; the system's if empty.
	CA []byte

	// pause replaces firstPause in tests.
	pause time.Duration
}

// Store is a container. Make one with New.
type Store struct {
	client            *http.Client
	at                *url.URL // of the container
	container, prefix string
	account           string
	key               []byte
	pause             time.Duration
}

var _ object.Store = (*Store)(nil)

// New returns the store in a container. It asks nothing of the server.
func New(c Config) (*Store, error) {
	wrong := func(text string, args ...any) (*Store, error) {
		return nil, fmt.Errorf("backup store azblob://"+c.Container+": "+text, args...)
	}
	if c.Container == "" {
		return wrong("the name of the container is missing")
	}
	if err := object.CheckFolder(c.Prefix); err != nil {
		return wrong("prefix: %w", err)
	}
	if c.Account == "" || c.Key == "" {
		return wrong("AZBLOB_ACCOUNT_NAME or AZBLOB_ACCOUNT_KEY is missing")
	}
	if strings.ContainsAny(c.Account, "/\\?#@:% \t\r\n") {
		return wrong("AZBLOB_ACCOUNT_NAME is no name of an account")
	}
	key, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil {
		return wrong("AZBLOB_ACCOUNT_KEY is not base64")
	}
	endpoint := c.Endpoint
	if endpoint == "" {
		endpoint = "https://" + c.Account + ".blob." + cmp.Or(c.Suffix, DefaultSuffix)
	}
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" {
		return wrong("AZBLOB_ENDPOINT, or the account's name, makes no URL that begins with http:// or https://")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // it heeds HTTPS_PROXY and its like
	transport.ResponseHeaderTimeout = answerTimeout
	transport.MaxIdleConnsPerHost = 64
	transport.DisableCompression = true // of a content that is compressed no length is told
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	if len(c.CA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(c.CA) {
			return wrong("AZBLOB_CERT holds no certificate in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a signature is for one place
	}}
	return &Store{client: client, at: at.JoinPath(c.Container), container: c.Container, prefix: c.Prefix,
		account: c.Account, key: key, pause: cmp.Or(c.pause, firstPause)}, nil
}

func (s *Store) String() string { return "azblob://" + s.container + "/" + s.prefix }

// request is one of the protocol. name is that of an object; "" is the container.
type request struct {
	method, name string
	query        url.Values
	header       map[string]string
	body         []byte
}

// send sends a request until it succeeds, or fails for a reason that stays. read takes the answer;
// again: it broke off.
func (s *Store) send(ctx context.Context, r request, read func(*http.Response) (again bool, err error)) error {
	pause := s.pause
	for attempt := 1; ; attempt++ {
		again, err := s.try(ctx, r, read)
		if err == nil || !again || attempt == attempts || ctx.Err() != nil {
			return err
		}
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return err
		case <-wait.C:
		}
		pause = min(2*pause, maxPause)
	}
}

func (s *Store) try(ctx context.Context, r request, read func(*http.Response) (bool, error)) (again bool, err error) {
	at := *s.at
	if r.name != "" {
		at.Path, at.RawPath = at.Path+"/"+s.prefix+r.name, ""
	}
	at.RawQuery = r.query.Encode()
	q, err := http.NewRequestWithContext(ctx, r.method, at.String(), bytes.NewReader(r.body))
	if err != nil {
		return false, err
	}
	for name, value := range r.header {
		q.Header.Set(name, value)
	}
	s.sign(q, time.Now())
	answer, err := s.client.Do(q)
	if err != nil {
		return true, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		failed := failure(answer)
		return failed.status >= 500 && failed.status != http.StatusInsufficientStorage ||
			failed.status == http.StatusTooManyRequests || failed.status == http.StatusRequestTimeout, failed
	}
	return read(answer)
}

// nothing reads an answer that says nothing.
func nothing(*http.Response) (bool, error) { return false, nil }

// serverError is what the server has said.
type serverError struct {
	status        int
	code, message string
}

func (e *serverError) Error() string {
	return strings.TrimSpace(fmt.Sprint(e.status, " ", e.code, " ", e.message))
}

func failure(answer *http.Response) *serverError {
	var said struct{ Code, Message string }
	data, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes)) // what came is told
	_ = xml.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &said)
	message, _, _ := strings.Cut(said.Message, "\n") // the rest are numbers of the request
	return &serverError{answer.StatusCode, cmp.Or(answer.Header.Get("X-Ms-Error-Code"), said.Code), message}
}

// wrap marks the errors that callers tell apart.
func (s *Store) wrap(ctx context.Context, err error, doing, name string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := &serverError{}
	errors.As(err, &failed)
	var mark error
	switch {
	case failed.code == "ContainerNotFound":
		return fmt.Errorf("%s: %s %s: there is no such container: create it, or correct the target: %w", s, doing, name, err)
	case failed.status == http.StatusNotFound:
		mark = object.ErrNotFound
	case failed.status == http.StatusInsufficientStorage:
		mark = object.ErrNoSpace
	case failed.status == http.StatusForbidden || failed.status == http.StatusUnauthorized:
		mark = object.ErrRefused
	default:
		return fmt.Errorf("%s: %s %s: %w", s, doing, name, err)
	}
	return fmt.Errorf("%s: %s %s: %w (%w)", s, doing, name, mark, err)
}

// check checks what every request of an object needs.
func check(ctx context.Context, name string) error {
	if err := object.CheckName(name); err != nil {
		return err
	}
	return ctx.Err()
}

// Get is that of object.Store.
func (s *Store) Get(ctx context.Context, name string, buf []byte, limitBytes int64) ([]byte, error) {
	if err := check(ctx, name); err != nil {
		return buf, err
	}
	out := buf
	err := s.send(ctx, request{method: http.MethodGet, name: name}, func(answer *http.Response) (again bool, err error) {
		start, size := len(buf), answer.ContentLength
		switch {
		case size > limitBytes:
			return false, fmt.Errorf("%s has %d bytes, more than %d: %w", name, size, limitBytes, object.ErrTooLong)
		case size < 0:
			return false, fmt.Errorf("%s: the server does not tell the length", name)
		case int64(cap(buf)-start) < size:
			buf = append(make([]byte, 0, int64(start)+size), buf...)
		}
		out = buf[:start+int(size)]
		_, err = io.ReadFull(answer.Body, out[start:])
		return err != nil, err
	})
	if err != nil {
		return buf, s.wrap(ctx, err, "reading", name)
	}
	return out, nil
}

// Put is that of object.Store.
func (s *Store) Put(ctx context.Context, name string, data []byte) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	err := s.send(ctx, request{method: http.MethodPut, name: name, body: data, header: map[string]string{
		"X-Ms-Blob-Type": "BlockBlob", "Content-Type": "application/octet-stream"}}, nothing)
	if err = s.wrap(ctx, err, "writing", name); errors.Is(err, object.ErrNotFound) {
		return errors.New(err.Error()) // nothing that callers expect here
	}
	return err
}

// ListsAtOnce is that of object.Store: a proxy or a gateway before it may not.
func (s *Store) ListsAtOnce() bool { return false }

// Stage is that of object.Store. An object is durable when the server has answered.
func (s *Store) Stage(ctx context.Context, name string, data []byte) error {
	return s.Put(ctx, name, data)
}

// Commit is that of object.Store.
func (s *Store) Commit(context.Context) error { return nil }

// Stat is that of object.Store.
func (s *Store) Stat(ctx context.Context, name string) (info object.Info, err error) {
	if err := check(ctx, name); err != nil {
		return info, err
	}
	err = s.send(ctx, request{method: http.MethodHead, name: name}, func(answer *http.Response) (bool, error) {
		modified, err := http.ParseTime(answer.Header.Get("Last-Modified"))
		info = object.Info{Name: name, SizeBytes: answer.ContentLength, Modified: modified}
		return false, err
	})
	return info, s.wrap(ctx, err, "looking at", name)
}

// Delete is that of object.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	err := s.send(ctx, request{method: http.MethodDelete, name: name,
		header: map[string]string{"X-Ms-Delete-Snapshots": "include"}}, nothing)
	if err = s.wrap(ctx, err, "deleting", name); errors.Is(err, object.ErrNotFound) {
		return nil
	}
	return err
}

// page is one of a list.
type page struct {
	Blobs struct {
		Blob []struct {
			Name       string
			Properties struct {
				LastModified  string `xml:"Last-Modified"`
				ContentLength int64  `xml:"Content-Length"`
				ResourceType  string
			}
		}
		BlobPrefix []struct{ Name string }
	}
	NextMarker string
}

// List is that of object.Store.
func (s *Store) List(ctx context.Context, folder string, deep bool) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		err := object.CheckFolder(folder)
		if err == nil {
			err = ctx.Err()
		}
		query := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {s.prefix + folder}}
		if !deep {
			query.Set("delimiter", "/")
		}
		for more := true; more && err == nil; {
			var p page
			if p, err = s.page(ctx, query); err != nil {
				err = s.wrap(ctx, err, "listing", folder)
				break
			}
			for _, info := range s.infos(p) {
				if !yield(info, nil) {
					return
				}
			}
			more = p.NextMarker != ""
			query.Set("marker", p.NextMarker)
		}
		if err != nil {
			yield(object.Info{}, err)
		}
	}
}

func (s *Store) page(ctx context.Context, query url.Values) (p page, err error) {
	err = s.send(ctx, request{method: http.MethodGet, query: query}, func(answer *http.Response) (again bool, err error) {
		data, err := io.ReadAll(io.LimitReader(answer.Body, maxListBytes))
		if err != nil {
			return true, err
		}
		p = page{}
		return false, xml.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &p)
	})
	return p, err
}

// infos returns what a page of a list describes. Blobs whose names are none are another program's.
func (s *Store) infos(p page) (all []object.Info) {
	for _, b := range p.Blobs.Blob {
		name := strings.TrimPrefix(b.Name, s.prefix)
		modified, err := http.ParseTime(b.Properties.LastModified)
		if err == nil && object.CheckName(name) == nil && b.Properties.ResourceType != "directory" {
			all = append(all, object.Info{Name: name, SizeBytes: b.Properties.ContentLength, Modified: modified})
		}
	}
	for _, b := range p.Blobs.BlobPrefix {
		if name := strings.TrimPrefix(b.Name, s.prefix); object.CheckFolder(name) == nil {
			all = append(all, object.Info{Name: name})
		}
	}
	return all
}

// After is that of object.Store: a list of each folder that may have what is wanted.
func (s *Store) After(ctx context.Context, folder, after string, most int) ([]object.Info, error) {
	var here, found []object.Info
	for info, err := range s.List(ctx, folder, false) {
		if err != nil {
			return nil, err
		}
		here = append(here, info)
	}
	slices.SortFunc(here, func(a, b object.Info) int { return strings.Compare(a.Name, b.Name) })
	for _, info := range here {
		if len(found) >= most {
			break
		}
		switch inside := strings.HasSuffix(info.Name, "/"); {
		case info.Name <= after && !(inside && strings.HasPrefix(after, info.Name)):
		case !inside:
			found = append(found, info)
		default:
			below, err := s.After(ctx, info.Name, after, most-len(found))
			if err != nil {
				return nil, err
			}
			found = append(found, below...)
		}
	}
	return found, nil
}

// number is a length as requests have it when they are signed: "" for 0.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
