package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/process/engineclient"
)

// TestRestoreIsOrdered: once in a run that accepts it; again where the process has found a part, or
// has refused.
func TestRestoreIsOrdered(t *testing.T) {
	begin := func(context.Context) error { return nil }
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
			Restore: restoreSeen{Order: c.order, Wait: c.wait, Begin: begin}}
		if d := restore(e, s); (d.Do != nil) != c.do || c.wait > 0 && d.After != c.wait {
			t.Errorf("%s: %+v", c.name, d)
		}
		all := restoreStatus(e, s)
		if got := all["tcp://10.0.0.1:1"].State; got != c.status || len(all) > 1 {
			t.Errorf("%s: %+v, want %q of the replica that takes part", c.name, all, c.status)
		}
	}
}
