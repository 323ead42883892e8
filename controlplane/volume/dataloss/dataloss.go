// Package dataloss is a person's decision to go on with copies of a volume that may lack
// acknowledged writes, since those that have them are lost. The decision is an annotation of the
// Volume; it names the copies and the member record that the person was shown.
// docs/design/volume.md has the rules.
//
// All functions are pure.
package dataloss

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
)

// Annotation of a Volume whose value is a Decision in JSON.
const Annotation = "ankole.storage/accept-data-loss"

// Decision is for the start of one engine: as soon as any engine has served, the record is another
// one, and the decision is over.
type Decision struct {
	// Members are the data directory names of the replicas to go on with.
	Members []string `json:"members"`
	// RecordEpoch and Generation are those of the record that was shown; zero if there was none.
	RecordEpoch int64 `json:"recordEpoch"`
	Generation  int64 `json:"generation"`
}

// Of reads the decision of a volume; nil if there is none. An annotation that cannot be understood
// is an error.
func Of(v *v1beta2.Volume) (*Decision, error) {
	text, there := v.Annotations[Annotation]
	if !there {
		return nil, nil
	}
	var d Decision
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("annotation %s cannot be read: %w", Annotation, err)
	}
	if len(d.Members) == 0 || slices.Contains(d.Members, "") {
		return nil, errors.New("annotation " + Annotation + " names no copies")
	}
	return &d, nil
}

// Text is the annotation's value.
func (d Decision) Text() string {
	p, err := json.Marshal(d)
	if err != nil {
		panic("dataloss: " + err.Error()) // plain strings and numbers
	}
	return string(p)
}

// Record is the member record of a volume that its engine has; zero if it has none. That of another
// volume is none.
func Record(v *v1beta2.Volume, e *v1beta2.Engine) (recordEpoch, generation int64, members []string) {
	if e == nil || !e.Status.Membership.Founded(v.UID) {
		return 0, 0, nil
	}
	m := e.Status.Membership
	return m.RecordEpoch, m.Generation, m.Members
}

// InForce returns the members that the next engine is told to go on with if it cannot start
// otherwise; none if nobody decided so for the record that the engine has now.
func InForce(v *v1beta2.Volume, e *v1beta2.Engine) []string {
	d, err := Of(v)
	epoch, generation, _ := Record(v, e)
	if err != nil || d == nil || d.RecordEpoch != epoch || d.Generation != generation {
		return nil
	}
	return d.Members
}
