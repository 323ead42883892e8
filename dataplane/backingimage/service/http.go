package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/disk"
)

// fileStatus is a file as the HTTP interface shows it.
type fileStatus struct {
	FilePath         string `json:"filePath"`
	UUID             string `json:"uuid"`
	DiskUUID         string `json:"diskUUID"`
	ExpectedChecksum string `json:"expectedChecksum"`
	Size             int64  `json:"size"`
	VirtualSize      int64  `json:"virtualSize"`
	RealSize         int64  `json:"realSize"`
	State            string `json:"state"`
	Progress         int    `json:"progress"`
	ProcessedSize    int64  `json:"processedSize"`
	ModificationTime string `json:"modificationTime"`
	CurrentChecksum  string `json:"currentChecksum"`
	Message          string `json:"message"`
	SendingReference int    `json:"sendingReference"`
}

func statusOf(i files.Image, diskUUID string) fileStatus {
	f, r := i.File, i.Record
	return fileStatus{FilePath: i.Path, UUID: i.ID.UUID, DiskUUID: diskUUID, ExpectedChecksum: i.Expected, Size: r.Size,
		VirtualSize: r.VirtualSize, RealSize: r.RealSize, State: string(f.State), Progress: f.Progress(),
		ProcessedSize:    f.Done,
		ModificationTime: r.ModificationTime, CurrentChecksum: f.Checksum, Message: f.Message, SendingReference: f.Sending}
}

// FileHandler serves the files of a set: lists them, and gives them out. A file is named by its
// path, escaped so that it is one element: /v1/files/%2Fdata%2F…
func FileHandler(set *files.Set, diskUUID string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/files", func(w http.ResponseWriter, _ *http.Request) {
		all := []fileStatus{}
		for _, i := range set.List() {
			all = append(all, statusOf(i, diskUUID))
		}
		writeJSON(w, all)
	})
	mux.HandleFunc("GET /v1/files/{id}", func(w http.ResponseWriter, q *http.Request) {
		if i, ok := fileOf(w, q, set); ok {
			writeJSON(w, statusOf(i, diskUUID))
		}
	})
	mux.HandleFunc("DELETE /v1/files/{id}", func(w http.ResponseWriter, q *http.Request) { remove(w, q, set, false) })
	mux.HandleFunc("POST /v1/files/{id}", func(w http.ResponseWriter, q *http.Request) {
		if action := q.URL.Query().Get("action"); action != "forget" {
			http.Error(w, fmt.Sprintf("action %.40q: forget is possible here", action), http.StatusBadRequest)
			return
		}
		remove(w, q, set, true)
	})
	mux.HandleFunc("GET /v1/files/{id}/download", func(w http.ResponseWriter, q *http.Request) {
		i, ok := fileOf(w, q, set)
		if !ok {
			return
		}
		err := set.Read(q.Context(), i.ID, func(ctx context.Context, f disk.File, i files.Image) error {
			return give(ctx, w, q, f, i)
		})
		if err != nil {
			fail(w, err)
		}
	})
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

// fail answers with an error. An answer that has begun cannot take it back: its connection ends, so
// that nobody takes a part for the whole.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, errBegun):
		panic(http.ErrAbortHandler)
	case errors.Is(err, backingimage.ErrUnknown):
		code = http.StatusNotFound
	case errors.Is(err, backingimage.ErrNotReady), errors.Is(err, backingimage.ErrRemoving), errors.Is(err,
		files.ErrConflict):
		code = http.StatusConflict
	case errors.Is(err, source.ErrRefused):
		code = http.StatusBadRequest
	case status.Code(err) == codes.PermissionDenied:
		code = http.StatusForbidden
	}
	http.Error(w, err.Error(), code)
}

// fileOf finds the one file that a request names.
func fileOf(w http.ResponseWriter, q *http.Request, set *files.Set) (files.Image, bool) {
	for _, i := range set.List() {
		if i.Path == q.PathValue("id") {
			return i, true
		}
	}
	fail(w, fmt.Errorf("%.200q: %w", q.PathValue("id"), backingimage.ErrUnknown))
	return files.Image{}, false
}

func remove(w http.ResponseWriter, q *http.Request, set *files.Set, keep bool) {
	i, ok := fileOf(w, q, set)
	if !ok {
		return
	}
	if err := set.Remove(q.Context(), i.ID, keep); err != nil && !errors.Is(err, backingimage.ErrUnknown) {
		fail(w, err)
	}
}

// errBegun: the answer has begun.
var errBegun = errors.New("the download has ended early")

// downloadChunk is how much is read at once, in bytes.
const downloadChunk = 1 << 20

// give answers with the content of a file: packed, or as it is where the query asks for that.
func give(ctx context.Context, w http.ResponseWriter, q *http.Request, f disk.File, i files.Image) error {
	plain := q.URL.Query().Get("forV2Creation") == "true"
	name := i.ID.Name + ".gz"
	if plain {
		name = i.ID.Name
		w.Header().Set("Content-Length", strconv.FormatInt(i.Record.Size, 10))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+strings.ReplaceAll(name, `"`, "")+`"`)
	if q.Method == http.MethodHead {
		return nil
	}
	connection := http.NewResponseController(w)
	// A write that waits for the client ends when the file is not served any more.
	stop := context.AfterFunc(ctx, func() { _ = connection.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	to := &patientWriter{ctx, w, connection}
	out, finish := io.Writer(to), func() error { return nil }
	if !plain {
		z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
		if err != nil {
			return err
		}
		out, finish = z, z.Close
	}
	if err := errors.Join(copyOut(ctx, out, f, i.Record.Size), ctx.Err()); err != nil {
		return fmt.Errorf("%w: %w", errBegun, err)
	}
	if err := finish(); err != nil {
		return fmt.Errorf("%w: %w", errBegun, err)
	}
	return nil
}

// clientSilence is how long a client may take to read what one write has.
const clientSilence = time.Minute

// patientWriter gives a client some time for each write.
type patientWriter struct {
	ctx        context.Context
	w          io.Writer
	connection *http.ResponseController
}

// Write implements io.Writer.
func (p *patientWriter) Write(b []byte) (int, error) {
	_ = p.connection.SetWriteDeadline(time.Now().Add(clientSilence)) // not every connection has deadlines
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

func copyOut(ctx context.Context, w io.Writer, f disk.File, size int64) error {
	p := alignedBuffer(downloadChunk)
	for at := int64(0); at < size && ctx.Err() == nil; {
		n, err := f.ReadAt(p, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		if _, err := w.Write(p[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// pageSize is the alignment of memory for direct reads.
const pageSize = 4096

func alignedBuffer(n int) []byte {
	p := make([]byte, n+pageSize)
	at := int(-uintptr(unsafe.Pointer(&p[0])) % pageSize)
	return p[at : at+n : at+n]
}
