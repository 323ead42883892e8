package quorum

import (
	"fmt"
	"slices"
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

// Known is what a start has to go by.
type Known struct {
	// Witness is the record before this engine's epoch was granted.
	Witness WitnessRecord
	// Void says that some replica has promised a newer epoch than the witness ever granted, so that
	// the witness must have lost its memory (a restored cluster state) and cannot vouch for
	// anything.
	Void    bool
	Answers []Answer
	// Silent is how many candidates did not answer.
	Silent int
	// InSync are the members that the control plane says hold the same, where there is no record.
	InSync []string
}

// Decision is the outcome of the start rule.
type Decision struct {
	Verdict Verdict
	// Base is the highest record heard; the first proposal supersedes it.
	Base Record
	// Fresh are the replicas to serve from, sorted.
	Fresh []string
	// Stale are answering replicas that must be rebuilt first, sorted.
	Stale []string
	// Replaces is for the first proposal's record.
	Replaces []string
	// Reason explains Refuse.
	Reason string
}

// Decide applies the start rule. With a void witness, or without one, nobody vouches for the
// highest record heard: every member of it is needed, and, while it is not known to be agreed,
// everybody whom it replaces, since one of those may know of another record that was agreed
// instead.
func Decide(k Known) Decision {
	for _, a := range k.Answers {
		k.Void = k.Void || a.Record.shows(k.Witness)
	}
	told := k.Answers
	k.forgetNeverAgreed()
	base := k.base()
	switch {
	case k.Void && base.Accepted && !base.Agreed:
		return Decision{Base: base, Reason: fmt.Sprintf("record %s begins with a person's decision, and without the witness "+
			"nobody knows whether it was agreed; heard: %s; wait for the witness, or decide again: %s",
			base, heard(told), acceptLoss)}
	case !base.Valid():
		return decideFounding(&k)
	case k.neverBegun():
		d := Decision{Verdict: Found, Base: base}
		for _, a := range k.Answers {
			d.Fresh = append(d.Fresh, a.Member)
		}
		slices.Sort(d.Fresh)
		d.Replaces = without(union(base.Members, base.Replaces), d.Fresh)
		return d
	}
	d := Decision{Base: base}
	whole := map[string]bool{}
	for _, a := range k.Answers {
		whole[a.Member] = a.Record.Valid() && !a.Rebuilding
		if a.fresh(base) && !k.Witness.outdated(&a) {
			d.Fresh = append(d.Fresh, a.Member)
		} else {
			d.Stale = append(d.Stale, a.Member)
		}
	}
	slices.Sort(d.Fresh)
	slices.Sort(d.Stale)
	need, missing := half(len(base.Members)), without(base.Members, d.Fresh)
	if k.Void {
		need = len(base.Members)
		for _, m := range base.Replaces {
			if !whole[m] {
				missing = append(missing, m)
			}
		}
	}
	if len(d.Fresh) < need || (k.Void && len(missing) > 0) {
		k.Answers = told
		d.Reason = refusal(&k, base, need, missing)
		return d
	}
	d.Verdict = Serve
	d.Replaces = without(union(base.Members, base.Replaces), d.Fresh)
	return d
}

// forgetNeverAgreed makes records void that give up what others have, on a person's decision, and
// were never agreed: the engine ended before the witness, which has the first record of each epoch
// before anything is served, had it. The decision was for that start. Any other record of a start
// is as good as the one that it goes on from, agreed or not.
func (k *Known) forgetNeverAgreed() {
	if k.Void {
		return
	}
	k.Answers = slices.Clone(k.Answers)
	for i := range k.Answers {
		if r := &k.Answers[i].Record; r.Accepted && !r.Agreed && granted(r.Epoch) > granted(k.Witness.Record.Epoch) {
			*r = Record{}
		}
	}
}

// neverBegun reports that records were proposed and none was ever agreed: the witness, which has
// the first one before anything is served, holds none. Everybody must answer; that nothing was
// written anywhere is asked for as well, in case the witness was set back to a time before the
// volume began.
func (k *Known) neverBegun() bool {
	return !k.Void && k.Silent == 0 && !k.Witness.Record.Valid() && !slices.ContainsFunc(k.Answers, func(a Answer) bool {
		return !a.Empty || a.Rebuilding
	})
}

// base is the highest record of the witness and all answers. If somebody knows that it was agreed,
// it is.
func (k *Known) base() Record {
	base := Record{}
	if !k.Void {
		base = k.Witness.Record
	}
	for _, a := range k.Answers {
		if !a.Record.Valid() {
			continue
		}
		if c := a.Record.Compare(base); c > 0 || (c == 0 && a.Record.Agreed) {
			base = a.Record
		}
	}
	return base
}

// shows reports whether the record proves that the witness has forgotten something: it was never
// told of the epoch, or not of its first record, without which nothing of that epoch is agreed. The
// second holds even after other starts have raised the witness's epoch.
func (r Record) shows(w WitnessRecord) bool {
	return r.Valid() && (granted(r.Epoch) > granted(w.Epoch) || (r.Agreed && granted(r.Epoch) > granted(w.Record.Epoch)))
}

// without returns the sorted members of a that are not in b.
func without(a, b []string) []string {
	var out []string
	for _, m := range a {
		if !slices.Contains(b, m) {
			out = append(out, m)
		}
	}
	return out
}

// union returns the members of a and b, sorted.
func union(a, b []string) []string {
	out := append(slices.Clone(a), without(b, a)...)
	slices.Sort(out)
	return out
}
