// Package logs reads what the processes of a test have written, once they have ended, and fails the
// test for what no process may write: a panic, a fatal error of the Go runtime, a data race, a
// container that was restarted. A volume can survive all of these, and a test that only looks at
// the volume would pass.
//
// What a test causes itself it announces with Permit. Whoever starts processes (package test/rig,
// package testcluster, the tests of the instance manager) calls Check at the end of the test.
package logs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ankole.storage/test/wait"
)

// signs are what no log may have. A restart is a line of the node agent in package standalone/node;
// an account of the system that is refused something lacks a right in deploy/manifests.
var signs = regexp.MustCompile(
	`\bpanic: |\bfatal error: |WARNING: DATA RACE|Observed a panic|\bunexpected fault address\b|` +
		`^SIG(?:SEGV|BUS|ABRT|QUIT|ILL|FPE): |container started.* restarts=[1-9]|` +
		`is forbidden: User \\?"system:serviceaccount:longhorn-system:longhorn-(?:service-account|csi)\\?"`,
)

// words are in every line that signs matches and that does not begin with SIG. Searching for words
// is a hundred times as fast, and the logs of a test have a million lines.
var words = [][]byte{[]byte("panic"), []byte("fatal error: "), []byte("DATA RACE"), []byte("unexpected fault address"),
	[]byte(" restarts="), []byte("is forbidden: ")}

// mayBeSign is false for most lines that signs does not match, and for no other one.
func mayBeSign(line []byte) bool {
	return bytes.HasPrefix(line, []byte("SIG")) ||
		slices.ContainsFunc(words, func(word []byte) bool { return bytes.Contains(line, word) })
}

const (
	// after is how many lines behind a sign belong to it: enough of a stack to know where it was.
	after = 40
	// maxLine bounds a line in bytes; what is longer is read in pieces.
	maxLine = 1 << 20
	// maxFaults bounds what is reported of one test; the first tells most.
	maxFaults = 5
)

// Fault is a place in a log that should not be there.
type Fault struct {
	File string
	// Line counts from 1.
	Line int
	// Text is that line and some that follow it.
	Text string
}

func (f Fault) String() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Search returns the faults in one log. A sign within the lines that belong to another one is not
// counted again.
func Search(name string, r io.Reader) ([]Fault, error) {
	var all []Fault
	left := 0 // lines that still belong to the last fault
	in := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		line = bytes.TrimRight(line, "\n")
		switch {
		case left > 0:
			all[len(all)-1].Text += "\n" + string(line)
			left--
		case mayBeSign(line) && signs.Match(line):
			all = append(all, Fault{File: name, Line: n, Text: string(line)})
			if left = after; bytes.Contains(line, []byte("container started")) {
				left = 0 // one line of a log, and no stack
			}
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return all, err
		}
	}
}

// Watch is what a test permits its processes to write. The zero value permits nothing.
type Watch struct {
	mu        sync.Mutex
	permitted []*regexp.Regexp
}

// Permit announces faults that the test causes: those whose text matches the pattern are none.
func (w *Watch) Permit(pattern string) {
	re := regexp.MustCompile(pattern)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.permitted = append(w.permitted, re)
}

// Check reads files, and every file whose name ends in .log below folders, and fails the test for
// each fault that was not announced. What is not there has said nothing.
func (w *Watch) Check(t wait.Tester, paths ...string) {
	t.Helper()
	var faults []Fault
	for _, p := range paths {
		found, err := below(p)
		if err != nil {
			t.Errorf("logs of %s: %v", p, err)
		}
		faults = append(faults, found...)
	}
	faults = slices.DeleteFunc(faults, w.permits)
	if len(faults) > 0 {
		wait.Final(t, "what processes wrote")
	}
	for i, f := range faults {
		if i == maxFaults {
			t.Errorf("and %d faults more in logs", len(faults)-i)
			return
		}
		t.Errorf("a process wrote what none may: %v", f)
	}
}

func (w *Watch) permits(f Fault) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.permitted, func(re *regexp.Regexp) bool { return re.MatchString(f.Text) })
}

// below searches a file, or the logs below a folder.
func below(path string) (all []Fault, err error) {
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a log that was rotated away meanwhile, or never written
		}
		if err != nil || !d.Type().IsRegular() || name != path && !strings.HasSuffix(name, ".log") {
			return err
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		found, err := Search(name, f)
		all = append(all, found...)
		return err
	})
	return all, err
}
