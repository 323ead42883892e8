package volume

import (
	"fmt"
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/dataloss"
)

// accepting follows a person's decision to go on without the newest data.
type accepting struct{ *pass }

// lossAccepted are the data directories that a person has decided to go on with; none without such
// a decision for the present record.
func (p accepting) lossAccepted() []string { return dataloss.InForce(p.v, p.engine) }

// chosen says whether a person has decided to go on with a replica's data.
func (p accepting) chosen(r *v1beta2.Replica) bool {
	return r.Spec.DataDirectoryName != "" && slices.Contains(p.lossAccepted(), r.Spec.DataDirectoryName)
}

// chosenReachable says whether a person has decided, and all of what was named can be started.
func (p accepting) chosenReachable() bool {
	n := count(p.live(), func(r *v1beta2.Replica) bool {
		return p.chosen(r) && r.Spec.NodeID != "" && p.reachable(r)
	})
	return n > 0 && n == len(p.lossAccepted())
}

// endDecision takes a decision away that is over: an engine has served since, with the copies that
// were chosen or without needing it.
func (p accepting) endDecision() loop.Change {
	d, err := dataloss.Of(p.v)
	if err == nil && (d == nil || p.lossAccepted() != nil) {
		return nil
	}
	message := "What was decided is ignored: " + fmt.Sprint(err)
	if err == nil {
		epoch, generation, members := dataloss.Record(p.v, p.engine)
		message = fmt.Sprintf("The decision to go on with %s was for record %d/%d and is over: the record is %d/%d, members %s",
			strings.Join(d.Members, ", "), d.RecordEpoch, d.Generation, epoch, generation, strings.Join(members, ", "))
	}
	p.changeEvents = append(p.changeEvents, loop.Event{Warning: true, Reason: naming.EventDataLossDecisionOver,
		Message: message})
	c := p.v.DeepCopy()
	delete(c.Annotations, dataloss.Annotation)
	return loop.Update{Object: c}
}
