package rebuild

import "slices"

// HeadName is how entries call the head, which has no snapshot name.
const HeadName = "volume-head"

// Mode says how a layer of the target comes to equal the source's.
type Mode uint8

// Modes.
const (
	// Skip: it is equal.
	Skip Mode = iota
	// Regions: it can differ only in the regions that are known to have changed; those are
	// compared, and copied where they differ.
	Regions
	// Compare: all of it is compared, and copied where it differs.
	Compare
	// Copy: it is new and empty; whatever the source has is copied.
	Copy
)

// String names the mode.
func (m Mode) String() string { return [...]string{"skip", "regions", "compare", "copy"}[m] }

// Side is what is known about the layers of source or target: the snapshots of the live chain,
// bottom first, and what has become of them since the content that both had.
type Side struct {
	Names []string
	// Removed are those that a user no longer reads. Only what is read at the other layers is the
	// same in all replicas: a removed layer loses what the layer above it holds, and that is not
	// the same everywhere.
	Removed []string
	// First is the snapshot that the head of that time became, "" while it is the head; Gone: it is
	// neither.
	First string
	Gone  bool
	// Changed are snapshots made or changed since; AllChanged: all.
	Changed    []string
	AllChanged bool
	// Blank: nothing was ever written.
	Blank bool
	// Branches are the snapshots off the live chain, parents first.
	Branches []string
}

func (s *Side) changed(name string) bool { return s.AllChanged || slices.Contains(s.Changed, name) }

// Arrangement is what becomes of the target's files.
type Arrangement struct {
	// Modes has one entry per snapshot of the source, and one for the head at the end.
	Modes []Mode
	// HeadBecomes is the snapshot that the target's head turns into, "" if it stays the head or is
	// given up.
	HeadBecomes string
	// NewHead: the target's head is given up.
	NewHead bool
	// Branches has one entry per snapshot off the source's live chain.
	Branches []Mode
}

// Untouched lists the snapshots that nothing is written to.
func (a *Arrangement) Untouched(source *Side) []string {
	var out []string
	for i, name := range source.Names {
		if a.Modes[i] == Skip {
			out = append(out, name)
		}
	}
	return out
}

// Compared lists the layers that the target has and that are made equal wherever they differ, the
// head by HeadName.
func (a *Arrangement) Compared(source *Side) []string {
	var out []string
	for i, mode := range a.Modes {
		switch {
		case mode != Compare:
		case i < len(source.Names):
			out = append(out, source.Names[i])
		default:
			out = append(out, HeadName)
		}
	}
	return out
}

// Delta reports whether everything that can differ lies in known regions, or in layers that are
// copied and were written after them.
func (a *Arrangement) Delta() bool { return !slices.Contains(a.Modes, Compare) }

// Arrange decides per layer. same says that source and target had the same layers with the same
// content, but for known regions, when the accounts of both began; without that everything the
// target has is compared.
//
// The target's head turns into the lowest snapshot that it lacks: the one that the source took
// first after the two parted. Where that guess is wrong nothing is lost, since what is not certain
// is compared.
//
// A snapshot off the source's live chain that the target has, wherever, is compared: no account
// says whether all of what it is read through is the same.
func Arrange(source, target Side, same bool) Arrangement {
	a := Arrangement{Modes: make([]Mode, len(source.Names)+1), Branches: make([]Mode, len(source.Branches))}
	for i, name := range source.Branches {
		a.Branches[i] = Copy
		if slices.Contains(target.Names, name) || slices.Contains(target.Branches, name) {
			a.Branches[i] = Compare
		}
	}
	if target.Blank {
		for i := range a.Modes {
			a.Modes[i] = Copy
		}
		a.NewHead = len(source.Names) > 0
		return a
	}
	kept := keptOf(source.Names, target.Names)
	formerHead := 0 // what the target's head becomes
	for i, name := range source.Names {
		if slices.Contains(kept, name) {
			formerHead = i + 1
		}
	}
	for i := range a.Modes {
		name := HeadName
		if i < len(source.Names) {
			name = source.Names[i]
		}
		switch {
		case i == formerHead:
			a.Modes[i] = formerHeadMode(&source, &target, name, same)
		case name != HeadName && slices.Contains(kept, name):
			a.Modes[i] = keptMode(&source, &target, name, same)
		default:
			a.Modes[i] = Copy
		}
	}
	a.together(&source)
	if formerHead < len(source.Names) {
		a.HeadBecomes = source.Names[formerHead]
	}
	return a
}

// together gives removed layers and the first layer above them that is read the same mode. Source
// and target read the same there, outside of what is known to differ, but may have it in different
// ones of these files: one of them alone cannot be made equal.
func (a *Arrangement) together(source *Side) {
	first := 0
	for i := range a.Modes {
		if i < len(source.Names) && slices.Contains(source.Removed, source.Names[i]) {
			continue
		}
		group := a.Modes[first : i+1]
		most := Skip
		for _, m := range group {
			if m != Copy {
				most = max(most, m)
			}
		}
		for k, m := range group {
			if m != Copy {
				group[k] = most
			}
		}
		first = i + 1
	}
}

// formerHeadMode is for the layer that the target's head becomes.
func formerHeadMode(source, target *Side, name string, same bool) Mode {
	wasHead := source.First
	if wasHead == "" {
		wasHead = HeadName
	}
	if same && !source.Gone && name == wasHead && !source.changed(name) && target.First == "" && !target.Gone &&
		!target.changed(HeadName) {
		return Regions
	}
	return Compare
}

// keptMode is for a snapshot that both have.
func keptMode(source, target *Side, name string, same bool) Mode {
	switch {
	case !same || source.changed(name) || target.changed(name):
		return Compare
	case name == target.First && name == source.First:
		return Regions // an earlier attempt has turned the target's head into it
	case name == target.First || name == source.First:
		return Compare
	}
	return Skip
}

// keptOf returns the names that the target keeps: those of the source, if they are in the same
// order in both.
func keptOf(source, target []string) []string {
	var kept []string
	at := -1
	for _, name := range target {
		i := slices.Index(source, name)
		switch {
		case i < 0:
		case i <= at:
			return nil
		default:
			at = i
			kept = append(kept, name)
		}
	}
	return kept
}
