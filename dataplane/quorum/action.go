package quorum

import (
	"fmt"
	"strings"
)

// ActionKind is what the engine must do.
type ActionKind uint8

// Actions.
const (
	// AskWitness: read the witness; answer with WitnessRead or WitnessUnavailable.
	AskWitness ActionKind = iota + 1
	// SwapWitness: compare-and-swap Expected to Next; answer with WitnessSwapped,
	// WitnessRefused or WitnessUnavailable.
	SwapWitness
	// Contact: connect to every candidate with Epoch (again, if it was raised); answer each with
	// Answered or NoAnswer.
	Contact
	// Probe: ask every candidate what it has promised, and promise nothing; answer each with
	// ProbeAnswered or NoAnswer.
	Probe
	// WriteRecord: make Record durable on Member; answer with RecordWritten, or Failed.
	WriteRecord
	// WaitLease: wait until the lease of an engine that may still read has ended, then say LeaseOver.
	WaitLease
	// Announce: Epoch is that of the engine whose acknowledgements are the last there are, 0 if
	// that is not certain; say Announced when whoever must know it does. Only with Config.Announce.
	Announce
	// BeginServing: Members serve from now on. A Reason says that a person accepted the loss of
	// data for it.
	BeginServing
	// Committed: the set Members is committed; held acknowledgements of writes that only the
	// dropped ones missed may go.
	Committed
	// Stop: Reason says why; the engine must not acknowledge anything any more.
	Stop
)

// Action is one thing to do.
type Action struct {
	Kind     ActionKind
	Epoch    uint64
	Expected WitnessRecord
	Next     WitnessRecord
	Member   string
	Record   Record
	Members  []string
	Reason   string
	// Fenced: the reason is a newer engine.
	Fenced bool
}

// String is the stable text form used in scenarios and traces.
func (a Action) String() string {
	switch a.Kind {
	case AskWitness:
		return "ask the witness"
	case SwapWitness:
		return fmt.Sprintf("swap the witness: %s => %s", a.Expected, a.Next)
	case Probe:
		return "ask the replicas what they have promised"
	case Contact:
		return "contact the replicas with epoch " + EpochText(a.Epoch)
	case WriteRecord:
		return fmt.Sprintf("write %s to %s", a.Record, a.Member)
	case WaitLease:
		return "wait for the end of the lease: " + a.Reason
	case Announce:
		return "announce that epoch " + EpochText(a.Epoch) + " is followed"
	case BeginServing:
		s := fmt.Sprintf("serve %s from %s", a.Record, strings.Join(a.Members, " "))
		if a.Reason != "" {
			s += "; " + a.Reason
		}
		return s
	case Committed:
		return fmt.Sprintf("committed %s", a.Record)
	case Stop:
		if a.Fenced {
			return "stop, fenced: " + a.Reason
		}
		return "stop: " + a.Reason
	}
	return fmt.Sprintf("action %d", a.Kind)
}

// String is the stable text form: "epoch 3 of e1, e2 g7 {a b}".
func (w WitnessRecord) String() string {
	if w.Epoch == 0 {
		return "nothing"
	}
	return fmt.Sprintf("epoch %s of %s, %s", EpochText(w.Epoch), w.Engine, w.Record)
}
