package process

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ankole.storage/host/logwriter"
)

const (
	// maxLogSize is where a log file becomes <name>.log.1, replacing the one before: at most twice
	// this much per name.
	maxLogSize = 16 << 20
	// maxLogFiles bounds the log files of processes that are gone; the oldest go first. A node
	// holds some hundred instances at most.
	maxLogFiles = 1000
	// maxLine bounds one line of a log; longer ones are split.
	maxLine = 16 << 10

	rotatedSuffix = ".1"
)

// logs holds the log files, one for each name. A replacement shares the file of the process it
// replaces.
type logs struct {
	dir     string
	maxSize int64
	// echo is the Pod's output. When nobody reads that, lines are dropped there: an engine must not
	// stand still for a log.
	echo *logwriter.Writer

	mu      sync.Mutex
	open    map[string]*logFile
	readers int

	pruning sync.Mutex
}

func newLogs(dir string, maxSize int64, output io.Writer) (*logs, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory for instance logs: %w; name another one with --logs-dir", err)
	}
	return &logs{dir: dir, maxSize: maxSize, echo: logwriter.New(output), open: map[string]*logFile{}}, nil
}

func (l *logs) path(name string) string { return filepath.Join(l.dir, name+".log") }

// logWait is how long the start of a process waits for its log, and its end for the last lines. A
// disk that hangs has a log's writer wait for ever; it must not keep a process from being started,
// or from being seen to end. So nobody waits for a disk with the lock of all logs held, and only
// the goroutines of one log with that of it.
const logWait = 2 * time.Second

// acquire opens the log of a name for appending. Each acquire needs one release. An error says why
// there is no file at the moment: lines are shown in the Pod's output alone until there is.
func (l *logs) acquire(name string) (f *logFile, err error) {
	l.mu.Lock()
	f = l.open[name]
	if f != nil {
		f.refs++
		l.mu.Unlock()
		return f, nil
	}
	f = &logFile{owner: l, name: name, refs: 1}
	l.open[name] = f
	l.mu.Unlock()
	opened := make(chan error, 1)
	go func() { opened <- l.first(f) }()
	select {
	case err := <-opened:
		return f, err
	case <-time.After(logWait):
		return f, fmt.Errorf("open log of process %s: the disk at %s has not answered for %s", name, l.dir, logWait)
	}
}

// first opens a log that nobody writes yet, and makes room for it.
func (l *logs) first(f *logFile) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.pruning.Lock()
	l.prune()
	l.pruning.Unlock()
	if f.closed {
		return nil
	}
	return f.reopen()
}

// release ends what one acquire began.
func (l *logs) release(f *logFile) {
	l.mu.Lock()
	f.refs--
	last := f.refs == 0
	if last {
		delete(l.open, f.name)
	}
	l.mu.Unlock()
	if !last {
		return
	}
	closed := make(chan struct{})
	go func() {
		f.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(logWait):
	}
}

// prune removes the oldest logs of names that are not open, once there are too many. Only one
// goroutine at a time does.
func (l *logs) prune() {
	names, err := filepath.Glob(filepath.Join(l.dir, "*.log*"))
	if err != nil || len(names) <= maxLogFiles {
		return
	}
	age := map[string]int64{}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			age[name] = info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(age[a], age[b]) })
	for _, name := range names[:len(names)-maxLogFiles] {
		base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), rotatedSuffix), ".log")
		l.mu.Lock()
		open := l.open[base] != nil
		l.mu.Unlock()
		if !open {
			os.Remove(name)
		}
	}
}

// eachLine splits r into lines of at most maxLine bytes.
func eachLine(r io.Reader, line func(string) error) error {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		text, _, err := b.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// Protobuf strings are UTF-8; a process may print anything.
		if err := line(strings.ToValidUTF8(string(text), "\uFFFD")); err != nil {
			return err
		}
	}
}

// logFile is the log of one name. Lines of several writers do not mix.
type logFile struct {
	owner *logs
	name  string
	refs  int // under owner.mu

	mu   sync.Mutex
	file *os.File // nil while there can be none
	size int64
	// rotations counts those since it was opened; closed says that nobody writes any more. Those
	// who wait for either, or for a line, do so on news, which is nil while nobody does.
	rotations int
	closed    bool
	news      chan struct{}
}

// close ends the writing. Followers read what is left.
func (f *logFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		f.file.Close()
	}
	f.closed = true
	f.tell()
}

// tell wakes those who wait for news. The lock is held.
func (f *logFile) tell() {
	if f.news != nil {
		close(f.news)
		f.news = nil
	}
}

func (f *logFile) reopen() error {
	file, err := os.OpenFile(f.owner.path(f.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of process %s: %w", f.name, err)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return fmt.Errorf("open log of process %s: %w", f.name, err)
	}
	f.file, f.size = file, info.Size()
	return nil
}

// writeLine appends a line and shows it in the Pod's output. A log that cannot be written, or made
// (disk full), loses the line; the process goes on.
func (f *logFile) writeLine(line string) error {
	_, _ = f.owner.echo.Write([]byte("[" + f.name + "] " + line + "\n")) // never an error
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed { // the end of the process has not waited for this line
		return nil
	}
	if f.file == nil {
		if f.reopen() != nil {
			return nil
		}
		f.rotations++ // who reads looks for another file
	}
	if f.size > 0 && f.size+int64(len(line)) >= f.owner.maxSize {
		f.rotate()
	}
	n, _ := f.file.WriteString(line + "\n")
	f.size += int64(n)
	f.tell()
	return nil
}

func (f *logFile) rotate() {
	old := f.file
	path := f.owner.path(f.name)
	// Where somebody has removed it, or the next one could not be made the last time, there is
	// nothing to rename.
	if err := os.Rename(path, path+rotatedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := f.reopen(); err == nil {
		old.Close()
		f.rotations++
	}
}
