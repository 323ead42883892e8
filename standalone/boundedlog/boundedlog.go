// Package boundedlog is a log file with a bound on its size: a full one is renamed to <name>.1,
// replacing the one before, so that both together have at most twice the bound.
package boundedlog

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// File appends to the file at Path. What is written at once stays together.
type File struct {
	Path     string
	MaxBytes int64

	mu   sync.Mutex
	f    *os.File // nil before the first use, after Close, and while there can be none
	size int64
}

// Open makes the file where there is none. Write does so too.
func (l *File) Open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open()
}

func (l *File) open() error {
	if l.f != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o755); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	f, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("log: %w", err)
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write appends p, to a new file if this one would become too large.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return 0, err
	}
	if l.size > 0 && l.size+int64(len(p)) > l.MaxBytes {
		if err := os.Rename(l.Path, l.Path+".1"); err != nil && !os.IsNotExist(err) {
			return 0, fmt.Errorf("log: rotate: %w", err)
		}
		_ = l.close()
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

// Close ends the use of the file. Who writes later opens it again.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close()
}

func (l *File) close() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
