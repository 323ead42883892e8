package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/backup"
	backuptarget "ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

// Results of backups are kept for a while, failed ones longer; one that is in progress always.
func TestResultsOfBackupsAreBounded(t *testing.T) {
	p := &engineProcess{}
	p.state.init()
	p.backups.init(p)
	add := func(name string) {
		t.Helper()
		if err := p.backups.add(&enginev1.Backup{Name: name, State: backupRuns}); err != nil {
			t.Fatal(err)
		}
	}
	add("runs")
	for i := range 20 {
		good, bad := fmt.Sprintf("good-%02d", i), fmt.Sprintf("bad-%02d", i)
		add(good)
		add(bad)
		if err := p.backups.add(&enginev1.Backup{Name: bad}); status.Code(err) != codes.AlreadyExists {
			t.Fatalf("another one of the name: %v", err)
		}
		p.backups.finished(good, nil)
		p.backups.finished(bad, errors.New("no"))
	}
	var s enginev1.State
	p.backups.show(&s)
	if len(s.Backups) != 1+keptComplete+keptFailed || s.Backups["runs"] == nil || s.Backups["good-15"] == nil ||
		s.Backups["good-14"] != nil || s.Backups["bad-10"] == nil || s.Backups["bad-09"] != nil {
		t.Errorf("%v", s.Backups)
	}
	if b := s.Backups["bad-19"]; b.State != "error" || b.Error != "no" || b.Progress == 100 {
		t.Errorf("%v", b)
	}
	add("bad-19") // again
	p.backups.finished("bad-19", nil)
	p.backups.show(&s)
	if b := s.Backups["bad-19"]; b.State != "complete" || b.Error != "" || b.Progress != 100 {
		t.Errorf("%v", b)
	}
	p.backups.end()
	if p.backups.ctx.Err() == nil {
		t.Error("the work goes on")
	}
}

func TestCodesOfBackups(t *testing.T) {
	for err, want := range map[error]codes.Code{
		backup.ErrNotFound: codes.NotFound, backup.ErrExists: codes.AlreadyExists, errRestored: codes.AlreadyExists,
		backuptarget.ErrURL: codes.InvalidArgument,
		worker.ErrHeld:      codes.Unavailable, worker.ErrGivenUp: codes.Unavailable, errEngineEnds: codes.Unavailable,
		errors.New("else"): codes.FailedPrecondition,
	} {
		if got := status.Code(backupStatus(fmt.Errorf("x: %w", err))); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// TestDamageOfARestoreIsKept: what the worker has left out is in the state, in words.
func TestDamageOfARestoreIsKept(t *testing.T) {
	p := &engineProcess{}
	p.state.init()
	p.backups.init(p)
	r := &restoring{b: &p.backups}
	lost := func(offset int64) backup.Damage {
		return backup.Damage{Extent: backup.Extent{Offset: offset, Length: 2 << 20}, Missing: true}
	}
	for want, damage := range map[string][]backup.Damage{"": nil,
		"6291456 bytes: [0, 4194304) [8388608, 10485760)": {lost(0), lost(2 << 20), lost(8 << 20)}} {
		result, err := json.Marshal(backup.Restored{SizeBytes: 1 << 30, Damage: damage})
		if err != nil {
			t.Fatal(err)
		}
		var s enginev1.State
		if err := r.noteDamage(result); err != nil {
			t.Error(err)
		}
		if p.backups.show(&s); s.RestoreDamage != want {
			t.Errorf("%q, want %q", s.RestoreDamage, want)
		}
	}
	if err := r.noteDamage([]byte("x")); err == nil {
		t.Error("a result that cannot be read is taken for no damage")
	}
}
