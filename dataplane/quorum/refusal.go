package quorum

import (
	"fmt"
	"slices"
	"strings"
)

// acceptLoss is how a user goes on with copies that lack something. Members are named as their
// directories.
const acceptLoss = "ankole volume accept-data-loss VOLUME --copy DIRECTORY"

// refusal says what a start lacks: which members are missing, what everybody who answered has, and
// what can be done.
func refusal(k *Known, base Record, need int, missing []string) string {
	var b strings.Builder
	if k.Void {
		fmt.Fprintf(&b,
			"the witness is older than the replicas, so record %s needs all of its members and of those it replaces", base)
	} else {
		fmt.Fprintf(&b, "record %s needs %d of its members", base, need)
	}
	fmt.Fprintf(&b, "; missing: %s; heard: %s", joined(missing), heard(k.Answers))
	for i := range k.Answers {
		if a := &k.Answers[i]; k.Witness.outdated(a) {
			fmt.Fprintf(&b, "; the directory of %s is an older state of it: it had stored %s", a.Member, k.Witness.Record)
		}
	}
	b.WriteString("; bring back the nodes and disks of those that are missing, or accept the loss of what only they have: " +
		acceptLoss)
	return b.String()
}

// heard lists the answers in a stable order.
func heard(answers []Answer) string {
	if len(answers) == 0 {
		return "nobody"
	}
	var out []string
	for _, a := range answers {
		out = append(out, a.String())
	}
	slices.Sort(out)
	return joined(out)
}

// String is what the replica is worth: "a (e3 g7 {a b})", "b (blank)".
func (a Answer) String() string {
	what := "unknown history"
	switch {
	case a.Rebuilding:
		what = "incomplete copy"
	case a.Record.Valid():
		what = a.Record.String()
	case a.Blank:
		what = "blank"
	}
	return fmt.Sprintf("%s (%s)", a.Member, what)
}

// joined lists names for a person.
func joined(names []string) string { return strings.Join(names, ", ") }

// trust decides as a person has: only the members named count. Of several the highest record is the
// base; a directory without a record, an incomplete copy, or one that has only stored the record of
// others, can only be trusted alone, since nothing says how it relates to others.
func trust(base Record, answers []Answer, names []string) Decision {
	d := Decision{Base: base}
	var chosen []Answer
	for _, a := range answers {
		if slices.Contains(names, a.Member) {
			chosen = append(chosen, a)
		} else {
			d.Stale = append(d.Stale, a.Member)
		}
	}
	if missing := without(names, members(chosen)); len(missing) > 0 {
		return Decision{Reason: fmt.Sprintf("%s is to be trusted and does not answer; heard: %s", joined(missing),
			heard(answers))}
	}
	best := (&Known{Void: true, Answers: chosen}).base()
	for _, a := range chosen {
		switch {
		case a.Blank && !a.Record.Valid():
			return Decision{Reason: fmt.Sprintf("%s is to be trusted and holds nothing; heard: %s", a.Member, heard(answers))}
		case len(chosen) == 1, a.fresh(best):
			d.Fresh = append(d.Fresh, a.Member)
		case !a.Record.Has(a.Member) || a.Rebuilding:
			return Decision{Reason: fmt.Sprintf("%s can only be trusted alone: nothing says how old it is; name one "+
				"member; heard: %s", a, heard(answers))}
		default:
			d.Stale = append(d.Stale, a.Member)
		}
	}
	slices.Sort(d.Fresh)
	slices.Sort(d.Stale)
	d.Verdict = Serve
	d.Replaces = without(union(base.Members, base.Replaces), d.Fresh)
	return d
}

func members(answers []Answer) []string {
	var out []string
	for _, a := range answers {
		out = append(out, a.Member)
	}
	return out
}

// decideFounding handles a volume without any record: blank replicas found it; one directory with
// data of unknown history may be taken as it is only if it is alone, since nobody can tell which of
// several is ahead, but the control plane. Whoever is silent may hold the data.
func decideFounding(k *Known) Decision {
	var blank, unknown []string
	for _, a := range k.Answers {
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
	why := k.notInSync()
	switch {
	case len(k.Answers) == 0:
		return Decision{Reason: fmt.Sprintf("no replica answered of %d; bring back their nodes and disks", k.Silent)}
	case len(k.InSync) > 0 && why == "":
		fresh := k.ahead()
		return Decision{Verdict: Found, Fresh: fresh, Stale: without(union(unknown, blank), fresh)}
	case len(unknown) > 1:
		return Decision{Reason: fmt.Sprintf("nobody knows the volume's members, and %s hold data of unknown history%s: "+
			"name the one to go on with by: %s", joined(unknown), why, acceptLoss)}
	case k.Silent > 0:
		return Decision{Reason: fmt.Sprintf("nobody knows the volume's members yet, so every replica must answer; "+
			"silent: %d; heard: %s; bring back the nodes and disks of those that are silent", k.Silent, heard(k.Answers))}
	case len(unknown) == 1:
		return Decision{Verdict: Found, Fresh: unknown, Stale: blank}
	case len(blank) > 0:
		return Decision{Verdict: Found, Fresh: blank}
	}
	return Decision{Reason: "no replica holds a usable copy; heard: " + heard(k.Answers) +
		"; copies that are blank or incomplete cannot be used: restore the data from elsewhere"}
}

// ahead are those of whom the control plane says that they hold the same, without the ones whose
// revision counter is behind, if all have one: the engine that has counted takes them for failed,
// and the control plane may not have heard of it.
func (k *Known) ahead() []string {
	var counters []int64
	most := map[int64][]string{}
	for _, a := range k.Answers {
		if slices.Contains(k.InSync, a.Member) {
			counters = append(counters, a.Counter)
			most[a.Counter] = append(most[a.Counter], a.Member)
		}
	}
	if slices.Contains(counters, 0) {
		return union(k.InSync, nil)
	}
	return union(most[slices.Max(counters)], nil)
}

// notInSync says why those of whom the control plane says so are not known to hold the same: each
// of them has to answer, to hold data, and to have been closed by whoever had it before. After a
// crash the control plane may not have heard yet that one of them was left behind.
func (k *Known) notInSync() string {
	for _, name := range k.InSync {
		i := slices.IndexFunc(k.Answers, func(a Answer) bool { return a.Member == name })
		switch {
		case i < 0:
			return fmt.Sprintf(" (%s does not answer)", name)
		case k.Answers[i].Blank || k.Answers[i].Rebuilding:
			return fmt.Sprintf(" (%s does not)", &k.Answers[i])
		case !k.Answers[i].Closed:
			return fmt.Sprintf(" (%s was not closed, so it may lack what others have)", name)
		}
	}
	return ""
}
