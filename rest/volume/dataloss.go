package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/controlplane/volume/restore"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// getDataLoss tells what there is of a volume. Nothing changes.
func getDataLoss(q *serve.Request) (any, error) {
	return dataLoss(q.Context(), q.Objects, q.Params["name"])
}

// acceptDataLoss writes a person's decision down. It is for the record that the person was shown:
// if that is another one by now, nothing changes.
func acceptDataLoss(q *serve.Request) (any, error) {
	var in resource.AcceptDataLossInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	err := conflict.Retry(func() error {
		p, err := readVolume(q.Context(), q.Objects, name)
		if err != nil {
			return err
		}
		shown, err := lossOf(q.Context(), q.Objects, p)
		if err != nil {
			return err
		}
		if err := checkDecision(shown, in); err != nil {
			return err
		}
		v := p.volume.DeepCopy()
		if v.Annotations == nil {
			v.Annotations = map[string]string{}
		}
		v.Annotations[dataloss.Annotation] = dataloss.Decision{Members: in.Members, RecordEpoch: in.RecordEpoch,
			Generation: in.Generation}.Text()
		return q.Objects.Client.Update(q.Context(), v)
	})
	if err != nil {
		return nil, fmt.Errorf("unable to accept the loss of data of volume %s: %w", name, err)
	}
	return dataLoss(q.Context(), q.Objects, name)
}

func dataLoss(ctx context.Context, o *serve.Objects, name string) (*resource.DataLoss, error) {
	p, err := readVolume(ctx, o, name)
	if err != nil {
		return nil, err
	}
	return lossOf(ctx, o, p)
}

func lossOf(ctx context.Context, o *serve.Objects, p volumeParts) (*resource.DataLoss, error) {
	var nodes lh.NodeList
	if err := o.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	ready := map[string]bool{}
	for i := range nodes.Items {
		ready[nodes.Items[i].Name] = lh.IsConditionTrue(nodes.Items[i].Status.Conditions, lh.NodeConditionReady)
	}
	e := active(p.engines)
	out := &resource.DataLoss{Volume: p.volume.Name, Members: []string{}, Copies: []resource.DataCopy{},
		Decided: []string{}, Refused: needless(p, e)}
	epoch, generation, members := dataloss.Record(p.volume, e)
	out.RecordEpoch, out.Generation = epoch, generation
	out.Members = append(out.Members, members...)
	out.Decided = append(out.Decided, dataloss.InForce(p.volume, e)...)
	if e != nil {
		out.Problem = startProblem(&e.Status.InstanceStatus)
	}
	for _, r := range p.replicas {
		if r.Spec.DataDirectoryName == "" || !r.Spec.Active {
			continue
		}
		out.Copies = append(out.Copies, resource.DataCopy{Replica: r.Name, Member: r.Spec.DataDirectoryName,
			NodeID: r.Spec.NodeID, NodeReady: ready[r.Spec.NodeID], FailedAt: r.Spec.FailedAt,
			Current: slices.Contains(members, r.Spec.DataDirectoryName) && !damaged(&r), LastInSync: r.Spec.LastHealthyAt,
			Problem: startProblem(&r.Status.InstanceStatus)})
	}
	return out, nil
}

// damaged says that a replica's process has found its directory not to be what an engine left: what
// it holds is not known, whatever the record says.
func damaged(r *lh.Replica) bool {
	c := lh.FindCondition(r.Status.Conditions, lh.InstanceConditionInstanceCreation)
	return c.Status == lh.ConditionFalse && c.Reason == lh.InstanceReasonDirectoryDamaged
}

// startProblem is what a process has said that could not start; empty if the last one could.
func startProblem(s *lh.InstanceStatus) string {
	c := lh.FindCondition(s.Conditions, lh.InstanceConditionInstanceCreation)
	if c.Status != lh.ConditionFalse {
		return ""
	}
	return c.Message
}

func active(engines []lh.Engine) *lh.Engine {
	for i := range engines {
		if engines[i].Spec.Active {
			return &engines[i]
		}
	}
	return nil
}

// needless says why nobody has to decide anything about a volume.
func needless(p volumeParts, e *lh.Engine) string {
	if p.volume.DeletionTimestamp != nil {
		return "the volume is being deleted"
	}
	if e != nil && e.Status.CurrentState == lh.InstanceStateRunning {
		for _, mode := range e.Status.ReplicaModeMap {
			if mode == lh.ReplicaModeRW {
				return "an engine serves the volume with all acknowledged data: nothing has to be given up"
			}
		}
	}
	return ""
}

// checkDecision refuses a decision that is not about what there is.
func checkDecision(shown *resource.DataLoss, in resource.AcceptDataLossInput) error {
	switch {
	case shown.Refused != "":
		return errors.New(shown.Refused)
	case len(in.Members) == 0:
		return errors.New("no copy named to go on with")
	case in.RecordEpoch != shown.RecordEpoch || in.Generation != shown.Generation:
		return fmt.Errorf("the decision is for record %d/%d, the volume has %d/%d by now: look again what there is",
			in.RecordEpoch, in.Generation, shown.RecordEpoch, shown.Generation)
	}
	for _, m := range in.Members {
		i := slices.IndexFunc(shown.Copies, func(c resource.DataCopy) bool { return c.Member == m })
		switch {
		case i < 0:
			return fmt.Errorf("%s is no copy of the volume; there are %s", m, strings.Join(membersOf(shown.Copies), ", "))
		case shown.Copies[i].LastInSync == "":
			return fmt.Errorf("copy %s was never in sync: it holds no usable data", m)
		case !shown.Copies[i].NodeReady:
			return fmt.Errorf("copy %s is on node %s, which is not ready", m, shown.Copies[i].NodeID)
		}
	}
	if !slices.ContainsFunc(shown.Members, func(m string) bool { return !slices.Contains(in.Members, m) }) &&
		len(shown.Members) > 0 {
		return errors.New("these are all members of the record: nothing would be given up, and nothing has to be accepted")
	}
	return nil
}

func membersOf(copies []resource.DataCopy) (out []string) {
	for _, c := range copies {
		out = append(out, c.Member)
	}
	return out
}

// getBackupDamage tells what there is to decide about the backup of a volume. Nothing changes.
func getBackupDamage(q *serve.Request) (any, error) {
	p, err := readVolume(q.Context(), q.Objects, q.Params["name"])
	if err != nil {
		return nil, err
	}
	return backupDamage(p), nil
}

// decideBackupDamage writes a person's decision down.
func decideBackupDamage(q *serve.Request) (any, error) {
	var in resource.BackupDamageInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	var p volumeParts
	err := conflict.Retry(func() (err error) {
		if p, err = readVolume(q.Context(), q.Objects, name); err != nil {
			return err
		}
		v := p.volume
		value, err := checkDamageDecision(backupDamage(p), in.Decision)
		if err != nil {
			return err
		}
		if v.Annotations == nil {
			v.Annotations = map[string]string{}
		}
		v.Annotations[dataloss.DamageAnnotation] = value
		return q.Objects.Client.Update(q.Context(), v)
	})
	if err != nil {
		return nil, fmt.Errorf("unable to decide about the damaged backup of volume %s: %w", name, err)
	}
	return backupDamage(p), nil
}

// checkDamageDecision is the value of the annotation for a decision, or why it is refused.
func checkDamageDecision(shown *resource.BackupDamage, decision string) (value string, err error) {
	switch {
	case decision != resource.DecisionAccept && decision != resource.DecisionAcknowledge:
		return "", fmt.Errorf("decision %q is none of %s, %s", decision, resource.DecisionAccept,
			resource.DecisionAcknowledge)
	case shown.Refused != "":
		return "", errors.New(shown.Refused)
	case decision == resource.DecisionAccept && !shown.Restoring:
		return "", errors.New("the volume is restored already: acknowledge what is zero")
	case decision == resource.DecisionAcknowledge && shown.Damage == "":
		return "", errors.New("nothing is zero yet that the backup had: there is nothing to acknowledge")
	case decision == resource.DecisionAccept:
		return dataloss.DamageAccepted, nil
	}
	return dataloss.DamageAcknowledged, nil
}

func backupDamage(p volumeParts) *resource.BackupDamage {
	v := p.volume
	out := &resource.BackupDamage{Volume: v.Name, FromBackup: v.Spec.FromBackup, Restoring: restore.Needed(v),
		Activating: restore.Activating(v), Accepted: dataloss.AcceptsDamage(v) || dataloss.AcceptsOlder(v)}
	if e := active(p.engines); e != nil && out.Activating {
		out.Held = e.Status.LastRestoredBackup
	}
	c := lh.FindCondition(v.Status.Conditions, lh.VolumeConditionRestore)
	if out.Restoring && c.Status == lh.ConditionFalse && c.Reason == lh.VolumeReasonRestoreFailure {
		out.Problem = c.Message
	}
	c = lh.FindCondition(v.Status.Conditions, lh.VolumeConditionBackupDamage)
	if c.Status == lh.ConditionTrue && v.Annotations[dataloss.DamageAnnotation] != dataloss.DamageAcknowledged {
		out.Damage = c.Message
	}
	switch {
	case v.DeletionTimestamp != nil:
		out.Refused = "the volume is being deleted"
	case v.Spec.FromBackup == "":
		out.Refused = "the volume is not made of a backup"
	case v.Spec.Standby:
		out.Refused = "a standby volume takes no damaged backup: later ones would not bring what is zero; restore the backup " +
			"into a volume of its own, or activate the volume to have what it holds"
	case out.Activating && out.Held == "":
		out.Refused = "the volume has never held a backup: mend the backup target, or delete the volume"
	case out.Activating && out.Problem == "":
		out.Refused = "the volume is being activated, and nothing has failed: it takes the newest backup first"
	case !out.Restoring && out.Damage == "":
		out.Refused = "the volume holds all of its backup, or what is zero was acknowledged"
	}
	return out
}
