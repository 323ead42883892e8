package quorum

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is what a start may do.
type Verdict uint8

// Verdicts of Decide.
const (
	// Refuse: not enough is known; the reason says what is missing. More answers may change it.
	Refuse Verdict = iota
	// Found: no replica holds anything; the volume begins with the answering replicas as members.
	Found
	// Serve: the fresh replicas know every acknowledged write.
	Serve
)

// Decision is the outcome of the start rule.
type Decision struct {
	Verdict Verdict
	// Base is the highest record heard; the first proposal supersedes it.
	Base Record
	// Fresh are the replicas to serve from, sorted.
	Fresh []string
	// Stale are answering replicas that must be rebuilt first, sorted.
	Stale []string
	// Reason explains Refuse.
	Reason string
}

// Decide applies the start rule to what was heard. witness is the record before this engine's epoch was granted;
// void says that some replica has promised a newer epoch than the witness ever granted, so that the witness must have
// lost its memory (a restored cluster state) and cannot vouch for anything: then every member of the highest record is
// needed. A record of such an epoch says the same.
func Decide(witness WitnessRecord, void bool, answers []Answer) Decision {
	for _, a := range answers {
		void = void || (a.Record.Valid() && a.Record.Epoch > witness.Epoch)
	}
	base := Record{}
	if !void {
		base = witness.Record
	}
	for _, a := range answers {
		if a.Record.Valid() && a.Record.Compare(base) > 0 {
			base = a.Record
		}
	}
	if !base.Valid() {
		return decideFounding(answers)
	}
	d := Decision{Base: base}
	for _, a := range answers {
		if a.fresh(base) {
			d.Fresh = append(d.Fresh, a.Member)
		} else {
			d.Stale = append(d.Stale, a.Member)
		}
	}
	slices.Sort(d.Fresh)
	slices.Sort(d.Stale)
	need := half(len(base.Members))
	if void {
		need = len(base.Members)
	}
	if len(d.Fresh) < need {
		d.Reason = refusal(d, need, void)
		return d
	}
	d.Verdict = Serve
	return d
}

func refusal(d Decision, need int, void bool) string {
	var missing []string
	for _, m := range d.Base.Members {
		if !slices.Contains(d.Fresh, m) {
			missing = append(missing, m)
		}
	}
	why := ""
	if void {
		why = " because the witness is older than the replicas"
	}
	return fmt.Sprintf("record %s needs %d of its members%s, heard %d; missing: %s", d.Base, need, why, len(d.Fresh), strings.Join(missing, ", "))
}

// decideFounding handles a volume without any record: blank replicas found it; one directory with data of unknown
// history may be taken as it is only if it is alone, since nobody can tell which of several is ahead.
func decideFounding(answers []Answer) Decision {
	var blank, unknown []string
	for _, a := range answers {
		switch {
		case a.Rebuilding:
		case a.Blank:
			blank = append(blank, a.Member)
		default:
			unknown = append(unknown, a.Member)
		}
	}
	slices.Sort(blank)
	slices.Sort(unknown)
	switch {
	case len(unknown) == 1:
		return Decision{Verdict: Found, Fresh: unknown, Stale: blank}
	case len(unknown) > 1:
		return Decision{Reason: fmt.Sprintf("directories %s hold data of unknown history: name the one to trust", strings.Join(unknown, ", "))}
	case len(blank) > 0:
		return Decision{Verdict: Found, Fresh: blank}
	}
	return Decision{Reason: "no replica answered"}
}
