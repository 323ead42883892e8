package backup

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/volume/snapshot"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ordered is a backup of snapshot s of volume v.
func ordered(state v1beta2.BackupState, edit func(*v1beta2.Backup)) *v1beta2.Backup {
	b := &v1beta2.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u", Finalizers: []string{v1beta2.Finalizer},
		Labels: map[string]string{naming.LabelBackupVolume: "v", naming.LabelBackupTarget: "default"}},
		Spec:   v1beta2.BackupSpec{SnapshotName: "s"},
		Status: v1beta2.BackupStatus{State: state, LastSyncedAt: metav1.NewTime(t0)}}
	if edit != nil {
		edit(b)
	}
	return b
}

func done(order string, ago time.Duration, err error, r outcome) store.Errand[outcome] {
	return store.Errand[outcome]{Order: named(ordered("", nil), order), Over: true, Began: t0.Add(-ago),
		Ended: t0.Add(-ago), Err: err, Result: r, Failures: 1}
}

var (
	ticketID = naming.AttachmentTicketID(string(v1beta2.AttacherTypeBackup), "b")
	held     = map[string]v1beta2.AttachmentTicket{ticketID: {ID: ticketID, NodeID: "n1"}}
)

// world is a volume that runs on n1, its snapshot, a target that is available, and no ticket.
func world(edit func(*seen)) seen {
	s := seen{Target: &v1beta2.BackupTarget{Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/"},
		Status: v1beta2.BackupTargetStatus{Available: true}},
		Of:         &v1beta2.BackupVolume{Spec: v1beta2.BackupVolumeSpec{SyncRequestedAt: metav1.NewTime(t0)}},
		Snapshot:   &v1beta2.Snapshot{Status: v1beta2.SnapshotStatus{ReadyToUse: true, CreationTime: "x"}},
		Volume:     &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1beta2.VolumeSpec{NodeID: "n1"}},
		Attachment: &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v"}},
		Engine:     &v1beta2.Engine{}, Reachable: true, TTL: time.Hour,
		At: snapshot.Place{Node: "n1", Up: map[string]bool{"n1": true, "n2": true, "n3": true}}}
	if edit != nil {
		edit(&s)
	}
	return s
}

func ticketed(s *seen) {
	s.Attachment.Spec.AttachmentTickets = held
	s.Attachment.Status.AttachmentTicketStatuses = map[string]v1beta2.AttachmentTicketStatus{ticketID: {Satisfied: true}}
}

// says has the engine say how far the backup is.
func says(state, why string) func(*seen) {
	return func(s *seen) {
		ticketed(s)
		s.Engine.Status.BackupStatus = map[string]v1beta2.EngineBackupStatus{"b": {SnapshotName: "s", State: state,
			Error: why, Progress: 42}}
	}
}

// made has the engine say that the backup is complete, in the store at a URL.
func made(url string) func(*seen) {
	return func(s *seen) {
		says("complete", "")(s)
		st := s.Engine.Status.BackupStatus["b"]
		st.BackupURL = url + "?backup=b-1&volume=v-1"
		s.Engine.Status.BackupStatus["b"] = st
	}
}

// TestDecide is the table of docs/design/backups.md.
func TestDecide(t *testing.T) {
	const attach, create = "update *v1beta2.VolumeAttachment v", "back up snapshot s as b"
	const inspect, remove = "read backup b in the store", "remove backup b from the store"
	const ask = "ask for the progress of backup b"
	const pending, running, complete, failed, deleting = v1beta2.BackupStatePending, v1beta2.BackupStateInProgress,
		v1beta2.BackupStateCompleted, v1beta2.BackupStateError, v1beta2.BackupStateDeleting
	going := func(b *v1beta2.Backup) { b.DeletionTimestamp = &metav1.Time{Time: t0} }
	errand := func(e store.Errand[outcome], more ...func(*seen)) func(*seen) {
		return func(s *seen) {
			s.Errand = e
			for _, f := range more {
				f(s)
			}
		}
	}
	away := func(s *seen) { s.Reachable = false }
	there := outcome{Info: &engineclient.Backup{Created: "2026-01-02T03:04:05Z", VolumeName: "v"}}
	notFound := fmt.Errorf("x: %w", engineclient.ErrNotFound)
	fifth := done(orderCreate, 0, engineclient.ErrUnavailable, outcome{})
	fifth.Failures = mostTries
	for _, c := range []struct {
		name  string
		from  v1beta2.BackupState
		edit  func(*v1beta2.Backup)
		world func(*seen)
		want  string
		state v1beta2.BackupState
	}{
		{name: "new", want: "", state: pending},
		{name: "the ticket comes first", from: pending, want: attach, state: pending},
		{name: "then the order", from: pending, world: ticketed, want: create, state: pending},
		{name: "not to an engine that ends, whose user has just gone", from: pending, world: func(s *seen) {
			s.Attachment.Spec.AttachmentTickets = held
		}, state: pending},
		{name: "no snapshot", from: pending, world: func(s *seen) { s.Snapshot = nil }, state: failed},
		{name: "no volume", from: pending, world: func(s *seen) { s.Volume = nil }, state: failed},
		{name: "no target", from: pending, world: func(s *seen) { s.Target = nil }, state: failed},
		{name: "the snapshot is not taken yet", from: pending, world: func(s *seen) {
			s.Snapshot.Status = v1beta2.SnapshotStatus{}
		}, state: pending},
		{name: "the target is away: the volume rests", from: pending, world: func(s *seen) {
			ticketed(s)
			s.Target.Status.Available = false
		}, want: attach, state: pending},
		{name: "the engine is away", from: pending, world: away, want: attach, state: pending},
		{name: "no engine could serve", from: pending, world: func(s *seen) { s.Reachable, s.Lacks = false, "replicas" },
			state: pending},
		{name: "accepted", from: pending, world: errand(done(orderCreate, 0, nil, outcome{}), ticketed), state: running},
		{name: "the answer was lost", from: pending, world: says("in_progress", ""), state: running},
		{name: "refused, for now", from: pending, world: errand(done(orderCreate, 0, engineclient.ErrUnavailable, outcome{})),
			want: " after 10s", state: pending},
		{name: "refused for good", from: pending, world: errand(done(orderCreate, 0, engineclient.ErrInvalid, outcome{})),
			state: failed},
		{name: "refused five times", from: pending, world: errand(fifth), state: failed},
		{name: "in progress", from: running, world: says("in_progress", ""), state: running},
		{name: "the engine has failed", from: running, world: says("error", "no space"), state: failed},
		{name: "the engine is done", from: running, world: says("complete", ""), want: inspect, state: running},
		{name: "and the target has another URL now", from: running, world: errand(done(orderInspect, 0, notFound, outcome{}),
			made("s3://b@r/before/")), state: failed},
		{name: "and the store has it not yet", from: running, world: errand(done(orderInspect, 0, notFound, outcome{}),
			made("s3://b@r/")), want: " after 10s", state: running},
		{name: "and the store has it", from: running, world: errand(done(orderInspect, 0, nil, there), says("complete", "")),
			state: complete},
		{name: "the store does not answer", from: running,
			world: errand(done(orderInspect, 0, engineclient.ErrUnavailable, outcome{}), says("complete", "")),
			want:  " after 10s", state: running},
		{name: "the engine's object says nothing", from: running, world: ticketed,
			want: ask, state: running},
		{name: "the engine knows nothing", from: running, world: errand(done(orderFollow, 0, notFound, outcome{}), ticketed),
			want: inspect, state: running},
		{name: "the engine is gone", from: running, world: away, want: inspect, state: running},
		{name: "gone, and the store has it all the same", from: running,
			world: errand(done(orderInspect, 0, nil, there), away), state: complete},
		{name: "gone, and the store has a part", from: running,
			world: errand(done(orderInspect, 0, nil, outcome{Info: &engineclient.Backup{}}), away), state: failed},
		{name: "gone, and the store has nothing", from: running,
			world: errand(done(orderInspect, 0, notFound, outcome{}), away), state: failed},
		{name: "complete, the ticket goes", from: complete, world: ticketed, want: attach, state: complete},
		{name: "complete, the backup volume looks", from: complete, world: func(s *seen) {
			s.Of.Spec.SyncRequestedAt = metav1.Time{}
		}, want: "update *v1beta2.BackupVolume *", state: complete},
		{name: "complete, the first of its volume", from: complete, world: func(s *seen) { s.Of = nil },
			want: "create *v1beta2.BackupVolume " + naming.BackupVolumeName("v", "default"), state: complete},
		{name: "complete", from: complete, state: complete},
		{name: "complete, its snapshot goes", from: complete, world: func(s *seen) { s.CleanupWhenCompleted = true },
			want: "delete *v1beta2.Snapshot *", state: complete},
		{name: "complete for long", from: complete, edit: func(b *v1beta2.Backup) {
			b.Status.LastSyncedAt = metav1.NewTime(t0.Add(-time.Hour))
		}, world: func(s *seen) { s.CleanupWhenCompleted = true }, state: complete},
		{name: "failed", from: failed, want: " after 1h0m0s", state: failed},
		{name: "failed for long", from: failed, edit: func(b *v1beta2.Backup) {
			b.Status.LastSyncedAt = metav1.NewTime(t0.Add(-time.Hour))
		}, want: "delete *v1beta2.Backup b", state: failed},
		{name: "deleted, the ticket goes", from: running, edit: going, world: ticketed, want: attach, state: running},
		{name: "deleted", from: complete, edit: going, want: remove, state: deleting},
		{name: "deleted before it was seen", edit: going, want: "update *v1beta2.Backup b"},
		{name: "deleted, and perhaps ordered", from: pending, edit: going, world: ticketed, want: ask, state: pending},
		{name: "the engine knows of no order", from: pending, edit: going,
			world: errand(done(orderFollow, 0, notFound, outcome{})), want: "update *v1beta2.Backup b", state: pending},
		{name: "the engine is at it", from: pending, edit: going, world: errand(done(orderFollow, 0, nil, outcome{})),
			want: remove, state: deleting},
		{name: "the engine does not say", from: pending, edit: going,
			world: errand(done(orderFollow, 0, engineclient.ErrUnavailable, outcome{})), want: remove, state: deleting},
		{name: "ordered by this leader", from: pending, edit: going, world: errand(done(orderCreate, 0, nil, outcome{})),
			want: remove, state: deleting},
		{name: "deleted, and no engine runs", from: pending, edit: going, world: away, want: "update *v1beta2.Backup b",
			state: pending},
		{name: "deleted, and whether an engine runs is unknown", from: pending, edit: going, world: func(s *seen) {
			s.Reachable, s.Engine.Status.CurrentState = false, v1beta2.InstanceStateUnknown
		}, want: remove, state: deleting},
		{name: "deleted, the object only", from: complete, edit: func(b *v1beta2.Backup) {
			going(b)
			b.Labels[naming.LabelDeleteObjectOnly] = "true"
		}, want: "update *v1beta2.Backup b", state: complete},
		{name: "removed", from: deleting, edit: going, world: errand(done(orderRemove, 0, nil, outcome{})),
			want: "update *v1beta2.Backup b", state: deleting},
		{name: "not removed", from: deleting, edit: going, world: errand(done(orderRemove, 0, errors.New("no"), outcome{})),
			want: " after 1m0s", state: deleting},
	} {
		b := ordered(c.from, c.edit)
		d := decide(t0, b, world(c.world))
		got := ""
		if d.Do != nil {
			got = d.Do.String()
		}
		if d.After > 0 {
			got += " after " + d.After.String()
		}
		if got != c.want || b.Status.State != c.state {
			t.Errorf("%s: %q in state %q, want %q in state %q", c.name, got, b.Status.State, c.want, c.state)
		}
		if c.state == failed && b.Status.Error == "" && c.from != failed {
			t.Errorf("%s: no reason given", c.name)
		}
	}
}

// TestEngineOutOfReach: a backup whose engine may still be at it is not called failed, and says
// what it waits for.
func TestEngineOutOfReach(t *testing.T) {
	for _, name := range []string{"told", "not told"} {
		s := world(func(s *seen) {
			if name == "told" {
				says("in_progress", "")(s)
			}
			s.Reachable, s.Engine.Status.CurrentState = false, v1beta2.InstanceStateUnknown
		})
		b := ordered(v1beta2.BackupStateInProgress, nil)
		decide(t0, b, s)
		if text := b.Status.Messages[v1beta2.BackupMessageInfo]; b.Status.State != v1beta2.BackupStateInProgress ||
			!strings.Contains(text, "does not answer") {
			t.Errorf("%s: %s %q", name, b.Status.State, text)
		}
		s.Reachable, s.Engine.Status.CurrentState = true, v1beta2.InstanceStateRunning
		if decide(t0, b, s); name == "told" && len(b.Status.Messages) > 0 {
			t.Errorf("%s: %v when it answers", name, b.Status.Messages)
		}
	}
}

// TestMirror: a backup that the store has is read once, and its object gets the size of its blocks.
func TestMirror(t *testing.T) {
	b := ordered("", func(b *v1beta2.Backup) {
		b.Spec.SnapshotName, b.Spec.BackupBlockSize, b.Status.LastSyncedAt = "", v1beta2.BackupBlockSizeInvalid, metav1.Time{}
	})
	s := world(func(s *seen) { s.Volume, s.Snapshot, s.Engine, s.Attachment = nil, nil, nil, nil })
	if d := decide(t0, b, s); d.Do == nil || d.Do.String() != "read backup b in the store" {
		t.Fatalf("%+v", d)
	}
	s.Errand = done(orderInspect, 0, nil, outcome{Info: &engineclient.Backup{Name: "b"}})
	if d := decide(t0, b, s); d.Do != nil || b.Status.State != v1beta2.BackupStateInProgress {
		t.Fatalf("in progress elsewhere: %+v %+v", d, b.Status)
	}
	s.Errand.Result.Info = &engineclient.Backup{Name: "b", Created: "x", Size: "7", VolumeName: "v",
		Parameters: map[string]string{"backup-block-size": "16777216"}}
	decide(t0, b, s)
	if b.Status.State != v1beta2.BackupStateCompleted || b.Status.Size != "7" {
		t.Fatalf("%+v", b.Status)
	}
	if d := decide(t0, b, s); d.Do == nil || d.Do.String() != "update *v1beta2.Backup b" {
		t.Fatalf("%+v", d)
	}
	b.Spec.BackupBlockSize = v1beta2.BackupBlockSize16Mi
	s.Errand = store.Errand[outcome]{} // another leader
	if d := decide(t0, b, s); d.Do != nil || d.After != 0 {
		t.Fatalf("it is read again: %+v", d)
	}
}

// TestVerifiedBackups: a complete backup tells what the latest verification that is over has found
// of it, one that was not there then nothing.
func TestVerifiedBackups(t *testing.T) {
	ver := func(ended bool, why string, backups ...v1beta2.VerifiedBackup) *v1beta2.BackupVerification {
		out := &v1beta2.BackupVerification{Backups: backups, Error: why}
		if ended {
			out.EndedAt = metav1.NewTime(t0)
		}
		return out
	}
	type found = v1beta2.VerifiedBackup
	for name, c := range map[string]struct {
		state v1beta2.BackupState
		ver   *v1beta2.BackupVerification
		want  string
	}{
		"never verified": {v1beta2.BackupStateCompleted, nil, "Unknown  "},
		"under way":      {v1beta2.BackupStateCompleted, ver(false, "", found{Name: "b"}), "Unknown  "},
		"failed":         {v1beta2.BackupStateCompleted, ver(true, "no", found{Name: "b"}), "Unknown  "},
		"made since":     {v1beta2.BackupStateCompleted, ver(true, "", found{Name: "c"}), "Unknown  "},
		"sound":          {v1beta2.BackupStateCompleted, ver(true, "", found{Name: "b"}), "True  all that"},
		"damaged": {v1beta2.BackupStateCompleted, ver(true, "", found{Name: "b", Faults: 2}),
			"False Damaged 2 of its"},
		"not complete, somehow": {v1beta2.BackupStateError, ver(true, "", found{Name: "b", Faults: 2}), "Unknown  "},
	} {
		b := ordered(c.state, nil)
		decide(t0, b, world(func(s *seen) { s.Of.Status.Verification = c.ver }))
		got := v1beta2.FindCondition(b.Status.Conditions, v1beta2.BackupConditionVerified)
		text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message)
		if !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
