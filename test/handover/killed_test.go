package handover_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// Who has the volume at the end of a live upgrade that went wrong.
const (
	theNew    = "new"
	nobody    = "nobody"    // the engine has ended as if it had been killed: another one can be started
	untouched = "untouched" // the old one, which did not even pause
)

// Both engines at each step, as docs/design/upgrade.md has it.
var failures = []struct {
	side, place, what string
	end               string
}{
	{theNew, "prepared", "refuse", untouched},
	{theNew, "prepared", "die", untouched},
	{theNew, "prepared", "stop", theNew},
	{theNew, "told", "refuse", nobody},
	{theNew, "told", "die", nobody},
	{theNew, "told", "stop", theNew},
	{theNew, "offering", "refuse", nobody},
	{theNew, "offering", "die", nobody},
	{theNew, "offering", "stop", theNew},
	{theOld, "asked", "refuse", untouched},
	{theOld, "asked", "die", nobody},
	{theOld, "asked", "stop", untouched},
	{theOld, "left", "die", nobody},
	{theOld, "left", "stop", nobody},
	{theOld, "leaving", "die", nobody},
	{theOld, "leaving", "stop", nobody},
}

// theOld is the engine that leaves.
const theOld = "old"

var deep = flag.Bool("deep", false, "let both engines fail at every step, not only at some")

// usual are tried in every run: the steps around the one that decides.
var usual = []string{"new at prepared die", "new at told die", "new at offering die", "old at asked die",
	"old at left die", "old at leaving die"}

// hang is how long a process that was stopped stays so where the other one must notice: longer than
// it waits for anything.
const hang = 15 * time.Second

func TestFailures(t *testing.T) {
	for _, f := range failures {
		name := fmt.Sprintf("%s at %s %s", f.side, f.place, f.what)
		t.Run(name, func(t *testing.T) {
			if !*deep && !slices.Contains(usual, name) {
				lack.Later(t, "takes a minute with all the others; run with -deep")
			}
			t.Parallel()
			p := failing(t, f.side, f.place+":"+f.what)
			before := p.epoch(p.old)
			env := []string(nil)
			if f.side == theNew {
				env = []string{"ANKOLE_STOP_AT=" + f.place + ":" + f.what}
			}
			p.new = p.v.Upgrade(env, p.next...)
			if f.what == "stop" {
				p.resume(f.side)
			}
			p.ends(f.end, before)
		})
	}
}

// failing is a place whose old engine fails if that is the side.
func failing(t *testing.T, side, at string) *place {
	p := &place{t: t, v: open(t, rig.Config{Replicas: 2, Size: 16 << 20, NoFrontend: true})}
	if side == theOld {
		p.v.EngineEnv = []string{"ANKOLE_STOP_AT=" + at}
	}
	p.v.SpawnEngine()
	p.v.EngineEnv = nil
	p.old = p.v.Engine()
	serves(t, "old engine", p.old)
	p.next = standbys(p.v)
	return p
}

// One replica's process, old or new, at each step of its own. The new engine has the volume in the
// end, perhaps without that replica.
var replicaFailures = []struct{ side, place, what string }{
	{theOld, "releasing", "refuse"},
	{theOld, "releasing", "die"},
	{theOld, "releasing", "stop"},
	{theNew, "acquiring", "refuse"},
	{theNew, "acquiring", "die"},
	{theNew, "acquiring", "stop"},
	{theNew, "acquired", "die"},
	{theNew, "acquired", "stop"},
}

func TestReplicaFailures(t *testing.T) {
	for _, f := range replicaFailures {
		name := fmt.Sprintf("%s at %s %s", f.side, f.place, f.what)
		t.Run(name, func(t *testing.T) {
			if !*deep && f.what != "die" {
				lack.Later(t, "takes a minute with all the others; run with -deep")
			}
			t.Parallel()
			p := &place{t: t, v: open(t, rig.Config{Replicas: 2, Size: 16 << 20, NoFrontend: true})}
			env := []string{"ANKOLE_STOP_AT=" + f.place + ":" + f.what}
			failing := p.v.Replicas[0]
			if f.side == theOld {
				failing.Stop()
				failing.Env = env
				failing.Start()
			}
			p.v.SpawnEngine()
			p.old = p.v.Engine()
			serves(t, "old engine", p.old)
			for i, r := range p.v.Replicas {
				s := p.v.Imitate(r)
				s.Standby = true
				if i == 0 && f.side == theNew {
					failing, s.Env = s, env
				}
				p.next = append(p.next, s.Start())
			}
			p.new = p.v.Upgrade(nil, p.next...)
			wait.Until(t, "the new engine serves", func() bool {
				s, err := p.new.State()
				return err == nil && p.new.Serves() && !s.Suspended && rig.Modes(s)[enginev1.Mode_MODE_RW] > 0
			})
			if code := p.old.Exit(); code != 0 {
				t.Errorf("the old engine ended with %d:\n%s", code, p.old.Log())
			}
			if f.what == "stop" {
				failing.Signal(syscall.SIGCONT)
			}
			p.useful(p.new)
		})
	}
}

func (p *place) epoch(e *rig.Engine) int64 {
	p.t.Helper()
	s, err := e.State()
	if err != nil {
		p.t.Fatal(err)
	}
	return s.Epoch
}

// resume waits until the engine has stopped itself, leaves it so, and lets it go on.
func (p *place) resume(side string) {
	p.t.Helper()
	stopped := p.old
	if side == theNew {
		stopped = p.new
	}
	wait.Until(p.t, "the engine stops itself", func() bool { return stopped.Stopped() || !stopped.Alive() })
	time.AfterFunc(hang, func() { stopped.Signal(syscall.SIGCONT) })
}

// ends checks who has the volume, and that it can be used.
func (p *place) ends(end string, before int64) {
	p.t.Helper()
	switch end {
	case untouched:
		if p.new.Exit() == 0 {
			p.t.Errorf("the new engine ended with 0:\n%s", p.new.Log())
		}
		wait.Until(p.t, "the old engine serves as before", func() bool {
			s, err := p.old.State()
			return err == nil && rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 && s.Epoch == before
		})
		p.useful(p.old)
	case theNew:
		serves(p.t, "the new engine", p.new)
		if code := p.old.Exit(); code != 0 {
			p.t.Errorf("the old engine ended with %d:\n%s", code, p.old.Log())
		}
		p.useful(p.new)
	case nobody:
		if p.new.Exit() == 0 {
			p.t.Errorf("the new engine ended with 0:\n%s", p.new.Log())
		}
		_ = p.old.Exit()
		p.startAgain()
		p.useful(p.v.Engine())
	}
}

// startAgain does what the control plane does after the end of the engine in a live upgrade: it
// ends the new replicas, and starts an engine with the old ones.
func (p *place) startAgain() {
	p.t.Helper()
	for _, r := range p.next {
		r.Kill()
	}
	p.v.NewEngine(p.old.Host, p.v.Replicas...)
	if strings.Contains(p.v.Engine().Name, p.old.Name) {
		p.t.Fatal("the rig has given the same name again")
	}
	serves(p.t, "an engine that is started afterwards", p.v.Engine())
}

// useful has the engine change the volume, which fails if it does not have it.
func (p *place) useful(e *rig.Engine) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	wait.Until(p.t, "a snapshot", func() bool {
		_, err = e.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: "after"})
		code := status.Code(err)
		return code != codes.FailedPrecondition && code != codes.Unavailable
	})
	if err != nil {
		p.t.Fatalf("%v\n%s", err, e.Log())
	}
	p.v.SetEngine(e)
	p.v.StopEngine()
}
