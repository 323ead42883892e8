package azure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	account = "account"
	// accountKey is "the key of an account" in base64.
	accountKey = "dGhlIGtleSBvZiBhbiBhY2NvdW50"
)

// server is what a blob service does of the requests that are used here, with container
// "container", for whoever has the key of the account. It reads requests by the description of the
// protocol, with nothing of this package.
type server struct {
	*httptest.Server
	// page is how many entries a page of a list has.
	page int
	// path is what the URL of the service has before the container.
	path     string
	requests atomic.Int64
	// before may answer a request itself.
	before func(w http.ResponseWriter, r *http.Request) (answered bool)

	mu    sync.Mutex
	blobs map[string]blob
}

type blob struct {
	data     []byte
	modified time.Time
}

func serve(t *testing.T, start func(http.Handler) *httptest.Server) *server {
	t.Helper()
	s := &server{blobs: map[string]blob{}, page: 100}
	s.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if s.before == nil || !s.before(w, r) {
			s.answer(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func fails(w http.ResponseWriter, status int, code string) {
	w.Header().Set("x-ms-error-code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>That is so.\nRequestId:1"+
		"</Message></Error>", code)
}

// authorized checks the signature of a request: Shared Key, as the service describes it.
func authorized(r *http.Request) bool {
	length := "" // also for 0
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	text := strings.Join([]string{r.Method, r.Header.Get("Content-Encoding"), r.Header.Get("Content-Language"), length,
		r.Header.Get("Content-MD5"), r.Header.Get("Content-Type"), r.Header.Get("Date"), r.Header.Get("If-Modified-Since"),
		r.Header.Get("If-Match"), r.Header.Get("If-None-Match"), r.Header.Get("If-Unmodified-Since"),
		r.Header.Get("Range")}, "\n") + "\n"
	var lines []string
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			lines = append(lines, lower+":"+strings.TrimSpace(r.Header.Get(name))+"\n")
		}
	}
	slices.Sort(lines)
	path, _, _ := strings.Cut(r.RequestURI, "?")
	text += strings.Join(lines, "") + "/" + account + path
	var parameters []string
	for name, values := range r.URL.Query() {
		parameters = append(parameters, "\n"+strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(parameters)
	text += strings.Join(parameters, "")
	h := hmac.New(sha256.New, []byte("the key of an account"))
	h.Write([]byte(text))
	sent, err := http.ParseTime(r.Header.Get("x-ms-date"))
	return err == nil && time.Since(sent).Abs() < 15*time.Minute && r.Header.Get("x-ms-version") == "2020-10-02" &&
		r.Header.Get("Authorization") == "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, s.path+"/container")
	switch {
	case !authorized(r):
		fails(w, http.StatusForbidden, "AuthenticationFailed")
		return
	case !ok:
		fails(w, http.StatusNotFound, "ContainerNotFound")
		return
	case name == "" && r.URL.Query().Get("comp") == "list" && r.URL.Query().Get("restype") == "container":
		s.list(w, r)
		return
	}
	name = strings.TrimPrefix(name, "/")
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, there := s.blobs[name]
	switch {
	case r.Method == http.MethodPut && r.Header.Get("x-ms-blob-type") == "BlockBlob":
		s.blobs[name] = blob{data, time.Now()}
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut:
		fails(w, http.StatusBadRequest, "MissingRequiredHeader")
	case !there:
		fails(w, http.StatusNotFound, "BlobNotFound")
	case r.Method == http.MethodDelete:
		delete(s.blobs, name)
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Last-Modified", b.modified.UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(len(b.data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(b.data) // a client that is gone reads nothing
		}
	}
}

// list answers with a page: blobs, and prefixes where there is a delimiter, in one order.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	type properties struct {
		LastModified  string `xml:"Last-Modified"`
		ContentLength int    `xml:"Content-Length"`
	}
	type entry struct {
		XMLName    xml.Name
		Name       string
		Properties *properties
	}
	type result struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Entries    []entry  `xml:"Blobs>any"`
		NextMarker string
	}
	q := r.URL.Query()
	prefix, delimiter, marker := q.Get("prefix"), q.Get("delimiter"), q.Get("marker")
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]entry{}
	for name, b := range s.blobs {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if before, _, inside := strings.Cut(rest, "/"); inside && delimiter == "/" {
			all[prefix+before+"/"] = entry{XMLName: xml.Name{Local: "BlobPrefix"}, Name: prefix + before + "/"}
			continue
		}
		all[name] = entry{xml.Name{Local: "Blob"}, name,
			&properties{b.modified.UTC().Format(http.TimeFormat), len(b.data)}}
	}
	var out result
	var names []string
	for name := range all {
		if "from "+name > marker || marker == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i == s.page {
			out.NextMarker = "from " + names[i-1]
			break
		}
		out.Entries = append(out.Entries, all[name])
	}
	text, err := xml.Marshal(out)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(append([]byte("\ufeff"+xml.Header), text...)) // a client that is gone reads nothing
}
