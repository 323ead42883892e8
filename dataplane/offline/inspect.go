package offline

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/quorum"
)

// State is what a directory is, in one word.
type State string

// States.
const (
	// StateEmpty: nothing of a replica is in it.
	StateEmpty State = "empty"
	// StateClean: closed after everything was synced.
	StateClean State = "clean"
	// StateDirty: not closed; what was flushed is there.
	StateDirty State = "dirty"
	// StateRebuilding: being filled from another replica; what it holds is not the volume.
	StateRebuilding State = "rebuilding"
	// StateIncomplete: being emptied or prepared; counts as holding nothing.
	StateIncomplete State = "incomplete"
	// StateDamaged: would be refused by an engine as it is.
	StateDamaged State = "damaged"
)

// Severity of a Problem.
type Severity string

// Severities.
const (
	// Error: an engine refuses the directory, or content is lost or wrong.
	Error Severity = "error"
	// Warning: content may be affected, or something unusual that an engine copes with.
	Warning Severity = "warning"
	// Note: nothing is wrong, but it explains what one sees.
	Note Severity = "note"
)

// Problem is something that a check found.
type Problem struct {
	Severity Severity `json:"severity"`
	// Object is the file or snapshot it is about.
	Object string `json:"object"`
	// Text says what is the matter and what to do.
	Text string `json:"text"`
}

// Layer is one file of the directory.
type Layer struct {
	// Name is the snapshot's name, or Head.
	Name   string `json:"name"`
	File   string `json:"file"`
	Parent string `json:"parent"`
	// SizeBytes is the apparent size, AllocatedBytes what the file occupies.
	SizeBytes      int64             `json:"sizeBytes"`
	AllocatedBytes int64             `json:"allocatedBytes"`
	Created        string            `json:"created"`
	UserCreated    bool              `json:"userCreated"`
	Removed        bool              `json:"removed"`
	Labels         map[string]string `json:"labels"`
	// Live: part of the chain that ends in the head, not of another branch.
	Live bool `json:"live"`
	// Checksum says that a checksum file lies beside it.
	Checksum bool `json:"checksum"`
}

// Member is one entry of the membership record.
type Member struct {
	Name  string `json:"name"`
	Flags uint8  `json:"flags"`
}

// Membership is what the directory remembers of the set of replicas it belongs to.
type Membership struct {
	// Known is false where the record is void; Why says why.
	Known      bool     `json:"known"`
	Why        string   `json:"why,omitempty"`
	VolumeUUID string   `json:"volumeUUID,omitempty"`
	Promised   uint64   `json:"promised"`
	Epoch      uint64   `json:"epoch"`
	Generation uint64   `json:"generation"`
	State      string   `json:"state,omitempty"`
	Self       string   `json:"self,omitempty"`
	Engine     string   `json:"engine,omitempty"`
	Members    []Member `json:"members"`
	// Undecided: the record begins with a person's decision (--accept-data-loss) and is not known to
	// be agreed. If it never was it counts for nothing at the next start.
	Undecided bool `json:"undecided,omitempty"`
}

// DirtyRegions is what may differ between replicas after an unclean stop.
type DirtyRegions struct {
	// Known is false where every region must be taken for dirty; Why says why.
	Known   bool           `json:"known"`
	Why     string         `json:"why,omitempty"`
	Regions []chain.Region `json:"regions"`
}

// Report is what Inspect found.
type Report struct {
	Directory string `json:"directory"`
	State     State  `json:"state"`
	// Explanation says in sentences what that means.
	Explanation     []string     `json:"explanation"`
	VolumeSizeBytes int64        `json:"volumeSizeBytes"`
	Head            string       `json:"head"`
	Encrypted       bool         `json:"encrypted"`
	BackingFile     string       `json:"backingFile"`
	VolumeError     string       `json:"volumeError,omitempty"`
	Membership      Membership   `json:"membership"`
	DirtyRegions    DirtyRegions `json:"dirtyRegions"`
	// RevisionCounter is another engine's write counter, null where there is none.
	RevisionCounter *int64 `json:"revisionCounter"`
	// Layers are the live chain from the head down, then other branches by name.
	Layers   []Layer   `json:"layers"`
	Problems []Problem `json:"problems"`
}

// Inspect explains a directory. It fails only if the directory cannot be listed: everything else is
// in the report.
func (d *Directory) Inspect() (*Report, error) {
	s, err := chain.ReadSurvey(d.fs, d.Path)
	if err != nil {
		return nil, err
	}
	r := &Report{Directory: d.Path, RevisionCounter: s.Revision, Layers: []Layer{}, Problems: []Problem{}}
	if v := s.Volume; v != nil {
		r.VolumeSizeBytes, r.Head, r.Encrypted, r.BackingFile, r.VolumeError = v.SizeBytes, v.Head, v.Encrypted,
			v.BackingFile, v.Error
	}
	r.Membership, r.DirtyRegions = membershipOf(s), regionsOf(s)
	live := d.listLayers(s, r)
	r.Problems = append(r.Problems, d.formProblems(s, live)...)
	r.State = stateOf(s, r)
	r.Explanation = explain(s, r)
	return r, nil
}

func membershipOf(s *chain.Survey) Membership {
	m := Membership{Known: s.RecordWhy == "", Why: s.RecordWhy, Members: []Member{}}
	if !m.Known {
		return m
	}
	rec := s.Record
	m.VolumeUUID, m.Promised, m.Epoch, m.Generation = uuidText(rec.VolumeUUID), rec.Promised, rec.Epoch, rec.Generation
	m.State, m.Self, m.Engine = memberStates[rec.State], rec.Self, rec.Engine
	for _, one := range rec.Members {
		m.Members = append(m.Members, Member{one.Name, one.Flags})
		m.Undecided = m.Undecided || one.Flags&quorum.AcceptedFlag != 0 && !rec.Agreed
	}
	if m.replaced() {
		m.State = stateReplaced
	}
	return m
}

// replaced reports that the record is of a set without this replica, which others have gone on as.
func (m *Membership) replaced() bool {
	return m.Known && m.Generation > 0 && !slices.ContainsFunc(m.Members, func(o Member) bool { return o.Name == m.Self })
}

// of names the set.
func (m *Membership) of() string {
	return fmt.Sprintf("generation %d of epoch %d", m.Generation, m.Epoch)
}

// names lists the members for a sentence.
func (m *Membership) names() string {
	var names []string
	for _, one := range m.Members {
		names = append(names, one.Name)
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return strings.Join(names, "")
}

var memberStates = map[chain.MemberState]string{chain.MemberUnknown: "unknown", chain.MemberRW: "RW",
	chain.MemberWO: "WO"}

// stateReplaced is how a replica is called whose record is of a set without it, for which there is
// no state of its own.
const stateReplaced = "replaced"

func uuidText(u chain.UUID) string {
	if u == (chain.UUID{}) {
		return ""
	}
	t := hex.EncodeToString(u[:])
	return t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:]
}

func regionsOf(s *chain.Survey) DirtyRegions {
	r := DirtyRegions{Known: s.RegionsWhy == "", Why: s.RegionsWhy, Regions: slices.Clone(s.Regions)}
	slices.Sort(r.Regions)
	if r.Regions == nil {
		r.Regions = []chain.Region{}
	}
	return r
}

// listLayers fills in the layers and returns the live chain, bottom first, as far as it could be
// followed.
func (d *Directory) listLayers(s *chain.Survey, r *Report) (live []string) {
	if s.Volume != nil {
		live, _ = s.LiveChain(s.Volume.Head) // formProblems tells the error
	}
	for _, file := range slices.Backward(live) {
		r.Layers = append(r.Layers, d.layer(s, file, true))
	}
	for _, file := range slices.Sorted(maps.Keys(s.Layers)) {
		if !slices.Contains(live, file) {
			r.Layers = append(r.Layers, d.layer(s, file, false))
		}
	}
	return live
}

func (d *Directory) layer(s *chain.Survey, file string, live bool) Layer {
	m := s.Layers[file]
	l := Layer{File: file, Created: m.Created, UserCreated: m.UserCreated, Removed: m.Removed, Labels: m.Labels,
		Live:     live,
		Checksum: slices.Contains(s.Names, file+checksumSuffix)}
	l.Name, _ = chain.LayerName(file)
	if m.Parent != "" {
		l.Parent, _ = chain.LayerName(m.Parent)
	}
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	if info, err := d.fs.Stat(d.file(file)); err == nil {
		l.SizeBytes, l.AllocatedBytes = info.Size, info.Allocated
	}
	return l
}

func stateOf(s *chain.Survey, r *Report) State {
	switch {
	case s.Volume == nil && errors.Is(s.VolumeError, disk.ErrNotFound) && len(imagesOf(s.Names)) == 0:
		return StateEmpty
	case s.Volume != nil && s.Volume.Incomplete:
		return StateIncomplete
	case slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Severity == Error }):
		return StateDamaged
	case s.Volume.Rebuilding:
		return StateRebuilding
	case s.Volume.Dirty:
		return StateDirty
	}
	return StateClean
}

// explain says what the state and the record mean for somebody who has to decide what to do with
// the directory.
func explain(s *chain.Survey, r *Report) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch r.State {
	case StateEmpty:
		say("There is no replica here: neither volume.meta nor an image.")
		return out
	case StateIncomplete:
		say("The directory was being emptied, or prepared as the target of a rebuild, when it was left. It counts as " +
			"holding nothing; an engine makes it anew.")
		return out
	case StateDamaged:
		say("An engine would refuse this directory; the problems below say why. Keep it until another replica has " +
			"been checked.")
	case StateRebuilding:
		say("The directory was being filled from another replica and that did not finish. What it holds is not the " +
			"volume's content; use another replica.")
	case StateDirty:
		say("The replica was not closed: its process, or the machine, stopped in between, or it runs on another " +
			"machine. Everything that was flushed is here; writes after the last flush may differ between replicas.")
	case StateClean:
		say("The replica was closed after everything was synced.")
	}
	if s.Volume != nil && s.Volume.Error != "" {
		say("Its last user recorded an error: %q.", s.Volume.Error)
	}
	if m := r.Membership; m.Known {
		say("%s", explainRecord(m))
	} else {
		say("Membership is void: %s. Whether this replica has everything the others have cannot be told from it "+
			"alone; compare it with another one: ankole replica check %s --compare OTHER.", m.Why, r.Directory)
	}
	if r.State == StateDirty && r.DirtyRegions.Known {
		say("Replicas can differ in at most %d regions of 4 MiB, which the next engine compares.",
			len(r.DirtyRegions.Regions))
	} else if r.State == StateDirty {
		say("Which parts can differ between replicas is not known (%s), so the next engine compares everything.",
			r.DirtyRegions.Why)
	}
	return out
}

func explainRecord(m Membership) string {
	switch {
	case m.replaced():
		return fmt.Sprintf("It was replaced: %s has %s, not %s. It lacks what was written since.", m.of(), m.names(),
			m.Self)
	case m.Undecided:
		return fmt.Sprintf("Its record, %s, begins with a person's decision (--accept-data-loss) and is not known to be "+
			"agreed: unless it was, the volume's next start takes the replica for one of which nothing is known.", m.of())
	case m.State == memberStates[chain.MemberRW]:
		return fmt.Sprintf("It is a full member of generation %d, which has %s. A replica of a later epoch, or of the "+
			"same one and a higher generation, has writes that this one lacks.",
			m.Generation, plural(len(m.Members), "member"))
	case m.State == memberStates[chain.MemberWO]:
		return fmt.Sprintf("It was being rebuilt in generation %d and is not complete.", m.Generation)
	}
	if m.Generation == 0 {
		return "It has not been a member of the volume's set of replicas yet."
	}
	return fmt.Sprintf("It knows of generation %d, but not that it belongs to it.", m.Generation)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
