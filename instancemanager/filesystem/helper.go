package filesystem

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// A thread that waits in the kernel for a volume cannot be killed, and a process ends only with its
// last thread. An instance manager that did the work itself would not end, so that the next one is
// not started, and without that no engine comes for which its thread waits. So a helper does it:
// this program once more, in a session of its own, for whose end nobody has to wait.

// program is this program. Tests have another one.
var program = "/proc/self/exe"

// helperName is the name, argv[0], by which this program knows that it is a helper.
const helperName = "ankole-file-system-helper"

// task is what a helper does, its only argument, as JSON.
type task struct {
	Do        work
	Volume    string
	Freeze    bool          `json:",omitempty"`
	Limit     time.Duration `json:",omitempty"` // how long a freeze may last
	DevicesBy string
}

type work string

const (
	workQuiesce work = "quiesce"
	workThaw    work = "thaw"
	workTrim    work = "trim"
	workRemount work = "remount"
)

// report is what a helper says, a line of JSON each: one with Quiet if it makes a volume quiet, one
// with Late if the freeze ended before it was told to, and one without them at the end.
type report struct {
	Quiet, Late bool   `json:",omitempty"`
	Error       string `json:",omitempty"`
	Kinds       []int  `json:",omitempty"` // of the error, by their places in kinds
	Bytes       int64  `json:",omitempty"`
	Seen        bool   `json:",omitempty"`
}

// kinds are the errors that go through a report.
var kinds = []error{ErrNotMounted, ErrCovered, ErrRefused, ErrInvalid, errFreezing, errThaw, errFormer}

func (r *report) set(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	for i, kind := range kinds {
		if errors.Is(err, kind) {
			r.Kinds = append(r.Kinds, i)
		}
	}
}

// reported is an error of a helper.
type reported struct {
	text  string
	kinds []error
}

// Error implements error.
func (e *reported) Error() string { return e.text }

// Unwrap is for errors.Is.
func (e *reported) Unwrap() []error { return e.kinds }

func (r *report) err() error {
	if r.Error == "" {
		return nil
	}
	e := &reported{text: r.Error}
	for _, i := range r.Kinds {
		if i >= 0 && i < len(kinds) {
			e.kinds = append(e.kinds, kinds[i])
		}
	}
	return e
}

// helper is a helper that runs. Closing in tells it to end what it holds; so does the end of this
// process. out is where it reports.
type helper struct {
	in      io.WriteCloser
	out     io.Closer
	reports *json.Decoder
}

// startHelper starts a helper. It has the lock of the mark, if there is one, as long as it lives.
func startHelper(t task, m *mark) (*helper, error) {
	t.DevicesBy = devicesBy
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: []string{helperName, string(text)},
		SysProcAttr: &unix.SysProcAttr{Setsid: true}}
	if m != nil {
		cmd.ExtraFiles = []*os.File{m.f}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, ours, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	cmd.Stdout = ours
	err = cmd.Start()
	ours.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("process to work on a file system: %w", err), in.Close(), out.Close())
	}
	go func() {
		_ = cmd.Wait() // what it has to say is in its reports; it ends when the kernel lets it
	}()
	return &helper{in: in, out: out, reports: json.NewDecoder(out)}, nil
}

// errEndedEarly: what a helper held it may hold still.
var errEndedEarly = errors.New("process that works on a file system has ended early")

// next returns what the helper says next. errEndedEarly.
func (h *helper) next() (r report, err error) {
	if err := h.reports.Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %w", errEndedEarly, err)
	}
	return r, nil
}

// done has a helper do something and waits for its end, as long as the kernel takes.
func done(t task, m *mark) (r report, err error) {
	if err := checkName(t.Volume); err != nil {
		return r, err
	}
	h, err := startHelper(t, m)
	if err != nil {
		return r, err
	}
	defer h.out.Close()
	defer h.in.Close()
	if r, err = h.next(); err == nil {
		err = r.err()
	}
	return r, err
}

// init makes a helper of a process that was started as one, in whichever program this package is.
func init() {
	if len(os.Args) == 2 && os.Args[0] == helperName {
		os.Exit(helperMain(os.Args[1], os.Stdin, reports(unix.Stdout)))
	}
}

// reports is the descriptor of the pipe that the parent reads. When that is gone a write fails: a
// file of package os would end the process, with what it has frozen.
type reports int

// Write implements io.Writer.
func (r reports) Write(p []byte) (int, error) { return unix.Write(int(r), p) }

// helperMain is the main function of a helper.
func helperMain(text string, in io.Reader, out io.Writer) (status int) {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return 2
	}
	devicesBy = t.DevicesBy
	say := func(r report) { _ = json.NewEncoder(out).Encode(r) } // nobody may be there to hear it
	var last report
	var err error
	switch t.Do {
	case workQuiesce:
		p := &pause{release: make(chan struct{}), limit: t.Limit, late: func() { say(report{Late: true}) }}
		p.ready = func(err error) {
			r := report{Quiet: true}
			r.set(err)
			say(r)
		}
		go func() {
			_, _ = io.Copy(io.Discard, in) // its end counts
			close(p.release)
		}()
		err = quiesce(t.Volume, t.Freeze, p)
	case workThaw:
		last.Seen, err = thaw(t.Volume)
	case workTrim:
		last.Bytes, err = trimVolume(t.Volume)
	case workRemount:
		err = remountVolume(t.Volume)
	default:
		return 2
	}
	last.set(err)
	say(last)
	return 0
}
