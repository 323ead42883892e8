// Package quorum decides who belongs to a volume: the membership protocol between one engine, its
// replicas and the witness. It is pure: no input or output, clock or goroutine; the engine feeds it
// events and carries out its actions.
//
// An epoch is granted by the witness at every engine start and promised by each replica, so that an
// engine which was replaced can no longer write anywhere. A generation names a set of members. The
// step from one generation to the next commits when it is durable on all members of the new set and
// on the witness, or on a majority of the old set and of every other record that somebody may hold;
// the first one of an epoch always needs the witness. Writes that a dropped member missed are
// acknowledged only after the commit; so whoever starts later and hears at least half of the
// highest recorded set, with the witness, knows every acknowledged write. docs/design/quorum.md has
// states, invariants and the reasons; the scenarios in testdata read as a specification.
package quorum

import (
	"fmt"
	"slices"
	"strings"
)

// Record is one membership decision as replicas and the witness store it.
type Record struct {
	// Epoch is the epoch whose engine proposed the record.
	Epoch uint64
	// Generation counts member sets.
	Generation uint64
	// Members are the data directory names, sorted.
	Members []string
	// Replaces are those whom a record that this one competes with names and this one does not,
	// sorted: members being dropped, a joiner given up. Empty once the record is agreed. A start
	// that cannot trust the witness asks them too.
	Replaces []string
	// Agreed: known to be committed. It is written again for that when it is, and nothing waits for
	// it; so a record without it may be committed too.
	Agreed bool
	// Accepted: it begins with what a person trusts and gives up what others have. A member forgets
	// with it what it knew of those who are absent: an account of what they miss is about the
	// history that is given up. It is kept until the record is agreed; one that never was counts
	// for nothing at the next start.
	Accepted bool
}

// AcceptedFlag is how replicas store Accepted, which counts until the record is agreed: as a flag
// of each of its members.
const AcceptedFlag = 1

// Valid reports whether r names a member set at all.
func (r Record) Valid() bool { return r.Generation > 0 && len(r.Members) > 0 }

// Compare orders records: a later epoch's proposal was made by an engine that had heard everything
// committed before it, so the epoch counts first, as a term does in Raft.
func (r Record) Compare(o Record) int {
	switch {
	case r.Epoch != o.Epoch:
		return cmp(r.Epoch, o.Epoch)
	default:
		return cmp(r.Generation, o.Generation)
	}
}

func cmp(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Has reports whether m is a member.
func (r Record) Has(m string) bool { return slices.Contains(r.Members, m) }

// Equal reports whether both records are the same decision, agreed or not.
func (r Record) Equal(o Record) bool {
	return r.Epoch == o.Epoch && r.Generation == o.Generation && slices.Equal(r.Members, o.Members)
}

// String is the stable text form used in scenarios and messages: "e3 g7 {a b}", and "e3 g7 {a b}
// not {c}" while c is being replaced.
func (r Record) String() string {
	if !r.Valid() {
		return "none"
	}
	s := fmt.Sprintf("e%s g%d {%s}", EpochText(r.Epoch), r.Generation, strings.Join(r.Members, " "))
	if len(r.Replaces) > 0 {
		s += fmt.Sprintf(" not {%s}", strings.Join(r.Replaces, " "))
	}
	if r.Agreed {
		s += " agreed"
	}
	if r.Accepted {
		s += ", data loss accepted"
	}
	return s
}

// agreed is the record as it is kept after its commit.
func (r Record) agreed() Record {
	r.Replaces, r.Agreed, r.Accepted = nil, true, false
	return r
}

// GrantStep is the distance between epochs granted by the witness. The numbers between are for
// engines that take over without it. A thousand, so that the number as it is stored (2001) can be
// read by a person as grant 2, takeover 1.
const GrantStep = 1000

// EpochText is how an epoch is written for people: "2", or "2.1" for the first takeover after the
// second grant.
func EpochText(epoch uint64) string {
	if epoch%GrantStep == 0 {
		return fmt.Sprint(epoch / GrantStep)
	}
	return fmt.Sprintf("%d.%d", epoch/GrantStep, epoch%GrantStep)
}

// granted is the number of the grant an epoch belongs to.
func granted(epoch uint64) uint64 { return epoch / GrantStep }

// WitnessRecord is what the witness stores: the newest epoch granted and to whom, and a record that
// may lag behind the replicas' as long as commits had their majority.
type WitnessRecord struct {
	// Epoch is the newest epoch granted.
	Epoch uint64
	// Engine and InstanceManager say to whom.
	Engine          string
	InstanceManager string
	Record          Record
	// Stored: every member but a joiner had the record, durably, before the witness. Engines of
	// before told the witness and the members at once, and do not say so.
	Stored bool
}

// outdated reports whether a is older than its replica was when the witness got its record: the
// replica had stored that one, or was a joiner, whose record was void. So its directory was
// replaced by an older copy of itself since, and nothing tells what it lacks.
func (w WitnessRecord) outdated(a *Answer) bool {
	return w.Stored && w.Record.Has(a.Member) && a.Record.Valid() && a.Record.Compare(w.Record) < 0
}

// Answer is what a replica tells when an engine connects with an epoch it has promised.
type Answer struct {
	Member string
	// Record is the replica's; the zero Record means unknown: none, or void.
	Record Record
	// Blank: it has no record, and no data was ever written to it.
	Blank bool
	// Empty: no data was ever written to it, whatever record it has.
	Empty bool
	// Closed: whoever had it before has closed it.
	Closed bool
	// Counter is the revision counter that an engine of another kind has kept in it, 0 for none.
	Counter int64
	// Rebuilding: an incomplete copy.
	Rebuilding bool
}

// fresh reports whether the answering replica certainly has every acknowledged write if r is the
// highest record: it is a member of r and its own record, old or new, names it as a member. A
// member that was dropped and is coming back has had its record voided before the copy began, so an
// old record cannot vouch for it.
func (a Answer) fresh(r Record) bool {
	return r.Has(a.Member) && !a.Rebuilding && a.Record.Valid() && a.Record.Has(a.Member)
}

// majority of n members.
func majority(n int) int { return n/2 + 1 }

// half of n members, rounded up: what a start needs beside the witness.
func half(n int) int { return (n + 1) / 2 }
