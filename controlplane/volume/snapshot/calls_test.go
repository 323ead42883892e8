package snapshot

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/engineclient"
)

// failing are engines that refuse to purge and to trim, with the error.
type failing struct {
	Engines
	err error
}

func (f failing) SnapshotPurge(context.Context, engineclient.Target, bool) error { return f.err }

func (f failing) FilesystemTrim(context.Context, engineclient.Target) (int64, error) { return 0, f.err }

// TestFailedOrdersAreTold: a purge that cannot begin and a trim that fails are events of the
// engine; one that works, or whose client has gone away, is none.
func TestFailedOrdersAreTold(t *testing.T) {
	_, g := world()
	for _, tt := range []struct {
		err         error
		purge, trim string
	}{
		{errors.New("no room"), "Warning FailedStartingSnapshotPurge no room", "Warning FailedFilesystemTrim no room"},
		{nil, "", ""},
		{context.Canceled, "", ""},
	} {
		events := record.NewFakeRecorder(4)
		c := Calls{Engines: failing{err: tt.err}, Events: events}
		told := func() string {
			select {
			case text := <-events.Events:
				return text
			default:
				return ""
			}
		}
		if err := c.Purge(context.Background(), g.Engine); !errors.Is(err, tt.err) {
			t.Errorf("purge: %v", err)
		}
		if got := told(); got != tt.purge {
			t.Errorf("purge with %v: %q, want %q", tt.err, got, tt.purge)
		}
		if _, err := c.Trim(context.Background(), g.Engine); !errors.Is(err, tt.err) {
			t.Errorf("trim: %v", err)
		}
		if got := told(); got != tt.trim {
			t.Errorf("trim with %v: %q, want %q", tt.err, got, tt.trim)
		}
	}
	if err := (Calls{Engines: failing{err: errors.New("no room")}}).Purge(context.Background(), g.Engine); err == nil {
		t.Error("without a recorder the error is lost")
	}
}

// slow is an engine whose list has what was taken a moment ago, which its object does not show yet.
type slow struct {
	Engines
	has map[string]engineclient.Snapshot
	err error
	// removal is what happens when a snapshot is to be removed, if it is not nil.
	removal func(name string) error
}

func (s slow) Get(context.Context, engineclient.Target) (engineclient.State, error) {
	return engineclient.State{Snapshots: s.has}, s.err
}

func (s slow) SnapshotRemove(_ context.Context, _ engineclient.Target, name string) error {
	if s.removal != nil {
		return s.removal(name)
	}
	if _, there := s.has[name]; !there {
		return engineclient.ErrNotFound
	}
	return nil
}

// TestLookWhileTheOrderWaits: an engine that has an order to take a snapshot, and has not taken it
// yet, lists none and refuses to remove one. That is no proof that there is none; its other answers
// are.
func TestLookWhileTheOrderWaits(t *testing.T) {
	for _, tt := range []struct {
		name    string
		removal error
		fails   error // the look
		want    attempt
		then    string // the change
	}{
		{"the order waits", engineclient.ErrUnavailable, engineclient.ErrUnavailable, attempt{},
			"look for snapshot s1 of volume v"},
		{"the engine ends", engineclient.ErrPrecondition, engineclient.ErrPrecondition, attempt{},
			"look for snapshot s1 of volume v"},
		{"none", engineclient.ErrNotFound, nil, attempt{Looked: true}, "no ticket"},
		{"no engine has such a name", engineclient.ErrInvalid, nil, attempt{Looked: true}, "no ticket"},
		{"taken after the list was made", nil, nil, attempt{Looked: true, There: true}, ""},
	} {
		s, g := world()
		delete(g.Engine.Status.Snapshots, "s1")
		s.DeletionTimestamp, s.Status.RequestedTime = &metav1.Time{Time: testNow}, "2026-01-01T00:00:00Z"
		g.put("n1")
		r := New(Config{}, slow{removal: func(name string) error {
			if name != "s1" {
				t.Errorf("%s: removal of %s", tt.name, name)
			}
			return tt.removal
		}})
		if err := r.look(t.Context(), s, g.Engine); !errors.Is(err, tt.fails) {
			t.Errorf("%s: %v", tt.name, err)
		}
		g.Tried = r.attempt(s)
		if got := g.Tried; got.Looked != tt.want.Looked || got.There != tt.want.There {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if got := change(decide(time.Now(), s, g)); got != tt.then {
			t.Errorf("%s: then %q, want %q", tt.name, got, tt.then)
		}
	}
}

// TestDeletedWhileItIsTaken: an object that is deleted while its snapshot is being taken goes when
// the engine itself says that there is none.
func TestDeletedWhileItIsTaken(t *testing.T) {
	const look = "look for snapshot s1 of volume v"
	for _, taken := range []bool{false, true} {
		s, g := world()
		delete(g.Engine.Status.Snapshots, "s1") // the list is older than the order
		s.DeletionTimestamp, s.Status.RequestedTime = &metav1.Time{Time: testNow}, "2026-01-01T00:00:00Z"
		g.put("n1")
		engines := slow{has: map[string]engineclient.Snapshot{}, err: engineclient.ErrUnavailable}
		if taken {
			engines.has["s1"] = engineclient.Snapshot{Name: "s1", UserCreated: true}
		}
		step := func() string {
			r := New(Config{}, engines)
			r.tried[s.UID] = g.Tried
			d := decide(time.Now(), s, g)
			if call, ok := d.Do.(loop.Call); ok && call.What == look {
				if err := r.carry(t.Context(), s, g, call.Order); !errors.Is(err, engines.err) {
					t.Errorf("%v, want %v", err, engines.err)
				}
			}
			g.Tried = r.attempt(s)
			return change(d)
		}
		if got := step(); got != look {
			t.Errorf("taken %v: %q", taken, got)
		}
		engines.err = nil
		if got := step(); got != look {
			t.Errorf("taken %v, after a look without an answer: %q", taken, got)
		}
		want := "no ticket" // and then the finalizer
		if taken {
			want = ""
		}
		if got := step(); got != want {
			t.Errorf("taken %v: then %q, want %q", taken, got, want)
		}
		g.Engine.Status.Snapshots["s1"] = v1beta2.SnapshotInfo{Name: "s1", UserCreated: true} // the list comes
		if got := step(); taken && got != "remove snapshot s1 of volume v" {
			t.Errorf("when the list has it: %q", got)
		}
	}
}
