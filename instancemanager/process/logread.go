package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

const (
	// maxLogReaders bounds clients that read logs at the same time: each has up to three open files
	// and a buffer.
	maxLogReaders = 128
	// readSize is how much of a log is read at once.
	readSize = 64 << 10

	// gapLine stands where lines were rotated away before a slow follower came to them.
	gapLine = "[lines are missing here: the log was rotated faster than it was read]"
)

// LogOptions say which part of a log is wanted.
type LogOptions struct {
	// Follow goes on with lines as they come, until the process has ended.
	Follow bool
	// Tail begins with the last so many lines; 0 begins with the first that is kept.
	Tail int64
}

// read calls line for each line of a name's log, oldest first.
func (l *logs) read(ctx context.Context, name string, o LogOptions, line func(string) error) error {
	if o.Tail < 0 {
		return fmt.Errorf("%w: the last %d lines of the log of process %s", ErrInvalid, o.Tail, name)
	}
	f, err := l.enter(name)
	if err != nil {
		return err
	}
	defer l.leave()
	r := &logReader{logs: l, name: name, file: f}
	defer r.close()
	if err := r.open(); err != nil {
		return err
	}
	r.lines.line = func(text string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return line(text)
	}
	if o.Tail > 0 {
		if err := r.skipTo(o.Tail); err != nil {
			return err
		}
	}
	if !o.Follow || f == nil {
		return r.finish()
	}
	return r.follow(ctx)
}

// enter admits a reader and returns the log file if somebody writes it, nil otherwise.
func (l *logs) enter(name string) (*logFile, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers >= maxLogReaders {
		return nil, fmt.Errorf("%w: %d clients read logs, which is the limit; try again later", ErrTooMany, maxLogReaders)
	}
	l.readers++
	return l.open[name], nil
}

func (l *logs) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
}

// logReader reads one log: what is kept of it, and then, file by file, what is added.
type logReader struct {
	logs *logs
	name string
	// file is the log that somebody writes, or nil.
	file *logFile
	// files are to be read, oldest first. rotations is how often file had been rotated when the
	// last was opened.
	files     []*os.File
	rotations int
	// size is how long the present file was when it was opened first: what is added later is for
	// followers only, or a reader might never come to an end.
	size  int64
	lines lineCutter
}

func (r *logReader) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// open opens what there is of the log: the rotated file and the present one.
func (r *logReader) open() error {
	if r.file != nil {
		// No rotation between the two.
		r.file.mu.Lock()
		defer r.file.mu.Unlock()
		r.rotations = r.file.rotations
	}
	for _, path := range []string{r.logs.path(r.name) + rotatedSuffix, r.logs.path(r.name)} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read log of process %s: %w", r.name, err)
		}
		r.files = append(r.files, f)
	}
	if len(r.files) == 0 {
		return fmt.Errorf("%w: %s has no log", ErrNotFound, r.name)
	}
	info, err := r.files[len(r.files)-1].Stat()
	if err != nil {
		return fmt.Errorf("read log of process %s: %w", r.name, err)
	}
	r.size = info.Size()
	return nil
}

// kept is what a file held when it was opened.
func (r *logReader) kept(i int) io.Reader {
	if i == len(r.files)-1 {
		return io.LimitReader(r.files[i], r.size)
	}
	return r.files[i]
}

// skipTo counts the lines there are and has all but the last n left out.
func (r *logReader) skipTo(n int64) error {
	var all int64
	count := lineCutter{line: func(string) error { all++; return nil }}
	for i, f := range r.files {
		if err := count.readAll(r.kept(i)); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	if err := count.flush(); err != nil {
		return err
	}
	r.lines.skip = max(all-n, 0)
	return nil
}

// drain sends what the open files hold now; the last one stays open.
func (r *logReader) drain() error {
	for {
		if err := r.lines.readAll(r.files[0]); err != nil {
			return err
		}
		if len(r.files) == 1 {
			return nil
		}
		r.files[0].Close()
		r.files = r.files[1:]
	}
}

// finish sends what there was.
func (r *logReader) finish() error {
	for i := range r.files {
		if err := r.lines.readAll(r.kept(i)); err != nil {
			return err
		}
	}
	return r.lines.flush()
}

// follow sends what there is and what comes until nobody writes the log any more.
func (r *logReader) follow(ctx context.Context) error {
	for {
		// The state from before reading: what happens meanwhile is then seen the next time.
		news, rotations, closed := r.file.state()
		if err := r.drain(); err != nil {
			return err
		}
		switch {
		case rotations != r.rotations:
			if err := r.reopen(); err != nil {
				return err
			}
			continue
		case closed:
			return r.lines.flush()
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reopen goes on after a rotation, or several, or with a log that could not be written for a while;
// the file before has been read to its end.
func (r *logReader) reopen() error {
	before, last := r.rotations, r.files[0]
	if err := r.open(); err != nil {
		return err
	}
	rotations, files := r.rotations-before, r.files[1:]
	// What has been read is the file before, wherever it is now, and what is older than that.
	read := slices.IndexFunc(files, func(f *os.File) bool { return sameFile(f, last) }) + 1
	if read == 0 && rotations == 1 && len(files) == 2 {
		read = 1 // the rotated one is older: what was rotated was removed
	}
	for _, f := range files[:read] {
		f.Close()
	}
	r.files = slices.Delete(r.files, 1, 1+read)
	if rotations > 2 {
		return r.lines.line(gapLine)
	}
	return nil
}

func sameFile(a, b *os.File) bool {
	x, errA := a.Stat()
	y, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// state returns what closes at the next change, how often the file has been rotated, and whether
// its writing has ended.
func (f *logFile) state() (news <-chan struct{}, rotations int, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.news == nil {
		f.news = make(chan struct{})
	}
	return f.news, f.rotations, f.closed
}

// lineCutter cuts what it reads into lines of at most maxLine bytes.
type lineCutter struct {
	line func(string) error
	// skip is how many lines are left out first.
	skip    int64
	partial []byte
	buffer  []byte
}

// readAll reads to the present end of r. A line without its end waits for the rest.
func (c *lineCutter) readAll(r io.Reader) error {
	if c.buffer == nil {
		c.buffer = make([]byte, readSize)
	}
	for {
		n, err := r.Read(c.buffer)
		if err := c.cut(c.buffer[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *lineCutter) cut(p []byte) error {
	for len(p) > 0 {
		room := min(maxLine-len(c.partial), len(p))
		end := bytes.IndexByte(p[:room], '\n')
		if end < 0 {
			c.partial = append(c.partial, p[:room]...)
			p = p[room:]
			if len(c.partial) < maxLine {
				continue
			}
		} else {
			c.partial = append(c.partial, p[:end]...)
			p = p[end+1:]
		}
		if err := c.emit(); err != nil {
			return err
		}
	}
	return nil
}

// flush sends a line that has no end.
func (c *lineCutter) flush() error {
	if len(c.partial) == 0 {
		return nil
	}
	return c.emit()
}

func (c *lineCutter) emit() error {
	// Protobuf strings are UTF-8; a process may print anything.
	text := strings.ToValidUTF8(string(c.partial), "\uFFFD")
	c.partial = c.partial[:0]
	if c.skip > 0 {
		c.skip--
		return nil
	}
	return c.line(text)
}
