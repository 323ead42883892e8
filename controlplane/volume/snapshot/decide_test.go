package snapshot

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a snapshot s1 that was ordered, of a volume v that is attached to n1 and whose engine
// has the snapshots s1, s2 and the head.
func world() (*v1beta2.Snapshot, seen) {
	s := &v1beta2.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s1", UID: "uid", Finalizers: []string{v1beta2.Finalizer}},
		Spec:       v1beta2.SnapshotSpec{Volume: "v", CreateSnapshot: true},
	}
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "n1", "n1", v1beta2.VolumeStateAttached
	v.Status.OwnerID, v.Status.Robustness = "n1", v1beta2.VolumeRobustnessHealthy
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-e-0"}}
	e.Spec.VolumeName, e.Spec.NodeID, e.Spec.Active = "v", "n1", true
	e.Status.CurrentState, e.Status.IP, e.Status.Port = v1beta2.InstanceStateRunning, "10.0.0.1", 10000
	e.Status.CurrentSize = 1 << 30
	e.Status.Snapshots = map[string]v1beta2.SnapshotInfo{
		"s1": {Name: "s1", Children: map[string]bool{"s2": true}, Created: "2026-01-01T00:00:00Z", Size: "42",
			UserCreated: true, Labels: map[string]string{"a": "b"}},
		"s2":                   {Name: "s2", Parent: "s1", Children: map[string]bool{v1beta2.VolumeHeadName: true}},
		v1beta2.VolumeHeadName: {Name: v1beta2.VolumeHeadName, Parent: "s2"},
	}
	a := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	return s, seen{Volume: v, Attachment: a, Engine: e, Reachable: true,
		At: Place{Node: "n2", Up: map[string]bool{"n1": true, "n2": true, "n3": true}}}
}

const ticketID = "snapshot-controller-s1"

func (g *seen) put(node string) {
	g.Attachment.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{ticketID: {ID: ticketID, NodeID: node,
		Type: v1beta2.AttacherTypeSnapshot}}
}

// change writes a decision's change in a few words.
func change(d loop.Decision) string {
	switch c := d.Do.(type) {
	case nil:
		return ""
	case loop.Call:
		return c.What
	case loop.Delete:
		return "delete"
	case loop.Update:
		switch o := c.Object.(type) {
		case *v1beta2.VolumeAttachment:
			if t, there := o.Spec.AttachmentTickets[ticketID]; there {
				return "ticket for " + t.NodeID
			}
			return "no ticket"
		case *v1beta2.Snapshot:
			if len(o.Finalizers) > 0 {
				return "finalizer"
			}
			return "no finalizer"
		}
	}
	return "something else"
}

// TestDecide is the decision table of docs/design/snapshots.md.
func TestDecide(t *testing.T) {
	const took = "2026-01-01T00:00:00Z"
	deleted := func(s *v1beta2.Snapshot) { s.DeletionTimestamp = &metav1.Time{Time: testNow} }
	unknown := func(g *seen) { delete(g.Engine.Status.Snapshots, "s1") }
	full := func(g *seen) {
		unknown(g)
		g.Engine.Status.Snapshots["s3"] = v1beta2.SnapshotInfo{Name: "s3"}
		g.Engine.Spec.SnapshotMaxCount = 2
	}
	info := func(g *seen, edit func(*v1beta2.SnapshotInfo)) {
		i := g.Engine.Status.Snapshots["s1"]
		edit(&i)
		g.Engine.Status.Snapshots["s1"] = i
	}
	removed := func(g *seen) { info(g, func(i *v1beta2.SnapshotInfo) { i.Removed = true }) }
	for _, tt := range []struct {
		name string
		edit func(s *v1beta2.Snapshot, g *seen)
		want string // the change
		err  string // in status.error
	}{
		{"found", func(*v1beta2.Snapshot, *seen) {}, "", ""},
		{"found without finalizer", func(s *v1beta2.Snapshot, _ *seen) { s.Finalizers = nil }, "finalizer", ""},
		{"found, with a ticket", func(s *v1beta2.Snapshot, g *seen) {
			s.Status.CreationTime = took
			g.put("n1")
		}, "no ticket", ""},
		{"found for the first time, with a ticket", func(_ *v1beta2.Snapshot, g *seen) { g.put("n1") }, "", ""},
		{"to be taken", func(_ *v1beta2.Snapshot, g *seen) { unknown(g) }, "ticket for n1", ""},
		{"to be taken, ticket", func(_ *v1beta2.Snapshot, g *seen) { unknown(g); g.put("n1") },
			"take snapshot s1 of volume v", ""},
		{"to be taken, an order is not answered yet", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.put("n1")
			g.Asked = true
		}, "", "waiting for an answer of the engine of volume v"},
		{"to be taken, at rest", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Volume.Spec.NodeID = false, ""
		}, "ticket for n2", "waiting for the engine of volume v to run"},
		{"to be taken, at rest, copies away", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Volume.Spec.NodeID, g.Lacks = false, "", "too few"
		}, "", "waiting for the engine of volume v to run: too few"},
		{"to be taken, being attached, copies away", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Lacks = false, "too few"
			g.put("n1")
		}, "no ticket", "waiting for the engine of volume v to run: too few"},
		{"to be taken, being attached", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Volume.Spec.NodeID = false, ""
			g.put("n3")
		}, "", "waiting for the engine of volume v to run"},
		{"to be taken, the ticket's node is down", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Volume.Spec.NodeID = false, ""
			g.put("down")
		}, "ticket for n2", "waiting for the engine of volume v to run"},
		{"to be taken, somebody attaches elsewhere", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Volume.Spec.NodeID = false, "n4"
			g.put("n2")
		}, "ticket for n4", "waiting for the engine of volume v to run"},
		{"to be taken, nowhere to go", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Volume.Spec.NodeID, g.At.Node = false, "", ""
		}, "", "waiting for the engine of volume v to run"},
		{"to be taken, no attachment yet", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Reachable, g.Attachment, g.Engine = false, nil, nil
		}, "", "waiting for the engine of volume v to run"},
		{"to be taken, refused", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), Refusal: "too many", At: testNow}
		}, "", "too many"},
		{"to be taken, by a name that no engine takes", func(s *v1beta2.Snapshot, g *seen) {
			s.Name = strings.Repeat("x", 226)
			unknown(g)
			id := naming.AttachmentTicketID(string(v1beta2.AttacherTypeSnapshot), s.Name)
			g.Attachment.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{id: {ID: id, NodeID: "n1"}}
		}, "no ticket", "at most 225 are allowed; delete it"},
		{"to be taken, never", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.put("n1")
			g.Engine.Spec.Image = "i"
			g.Tried = attempt{Refusal: "labels are too long", Impossible: "i"}
		}, "no ticket", "labels are too long; delete it"},
		{"to be taken, refused for long", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), Refusal: "not yet", At: testNow.Add(-refusedFor)}
		}, "take snapshot s1 of volume v", ""},
		{"to be taken, refused by the engine as it was", func(_ *v1beta2.Snapshot, g *seen) {
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), Refusal: "too many", At: testNow}
			unknown(g)
		}, "take snapshot s1 of volume v", ""},
		{"to be taken, as many as may be", func(_ *v1beta2.Snapshot, g *seen) {
			full(g)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), Refusal: "too many", At: testNow}
		}, "no ticket", "the volume has 2 snapshots, and may have 2"},
		{"to be taken, as many as may be, at rest", func(_ *v1beta2.Snapshot, g *seen) {
			full(g)
			g.Reachable, g.Volume.Spec.NodeID, g.Engine.Status.SnapshotsError = false, "", "no"
		}, "", "the volume has 2 snapshots, and may have 2"},
		{"to be taken, one of as many as may be was removed", func(_ *v1beta2.Snapshot, g *seen) {
			full(g)
			g.put("n1")
			g.Engine.Status.Snapshots["s3"] = v1beta2.SnapshotInfo{Name: "s3", Removed: true}
		}, "take snapshot s1 of volume v", ""},
		{"to be taken, more may be now", func(_ *v1beta2.Snapshot, g *seen) {
			full(g)
			g.Engine.Spec.SnapshotMaxCount = 3
		}, "ticket for n1", ""},
		{"to be taken, no limit is known", func(_ *v1beta2.Snapshot, g *seen) {
			full(g)
			g.Engine.Spec.SnapshotMaxCount = 0
		}, "ticket for n1", ""},
		{"to be taken, faulted", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Volume.Status.Robustness = v1beta2.VolumeRobustnessFaulted
		}, "", "the volume is faulted; salvage it"},
		{"to be taken, migrating", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Volume.Spec.MigrationNodeID = "n2"
		}, "", "cannot operate during migration"},
		{"to be taken, upgrading", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Volume.Status.CurrentImage, g.Volume.Spec.Image = "old", "new"
		}, "", "waiting for the upgrade of the engine of volume v"},
		{"to be taken, detached with an older image", func(_ *v1beta2.Snapshot, g *seen) {
			unknown(g)
			g.Volume.Status.CurrentImage, g.Volume.Spec.Image = "old", "new"
			g.Volume.Status.State, g.Volume.Spec.NodeID, g.Reachable = v1beta2.VolumeStateDetached, "", false
		}, "ticket for n2", "waiting for the engine of volume v to run"},

		{"lost", func(s *v1beta2.Snapshot, g *seen) { unknown(g); s.Status.CreationTime = took }, "", lost},
		{"lost and told", func(s *v1beta2.Snapshot, g *seen) {
			unknown(g)
			s.Status.CreationTime, s.Status.Error = took, lost
		}, "", lost},
		{"lost while the engine has told nothing", func(s *v1beta2.Snapshot, g *seen) {
			unknown(g)
			s.Status.CreationTime, g.Engine.Status.SnapshotsError = took, "no"
		}, "", ""},
		{"lost and told, not ordered", func(s *v1beta2.Snapshot, g *seen) {
			unknown(g)
			s.Status.CreationTime, s.Status.Error, s.Spec.CreateSnapshot = took, lost, false
		}, "no finalizer", lost},
		{"lost, not ordered, without finalizer", func(s *v1beta2.Snapshot, g *seen) {
			unknown(g)
			s.Status.CreationTime, s.Status.Error, s.Spec.CreateSnapshot, s.Finalizers = took, lost, false, nil
		}, "delete", lost},
		{"never there, not ordered", func(s *v1beta2.Snapshot, g *seen) {
			unknown(g)
			s.Status.Error, s.Spec.CreateSnapshot = lost, false
		}, "", lost},

		{"deleted", func(s *v1beta2.Snapshot, _ *seen) { deleted(s) }, "ticket for n1", ""},
		{"deleted, ticket", func(s *v1beta2.Snapshot, g *seen) { deleted(s); g.put("n1") },
			"remove snapshot s1 of volume v", ""},
		{"deleted at rest", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			g.Reachable, g.Volume.Spec.NodeID = false, ""
		}, "ticket for n2", "waiting for the engine of volume v to run"},
		{"deleted and marked", func(s *v1beta2.Snapshot, g *seen) { deleted(s); removed(g); g.put("n1") },
			"purge the snapshots of volume v", ""},
		{"deleted and being purged", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			g.put("n1")
			g.Engine.Status.PurgeStatus = map[string]v1beta2.PurgeStatus{"r": {IsPurging: true}}
		}, "", "its space is being given back"},
		{"deleted, left by a purge", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			g.put("n1")
			g.Engine.Status.PurgeStatus = map[string]v1beta2.PurgeStatus{"r": {Error: "bad disk"}}
			g.Tried = attempt{Of: outline(g.Engine), At: testNow.Add(-time.Second)}
		}, "", "a purge has left it: replica at r: bad disk"},
		{"deleted, left by a purge a minute ago", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), At: testNow.Add(-time.Minute)}
		}, "purge the snapshots of volume v", ""},
		{"deleted, a purge of it was refused for long", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), Refusal: "not now", At: testNow.Add(-refusedFor)}
		}, "purge the snapshots of volume v", ""},
		{"deleted, the node is busy", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			g.put("n1")
			g.Crowded = true
		}, "", "waiting for other purges on node n1"},
		{"deleted, the head stands on it", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			g.put("n1")
			info(g, func(i *v1beta2.SnapshotInfo) { i.Children = map[string]bool{v1beta2.VolumeHeadName: true} })
		}, "no ticket", "the volume's head stands on it"},
		{"deleted, two stand on it", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			removed(g)
			info(g, func(i *v1beta2.SnapshotInfo) { i.Children = map[string]bool{"s2": true, v1beta2.VolumeHeadName: true} })
		}, "", "goes when fewer snapshots stand on it"},
		{"deleted, purges are off", func(s *v1beta2.Snapshot, g *seen) { deleted(s); g.put("n1"); g.PurgeDisabled = true },
			"no ticket", "setting disable-snapshot-purge is on"},
		{"deleted, a volume is filled with it", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			g.put("n1")
			g.ReadBy = "copy"
		}, "no ticket", "volume copy is being filled with it"},
		{"deleted, refused", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), Refusal: "no", At: testNow}
		}, "", "no"},
		{"deleted, faulted", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			g.put("n1")
			g.Volume.Status.Robustness = v1beta2.VolumeRobustnessFaulted
		}, "no ticket", "the volume is faulted; salvage it"},
		{"deleted, migrating", func(s *v1beta2.Snapshot, g *seen) { deleted(s); g.Volume.Spec.MigrationNodeID = "n2" }, "",
			"cannot operate during migration"},
		{"deleted and gone", func(s *v1beta2.Snapshot, g *seen) { deleted(s); unknown(g) }, "no finalizer", ""},
		{"deleted and gone, ticket", func(s *v1beta2.Snapshot, g *seen) { deleted(s); unknown(g); g.put("n1") },
			"no ticket", ""},
		{"deleted, asked for, not listed by this engine", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			unknown(g)
			g.put("n1")
			s.Status.RequestedTime, g.Engine.Status.SnapshotsError = took, "no"
		}, "", "waiting for the engine's list of snapshots"},
		{"deleted, asked for, at rest", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			unknown(g)
			s.Status.RequestedTime, g.Engine.Status.SnapshotsError = took, "no"
			g.Reachable, g.Volume.Spec.NodeID = false, ""
		}, "ticket for n2", "waiting for the engine of volume v to run"},
		{"deleted, asked for, not in a list that may be older", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			unknown(g)
			g.put("n1")
			s.Status.RequestedTime, g.PurgeDisabled = took, true
		}, "look for snapshot s1 of volume v", ""},
		{"deleted, asked for, not taken", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			unknown(g)
			s.Status.RequestedTime = took
			g.Tried = attempt{Of: outline(g.Engine), At: testNow, Looked: true}
		}, "no finalizer", ""},
		{"deleted, asked for, taken and not in the list yet", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			unknown(g)
			g.put("n1")
			s.Status.RequestedTime = took
			g.Tried = attempt{Of: outline(g.Engine), At: testNow, Looked: true, There: true}
		}, "", "waiting for the engine's list of snapshots"},
		{"deleted, asked for, a look at the engine as it was", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			g.put("n1")
			g.Tried = attempt{Of: outline(g.Engine), At: testNow, Looked: true}
			unknown(g)
			s.Status.RequestedTime = took
		}, "look for snapshot s1 of volume v", ""},
		{"deleted with its volume", func(s *v1beta2.Snapshot, g *seen) {
			deleted(s)
			g.put("n1")
			g.Volume.DeletionTimestamp = s.DeletionTimestamp
		}, "no finalizer", ""},
		{"deleted, no volume", func(s *v1beta2.Snapshot, g *seen) { deleted(s); g.Volume = nil }, "no finalizer", ""},
		{"no volume", func(_ *v1beta2.Snapshot, g *seen) { g.Volume = nil }, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, g := world()
			tt.edit(s, &g)
			d := decide(testNow, s, g)
			if got := change(d); got != tt.want || (tt.err == "") != (s.Status.Error == "") ||
				!strings.Contains(s.Status.Error, tt.err) {
				t.Errorf("change %q, error %q; want %q, %q", got, s.Status.Error, tt.want, tt.err)
			}
			before := s.DeepCopy()
			if again := change(decide(testNow, s, g)); again != tt.want && s.Status.Error != lost &&
				!strings.HasPrefix(tt.name, "found for the first") {
				t.Errorf("then %q, %+v, %+v", again, before.Status, s.Status)
			}
		})
	}
}

// TestStatus: the object shows what the engine says.
func TestStatus(t *testing.T) {
	s, g := world()
	s.Status.Parent, s.Status.Checksum, s.Status.ChecksumCalculatedAt = "s0", "c", "then"
	d := decide(testNow, s, g)
	st := s.Status
	if !st.ReadyToUse || st.MarkRemoved || !st.UserCreated || st.Size != 42 || st.RestoreSize != 1<<30 ||
		st.Parent != "" ||
		!st.Children["s2"] || st.CreationTime != "2026-01-01T00:00:00Z" || st.Labels["a"] != "b" || st.OwnerID != "n1" ||
		st.Checksum != "" || st.ChecksumCalculatedAt != "" || st.Error != "" {
		t.Errorf("%+v", st)
	}
	if len(d.Events) != 1 || d.Events[0].Reason != "Create" {
		t.Errorf("events %+v", d.Events)
	}
	s.Status.Checksum = "c"
	if d = decide(testNow, s, g); len(d.Events) != 0 || s.Status.Checksum != "c" {
		t.Errorf("again: %+v, %+v", d.Events, s.Status)
	}
	i := g.Engine.Status.Snapshots["s1"]
	i.Removed = true
	g.Engine.Status.Snapshots["s1"] = i
	if d = decide(testNow, s, g); s.Status.ReadyToUse || !s.Status.MarkRemoved || len(d.Events) != 1 ||
		d.Events[0].Reason != "Update" {
		t.Errorf("%+v, %+v", s.Status, d.Events)
	}
	delete(g.Engine.Status.Snapshots, "s1")
	if d = decide(testNow, s, g); len(d.Events) != 1 || d.Events[0].Reason != "Delete" {
		t.Errorf("%+v, %+v", s.Status, d.Events)
	}
	g.Volume.Spec.Encrypted, g.Engine.Status.CurrentSize = true, 1<<30+v1beta2.LUKSHeaderBytes
	if decide(testNow, s, g); s.Status.RestoreSize != 1<<30 {
		t.Errorf("of an encrypted volume: %d bytes", s.Status.RestoreSize)
	}
}

// TestRefusalsAreRemembered: an order that the engine refuses is not repeated by the loop, one that
// did not reach it is; what is remembered goes with the object.
func TestRefusalsAreRemembered(t *testing.T) {
	r := New(Config{}, nil)
	s, g := world()
	err := r.noted(s, g.Engine, engineclient.ErrUnavailable)
	if !errors.Is(err, engineclient.ErrUnavailable) || r.attempt(s).Refusal != "" {
		t.Errorf("%v, %+v", err, r.attempt(s))
	}
	for _, refusal := range []error{engineclient.ErrPrecondition, engineclient.ErrInvalid, engineclient.ErrNotFound} {
		err := r.noted(s, g.Engine, refusal)
		if got := r.attempt(s); err != nil || got.Refusal != refusal.Error() || got.Of != outline(g.Engine) {
			t.Errorf("%v, %+v", err, got)
		}
	}
	r.forget("s1")
	if got := r.attempt(s); got != (attempt{}) || len(r.uids) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestEngineUpdates: an engine wakes those that its change concerns, and its head growing nobody.
func TestEngineUpdates(t *testing.T) {
	_, g := world()
	for _, tt := range []struct {
		name string
		edit func(e *v1beta2.Engine)
		want bool // whether those that wait are woken
	}{
		{"the head grows", func(e *v1beta2.Engine) {
			h := e.Status.Snapshots[v1beta2.VolumeHeadName]
			h.Size = "7"
			e.Status.Snapshots[v1beta2.VolumeHeadName] = h
		}, false},
		{"a rebuild goes on", func(e *v1beta2.Engine) {
			e.Status.RebuildStatus = map[string]v1beta2.RebuildStatus{"r": {Progress: 3}}
		}, false},
		{"it ends", func(e *v1beta2.Engine) { e.Status.CurrentState = v1beta2.InstanceStateError }, true},
		{"a snapshot goes", func(e *v1beta2.Engine) { delete(e.Status.Snapshots, "s2") }, true},
		{"a purge begins", func(e *v1beta2.Engine) {
			e.Status.PurgeStatus = map[string]v1beta2.PurgeStatus{"r": {IsPurging: true}}
		}, true},
		{"limits", func(e *v1beta2.Engine) { e.Status.SnapshotMaxCount = 9 }, true},
		{"limits that are wanted", func(e *v1beta2.Engine) { e.Spec.SnapshotMaxCount = 9 }, true},
	} {
		after := g.Engine.DeepCopy()
		tt.edit(after)
		if got := concernsWaiting(g.Engine, after); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
