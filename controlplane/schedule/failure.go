package schedule

import (
	"slices"
	"strings"
)

// Reason is a category of scheduling failure, in the words shown to users.
type Reason string

// The categories of the volume condition Scheduled.
const (
	ReasonInsufficientStorage Reason = "insufficient storage"
	ReasonDiskNotFound        Reason = "disk not found"
	ReasonDisksUnavailable    Reason = "disks are unavailable"
	ReasonTagsNotFulfilled    Reason = "tags not fulfilled"
	ReasonNodeNotFound        Reason = "node not found"
	ReasonNodesUnavailable    Reason = "nodes are unavailable"
	ReasonNoEngineImage       Reason = "none of the node candidates contains a ready engine image"
	ReasonHardAffinity        Reason = "hard affinity cannot be satisfied"
	ReasonTopology            Reason = "topology requirement cannot be satisfied"
	ReasonGeneric             Reason = "replica scheduling failed"
	ReasonAlreadyScheduled    Reason = "replica already scheduled"
	ReasonUnusedFailed        Reason = "unused failed replica is not supported"
	ReasonIncompatibleSize    Reason = "incompatible volume size"
)

// Failure is a set of reasons, sorted and without duplicates.
type Failure []Reason

func failure(reasons ...Reason) Failure { return Failure(nil).with(reasons...) }

// with returns the set with more reasons in it.
func (f Failure) with(reasons ...Reason) Failure {
	out := append(slices.Clone(f), reasons...)
	slices.Sort(out)
	return slices.Compact(out)
}

// Join merges failures into one set.
func Join(failures ...Failure) Failure {
	var out Failure
	for _, f := range failures {
		out = out.with(f...)
	}
	return out
}

// String is the condition's message: the categories joined with "; ".
func (f Failure) String() string {
	if len(f) == 0 {
		return string(ReasonGeneric)
	}
	parts := make([]string, len(f))
	for i, r := range f {
		parts[i] = string(r)
	}
	return strings.Join(parts, "; ")
}
