// Package podlog writes the output of containers in the format of the container runtime interface,
// which the kubelet's own reader (and so `kubectl logs`) understands:
//
//	2026-01-02T15:04:05.999999999Z stdout F a whole line
//	2026-01-02T15:04:05.999999999Z stderr P the beginning of a very long line
//
// A file is bounded (package boundedlog).
package podlog

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"ankole.storage/standalone/boundedlog"
)

const (
	// MaxBytes of one file; with the rotated one a container keeps at most twice this.
	MaxBytes = 10 << 20
	// maxLine is the longest line written whole, as in the runtimes: longer ones are cut with tag P.
	maxLine = 16 << 10
)

// File is the log of one container.
type File struct {
	mu     sync.Mutex
	out    *boundedlog.File
	closed bool
	now    func() time.Time
}

// Create begins a new log at path. An existing one becomes <path>.previous, which `kubectl logs
// --previous` shows.
func Create(path string, maxBytes int64) (*File, error) {
	if err := os.Rename(path, PreviousPath(path)); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("container log: %w", err)
	}
	l := &File{out: &boundedlog.File{Path: path, MaxBytes: maxBytes}, now: time.Now}
	if err := l.out.Open(); err != nil {
		return nil, fmt.Errorf("container log: %w", err)
	}
	return l, nil
}

// PreviousPath is where the log of the container's former run is.
func PreviousPath(path string) string { return path + ".previous" }

// Close ends the log. What is written later is lost.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.out.Close()
}

// line writes one line; data has no newline.
func (l *File) line(stream string, tag byte, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	b := make([]byte, 0, len(data)+48)
	b = l.now().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ')
	b = append(b, stream...)
	b = append(b, ' ', tag, ' ')
	b = append(b, data...)
	b = append(b, '\n')
	_, err := l.out.Write(b)
	return err
}

// Stream is the writer of one output of a container ("stdout" or "stderr"). It is not safe for use
// by several goroutines; two streams of one file are.
func (l *File) Stream(name string) *Stream { return &Stream{log: l, name: name} }

// Stream cuts output into lines.
type Stream struct {
	log  *File
	name string
	rest []byte
}

// Write takes output. Failing to log must not stop the container, so errors are swallowed: a full
// disk loses log lines, not Pods.
func (s *Stream) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		i := bytes.IndexByte(s.rest, '\n')
		switch {
		case i >= 0 && i <= maxLine:
			_ = s.log.line(s.name, 'F', s.rest[:i])
			s.rest = s.rest[i+1:]
		case len(s.rest) > maxLine:
			_ = s.log.line(s.name, 'P', s.rest[:maxLine])
			s.rest = s.rest[maxLine:]
		default:
			return len(p), nil
		}
	}
}

// Flush writes a last line that had no newline.
func (s *Stream) Flush() {
	if len(s.rest) > 0 {
		_ = s.log.line(s.name, 'F', s.rest)
		s.rest = nil
	}
}

// Tail returns the text of the last lines of a log, at most max bytes, without the format's
// columns.
func Tail(path string, max int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var out []byte
	for len(data) > 0 {
		data = bytes.TrimSuffix(data, []byte("\n"))
		line := data[bytes.LastIndexByte(data, '\n')+1:]
		data = data[:len(data)-len(line)]
		if parts := bytes.SplitN(line, []byte(" "), 4); len(parts) == 4 {
			line = parts[3]
		}
		if len(out)+len(line)+1 > max {
			break
		}
		out = append(append(append([]byte{}, line...), '\n'), out...)
	}
	return string(out)
}
