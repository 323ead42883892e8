package backingimage

import (
	"errors"
	"fmt"
)

// State of a file, in the reference's words.
type State string

// States. FailedAndCleanup and Unknown are of the control plane alone: the first asks for the
// removal of a failed file, the second says that the process cannot be asked.
const (
	// Pending waits: for its turn, or for a user to upload.
	Pending State = "pending"
	// Starting has its turn: the other side is asked for the content, or a file that was found is
	// looked at.
	Starting State = "starting"
	// InProgress receives the content, or reads what was found.
	InProgress State = "in-progress"
	// ReadyForTransfer is complete in a data source, for a manager to take over.
	ReadyForTransfer State = "ready-for-transfer"
	// Ready is complete, and served.
	Ready State = "ready"
	// Failed has a reason. What was being made is gone; a file that was complete once stays, and is
	// served to nobody, until it is deleted.
	Failed           State = "failed"
	FailedAndCleanup State = "failed-and-cleanup"
	Unknown          State = "unknown"
)

// Errors of events that a user or another process has caused. The state is what it was.
var (
	// ErrRemoving: the file is being removed.
	ErrRemoving = errors.New("the file is being removed; repeat the order when it is gone")
	// ErrNotReady: the file is not complete, or not sound.
	ErrNotReady = errors.New("the file is not ready")
	// ErrUnknown: there is no such file.
	ErrUnknown = errors.New("no such file")
)

// Action is what a process has to do after an event.
type Action string

// Actions. A run is a Make or a Verify; one at most is under way, and its end is told by Made or
// Broken.
const (
	// Make begins a run that makes the file.
	Make Action = "make"
	// Verify begins a run that reads a file that was found, and compares it with its record.
	Verify Action = "verify"
	// Cancel ends the run. Its end is still to be told.
	Cancel Action = "cancel"
	// CancelSends ends the transfers that read the file. Their ends are still to be told.
	CancelSends Action = "cancel sends"
	// Erase removes everything of the file from the disk; Erased tells how that went.
	Erase Action = "erase"
	// Forget drops the file from memory and leaves it on the disk.
	Forget Action = "forget"
)

// Event is what has happened to a file.
type Event interface{ apply(*File) ([]Action, error) }

// Events.
type (
	// Found: a complete file lies on the disk. Checksum is that of its record where the record is
	// of this very content, else empty.
	Found struct{ Checksum string }
	// Ordered: somebody wants the file to be made.
	Ordered struct{}
	// Begun: the run has got its turn.
	Begun struct{}
	// Received: of Total bytes, 0 if that is not known, Done are there.
	Received struct{ Done, Total int64 }
	// Made: the run has ended, and a file of that checksum is complete and durable.
	Made struct{ Checksum string }
	// Broken: the run has ended without a file.
	Broken struct{ Reason string }
	// Damaged: a file that was complete is not what its record says.
	Damaged struct{ Reason string }
	// SendBegun: a transfer begins to read the file.
	SendBegun struct{}
	// SendEnded: a transfer has ended.
	SendEnded struct{}
	// Removed: somebody wants the file to be gone, from memory alone if Keep is set.
	Removed struct{ Keep bool }
	// Erased: what was to be removed is; or it is not, for that reason.
	Erased struct{ Reason string }
)

// File is what a process knows of one file. The zero value is one that it does not know.
type File struct {
	State State
	// Source: this process is a data source, so a file that is made is for a manager to take over.
	Source bool
	// Running: a run is under way. Its bytes so far are Done of Total, which may be unknown (0).
	Running     bool
	Done, Total int64
	// Message says why the file has failed, or what it waits for.
	Message string
	// Checksum is the SHA-512 of a complete file, 128 hexadecimal digits.
	Checksum string
	// Stored: a complete file lies on the disk, sound or not. Whoever reads it has it open, so no
	// other one takes its place before it is deleted.
	Stored bool
	// Sending counts the transfers that read the file.
	Sending int
	// Removing: the file goes as soon as nothing reads or writes it; from memory alone if Keep.
	Removing, Keep bool
}

// On returns the file after an event, and what is to be done. After an error the file is the same.
func (f File) On(e Event) (File, []Action, error) {
	after := f
	actions, err := e.apply(&after)
	if err != nil {
		return f, nil, err
	}
	return after, actions, nil
}

// Known tells whether there is anything to tell of the file.
func (f File) Known() bool { return f.State != "" }

// Complete tells whether the file may be read by others.
func (f File) Complete() bool {
	return (f.State == Ready || f.State == ReadyForTransfer) && !f.Removing
}

// Progress is in percent: 100 for a complete file, 0 while the total is unknown.
func (f File) Progress() int {
	switch {
	case f.State == Ready || f.State == ReadyForTransfer:
		return 100
	case f.Total <= 0:
		return 0
	}
	return int(min(99, f.Done*100/f.Total)) // 100 is for what is checked and durable
}

func (f *File) complete() State {
	if f.Source {
		return ReadyForTransfer
	}
	return Ready
}

func (e Found) apply(f *File) ([]Action, error) {
	if f.Known() {
		return nil, fmt.Errorf("the file is known already, as %s", f.State)
	}
	f.Stored = true
	if e.Checksum != "" {
		f.State, f.Checksum = f.complete(), e.Checksum
		return nil, nil
	}
	f.State, f.Running = Starting, true
	return []Action{Verify}, nil
}

func (Ordered) apply(f *File) ([]Action, error) {
	if f.Removing {
		return nil, ErrRemoving
	}
	if f.Known() && f.State != Failed {
		return nil, nil // under way or there: the same order again
	}
	if f.Stored {
		return nil, fmt.Errorf("%w: %s; delete it first", ErrNotReady, f.Message)
	}
	*f = File{State: Pending, Source: f.Source, Running: true}
	return []Action{Make}, nil
}

func (Begun) apply(f *File) ([]Action, error) {
	if f.Running && f.State == Pending {
		f.State, f.Message = Starting, ""
	}
	return nil, nil
}

func (e Received) apply(f *File) ([]Action, error) {
	if f.Running && (f.State == Starting || f.State == InProgress) {
		f.State, f.Done, f.Total = InProgress, e.Done, e.Total
	}
	return nil, nil
}

func (e Made) apply(f *File) ([]Action, error) {
	if !f.Running {
		return nil, errors.New("nothing was being made")
	}
	f.Running, f.State, f.Checksum, f.Message, f.Stored = false, f.complete(), e.Checksum, "", true
	return f.remove(), nil
}

func (e Broken) apply(f *File) ([]Action, error) {
	if !f.Running {
		return nil, errors.New("nothing was being made")
	}
	f.Running, f.State, f.Message = false, Failed, e.Reason
	return f.remove(), nil
}

func (e Damaged) apply(f *File) ([]Action, error) {
	if f.State != Ready && f.State != ReadyForTransfer {
		return nil, nil
	}
	f.State, f.Message = Failed, e.Reason
	if f.Sending > 0 {
		return []Action{CancelSends}, nil
	}
	return nil, nil
}

func (SendBegun) apply(f *File) ([]Action, error) {
	switch {
	case !f.Known():
		return nil, ErrUnknown
	case f.Removing:
		return nil, ErrRemoving
	case !f.Complete():
		return nil, fmt.Errorf("%w: it is %s", ErrNotReady, f.State)
	}
	f.Sending++
	return nil, nil
}

func (SendEnded) apply(f *File) ([]Action, error) {
	if f.Sending == 0 {
		return nil, errors.New("nothing was being sent")
	}
	f.Sending--
	return f.remove(), nil
}

func (e Removed) apply(f *File) ([]Action, error) {
	if !f.Known() {
		return nil, ErrUnknown
	}
	if f.Removing {
		f.Keep = f.Keep && e.Keep // to be erased is the stronger wish
		return nil, nil
	}
	f.Removing, f.Keep = true, e.Keep
	var actions []Action
	if f.Running {
		actions = append(actions, Cancel)
	}
	if f.Sending > 0 {
		actions = append(actions, CancelSends)
	}
	return append(actions, f.remove()...), nil
}

func (e Erased) apply(f *File) ([]Action, error) {
	if !f.Removing || f.Running || f.Sending > 0 {
		return nil, errors.New("nothing was being removed")
	}
	if e.Reason == "" {
		*f = File{Source: f.Source}
		return nil, nil
	}
	f.State, f.Message, f.Removing, f.Keep = Failed, e.Reason, false, false
	return nil, nil
}

// remove is what follows for a file that is to go and that nothing reads or writes any more.
func (f *File) remove() []Action {
	if !f.Removing || f.Running || f.Sending > 0 {
		return nil
	}
	if f.Keep {
		*f = File{Source: f.Source}
		return []Action{Forget}
	}
	return []Action{Erase}
}

// States are all states that a process can be in, for tables.
func States() []State {
	return []State{"", Pending, Starting, InProgress, ReadyForTransfer, Ready, Failed}
}
