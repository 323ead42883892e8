package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// TestRestoreIsOrdered: once in a run that accepts it; again where the process has found a part, or
// has refused.
func TestRestoreIsOrdered(t *testing.T) {
	order := func(over bool, err error, failures int) store.Errand[restored] {
		return store.Errand[restored]{Order: "x", Over: over, Err: err, Failures: failures}
	}
	have := func(state string, interrupted bool) engineclient.RestoreProgress {
		return engineclient.RestoreProgress{State: state, Backup: "b", Interrupted: interrupted}
	}
	no := errors.New("no")
	for _, c := range []struct {
		name   string
		state  engineclient.RestoreProgress
		order  store.Errand[restored]
		wait   time.Duration
		last   string
		do     bool
		status string
	}{
		{name: "nothing begun", do: true},
		{name: "of another backup", state: engineclient.RestoreProgress{State: "complete", Backup: "other"}, do: true},
		{name: "being ordered", order: order(false, nil, 0)},
		{name: "accepted, and not shown yet", order: order(true, nil, 0)},
		{name: "under way", state: have("in_progress", false), status: "in_progress"},
		{name: "a part was found", state: have("error", true), do: true},
		{name: "a part was found, and the order is refused", state: have("error", true), order: order(true, no, 1),
			wait: time.Second},
		{name: "refused", order: order(true, no, 1), do: true},
		{name: "refused five times", order: order(true, no, mostRestoreOrders), status: "error"},
		{name: "failed", state: have("error", false), status: "error"},
		{name: "complete", state: have("complete", false), last: "b", status: "complete"},
		{name: "held already", order: store.Errand[restored]{Order: "x", Over: true, Result: restored{Whole: true}},
			status: "complete"},
	} {
		e := &v1beta2.Engine{Spec: v1beta2.EngineSpec{RequestedBackupRestore: "b"},
			Status: v1beta2.EngineStatus{LastRestoredBackup: c.last}}
		s := seen{State: &engineclient.State{Restore: c.state, Replicas: []engineclient.Replica{
			{Address: "10.0.0.1:1", Mode: engineclient.ModeRW}, {Address: "10.0.0.2:1", Mode: engineclient.ModeERR}}},
			Restore: restoreSeen{Order: c.order, Wait: c.wait, Known: true}}
		if d := restore(e, s); (d.Do != nil) != c.do || c.wait > 0 && d.After != c.wait {
			t.Errorf("%s: %+v", c.name, d)
		}
		all := restoreStatus(e, s)
		if got := all["tcp://10.0.0.1:1"].State; got != c.status || len(all) > 1 {
			t.Errorf("%s: %+v, want %q of the replica that takes part", c.name, all, c.status)
		}
	}
}

// TestOrderOfARestore: what settings say of restores is in the order.
func TestOrderOfARestore(t *testing.T) {
	v := &v1beta2.Volume{Spec: v1beta2.VolumeSpec{BackupTargetName: "far"}}
	if got, want := requestOf(v, setting.Values{}), (restoreRequest{from: "far", concurrency: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	got := requestOf(v, setting.Values{setting.BackupBandwidthLimit: "7", setting.RestoreConcurrentLimit: "3"})
	if want := (restoreRequest{from: "far", concurrency: 3, bandwidthMiB: 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRestoresOnANode: no more volumes are restored on a node at a time than the setting says.
func TestRestoresOnANode(t *testing.T) {
	for _, tt := range []struct {
		most, other     string
		restoring, want bool
	}{
		{"1", "n1", true, false}, {"2", "n1", true, true}, {"1", "n2", true, true}, {"1", "n1", false, true},
		{"0", "n2", false, false},
	} {
		v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
		var f engineclient.Fake
		r, e := cloning(t, &f, v)
		r.cfg.Credentials = func(context.Context, *v1beta2.BackupTarget) (map[string]string, error) { return nil, nil }
		var src v1beta2.Engine
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "src-e-0"}, &src); err != nil {
			t.Fatal(err)
		}
		src.Spec.NodeID = tt.other
		src.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{"tcp://1": {IsRestoring: tt.restoring}}
		if err := r.client.Update(t.Context(), &src); err != nil {
			t.Fatal(err)
		}
		e.Spec.NodeID, e.Spec.RequestedBackupRestore, e.Spec.BackupVolume = "n1", "b", "w"
		s, err := r.gatherRestore(t.Context(), e, setting.Values{
			setting.ConcurrentVolumeBackupRestorePerNodeLimit: tt.most})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.carry(t.Context(), e, seen{Restore: s}, orderRestore); err != nil {
			t.Fatal(err)
		}
		if began := r.restores.orders.Of(e.Name).Order != ""; began != tt.want {
			t.Errorf("%+v: begun %v", tt, began)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := r.restores.orders.Start(ended); err != nil { // waits for the order that was begun
			t.Error(err)
		}
	}
}

// TestRestoreWaits: an order that the engine would refuse is not given, and what was restored last
// is no reason to give none where a later restore was cut off.
func TestRestoreWaits(t *testing.T) {
	const rw = engineclient.ModeRW
	of := func(r engineclient.Replica) engineclient.State {
		return engineclient.State{Replicas: []engineclient.Replica{r}}
	}
	for name, c := range map[string]struct {
		state engineclient.State
		last  string
		do    bool
	}{
		"nothing is under way":         {do: true},
		"restored by a former process": {last: "b"},
		"a later one was cut off": {last: "b", do: true, state: engineclient.State{
			Restore: engineclient.RestoreProgress{Backup: "c", State: "error", Interrupted: true}}},
		"held": {last: "a", state: engineclient.State{
			Restore: engineclient.RestoreProgress{Backup: "b", State: "complete"}}},
		"the former one is held": {last: "a", do: true, state: engineclient.State{
			Restore: engineclient.RestoreProgress{Backup: "a", State: "complete"}}},
		"a purge":        {state: of(engineclient.Replica{Mode: rw, Purge: &engineclient.Purge{Running: true}})},
		"a former purge": {do: true, state: of(engineclient.Replica{Mode: rw, Purge: &engineclient.Purge{}})},
		"a rebuild":      {state: of(engineclient.Replica{Mode: engineclient.ModeWO})},
		"an expansion":   {state: engineclient.State{Expanding: true}},
	} {
		e := &v1beta2.Engine{Spec: v1beta2.EngineSpec{RequestedBackupRestore: "b"},
			Status: v1beta2.EngineStatus{LastRestoredBackup: c.last}}
		s := seen{State: &c.state, Restore: restoreSeen{Known: true}}
		if d := restore(e, s); (d.Do != nil) != c.do {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestDamageIsTold: what a restore has left out is told; where the process that has restored it is
// gone, what it has told, or that it is not known.
func TestDamageIsTold(t *testing.T) {
	whole := store.Errand[restored]{Order: "x", Over: true, Result: restored{Whole: true}}
	for name, c := range map[string]struct {
		state, url string
		order      store.Errand[restored]
		accepts    bool
		before     string
		want       string
	}{
		"complete":                              {state: "complete", url: "u", accepts: true, want: "[0, 5)"},
		"under way":                             {state: "in_progress", url: "u", accepts: true},
		"held already":                          {order: whole},
		"held already, and damage is accepted":  {order: whole, accepts: true, want: damageUnknown},
		"found by the process":                  {state: "complete"},
		"found, and damage is accepted":         {state: "complete", accepts: true, want: damageUnknown},
		"found, and it was told":                {state: "complete", accepts: true, before: "[7, 9)", want: "[7, 9)"},
		"found, and it was told and is decided": {state: "complete", before: "[7, 9)"},
	} {
		e := &v1beta2.Engine{Spec: v1beta2.EngineSpec{RequestedBackupRestore: "b"}}
		e.Status.RestoreStatus = map[string]v1beta2.RestoreStatus{"tcp://x": {LastRestored: "b", Damage: c.before}}
		have := engineclient.RestoreProgress{State: c.state, Backup: "b", URL: c.url}
		if c.url != "" {
			have.Damage = "[0, 5)"
		}
		s := seen{State: &engineclient.State{Restore: have, Replicas: []engineclient.Replica{{Address: "10.0.0.1:1",
			Mode: engineclient.ModeRW}}}, Restore: restoreSeen{Order: c.order,
			Request: restoreRequest{accepts: c.accepts}}}
		if got := restoreStatus(e, s)["tcp://10.0.0.1:1"].Damage; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
