package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Part is the name of the one part of an upload.
const Part = "chunk"

// Upload is the content that a user sends, as multipart/form-data with one part, as a reader. Its
// size is announced, so that a cut is seen.
type Upload struct {
	r          io.Reader
	size, done int64
}

// OpenUpload finds the part in a request whose query has the size. A request that is no upload is
// ErrRefused.
func OpenUpload(r *http.Request) (*Upload, error) {
	size, err := strconv.ParseUint(r.URL.Query().Get("size"), 10, 63)
	if err != nil || size == 0 {
		return nil, fmt.Errorf("%w: query parameter size is %.40q; give the size of the file in bytes", ErrRefused,
			r.URL.Query().Get("size"))
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, fmt.Errorf("%w: the file must come as multipart/form-data with one part %q: %w", ErrRefused, Part, err)
	}
	part, err := parts.NextPart()
	if err != nil {
		return nil, fmt.Errorf("%w: the request has no part: %w", ErrRefused, err)
	}
	if part.FormName() != Part {
		return nil, fmt.Errorf("%w: the first part is %.40q; the file must be in part %q", ErrRefused, part.FormName(), Part)
	}
	return &Upload{r: part, size: int64(size)}, nil
}

// Size is the announced size in bytes.
func (u *Upload) Size() int64 { return u.size }

// Read implements io.Reader. A part that is shorter or longer than announced is an error.
func (u *Upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.done += int64(n)
	switch {
	case u.done > u.size:
		return n, fmt.Errorf("%w: the upload has more than the %d bytes that were announced", ErrRefused, u.size)
	case err == nil:
		return n, nil
	case errors.Is(err, context.Canceled):
		return n, err
	case u.done == u.size && errors.Is(err, io.EOF):
		return n, io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, fmt.Errorf("the upload was cut after %d of %d bytes: upload the file again: %w", u.done, u.size, err)
}
