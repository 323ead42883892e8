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

// Who has the volume at the end of a hand-over that went wrong.
const (
	theOld    = "old"
	theNew    = "new"
	nobody    = "nobody"    // an engine has crashed: another one can be started
	untouched = "untouched" // the old one, which did not even pause
	either    = "either"    // the old one, which may have noticed before it paused, or after
)

// Both engines at each step, as docs/design/upgrade.md has it.
var failures = []struct {
	side, place, what string
	end               string
}{
	{theNew, "prepared", "refuse", untouched},
	{theNew, "prepared", "die", untouched},
	{theNew, "prepared", "stop", theNew},
	{theNew, "asked-for", "refuse", either},
	{theNew, "asked-for", "die", either},
	{theNew, "asked-for", "stop", theOld},
	{theNew, "offered-to", "refuse", theOld},
	{theNew, "offered-to", "die", theOld},
	{theNew, "offered-to", "stop", theOld},
	{theNew, "ready", "refuse", theOld},
	{theNew, "ready", "die", theOld},
	{theNew, "ready", "stop", theOld},
	{theNew, "taken", "refuse", nobody},
	{theNew, "taken", "die", nobody},
	{theNew, "taken", "stop", theNew},
	{theOld, "asked", "refuse", untouched},
	{theOld, "asked", "die", nobody},
	{theOld, "asked", "stop", untouched},
	{theOld, "left", "refuse", theOld},
	{theOld, "left", "die", nobody},
	{theOld, "left", "stop", theOld},
	{theOld, "offered", "refuse", theOld},
	{theOld, "offered", "die", theNew},
	{theOld, "offered", "stop", theNew},
}

var deep = flag.Bool("deep", false, "let both engines fail at every step, not only at some")

// usual are tried in every run: the steps around the one that decides.
var usual = []string{"new at asked-for die", "new at ready refuse", "new at ready die", "new at taken die",
	"old at left refuse", "old at offered die"}

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
			p.ends(f.end, f.side, before)
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

// One replica's process, old or new, at each step of its own. The old engine has the volume in the
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
			before := p.epoch(p.old)
			p.new = p.v.Upgrade(nil, p.next...)
			if p.new.Exit() == 0 {
				t.Errorf("the new engine ended with 0:\n%s", p.new.Log())
			}
			wait.Until(t, "the old engine serves again", func() bool {
				s, err := p.old.State()
				return err == nil && s.Epoch > before && rig.Modes(s)[enginev1.Mode_MODE_RW] > 0
			})
			if f.what == "stop" {
				failing.Signal(syscall.SIGCONT)
			}
			p.useful(p.old)
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

// ends checks who has the volume, that the other one has not, and that it can be used.
func (p *place) ends(end, side string, before int64) {
	p.t.Helper()
	switch end {
	case untouched, theOld, either:
		wait.Until(p.t, "the new engine ends", func() bool { return !p.new.Alive() })
		if p.new.Exit() == 0 {
			p.t.Errorf("the new engine ended with 0:\n%s", p.new.Log())
		}
		wait.Until(p.t, "the old engine serves, with a new epoch if it has paused", func() bool {
			s, err := p.old.State()
			return err == nil && rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 &&
				(end == either || (s.Epoch == before) == (end == untouched))
		})
		p.useful(p.old)
	case theNew:
		wait.Until(p.t, "the new engine serves", p.new.Serves)
		p.old.Signal(syscall.SIGHUP)
		_ = p.old.Exit()
		p.useful(p.new)
	case nobody:
		wait.Until(p.t, "the new engine ends", func() bool { return !p.new.Alive() })
		if side == theOld {
			p.old.Signal(syscall.SIGHUP)
		}
		// Without being told, where it was the new one that died after it had taken the volume.
		if code := p.old.Exit(); side == theNew && code == 0 {
			p.t.Errorf("the old engine ended with 0 although nobody has the volume:\n%s", p.old.Log())
		}
		// Whichever processes have the directories, or any where none has.
		replicas := p.next
		if side == theOld {
			replicas = p.v.Replicas
		}
		p.v.NewEngine(p.old.Host, replicas...)
		if strings.Contains(p.v.Engine().Name, p.old.Name) {
			p.t.Fatal("the rig has given the same name again")
		}
		serves(p.t, "an engine that is started afterwards", p.v.Engine())
		p.useful(p.v.Engine())
	}
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
