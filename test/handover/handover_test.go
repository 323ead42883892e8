// Package handover_test passes volumes from one engine process to the next, with real processes,
// and kills, stops and refuses at every step of it.
package handover_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// engine is the engine program with the places where ANKOLE_STOP_AT stops it.
var engine = sync.OnceValues(func() (string, error) { return rig.Build("engine", rig.StopPoints) })

func open(t *testing.T, cfg rig.Config) *rig.Volume {
	t.Helper()
	bin, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Shares = true // as on the node of a replica
	v, err := rig.Open(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	v.SetBinary(bin)
	return v
}

// standbys starts a second process on every replica's directory.
func standbys(v *rig.Volume) []*rig.Replica {
	var all []*rig.Replica
	for _, r := range v.Replicas {
		s := v.Imitate(r)
		s.Standby = true
		all = append(all, s.Start())
	}
	return all
}

func serves(t *testing.T, what string, e *rig.Engine) {
	t.Helper()
	wait.Until(t, what, func() bool {
		s, err := e.State()
		return err == nil && s.Epoch > 0 && len(s.Replicas) > 0 && !s.Suspended && e.Serves()
	})
}

// place is a volume with an engine, and a second process on every directory.
type place struct {
	t        *testing.T
	v        *rig.Volume
	old, new *rig.Engine
	next     []*rig.Replica
}

func prepare(t *testing.T, cfg rig.Config) *place {
	t.Helper()
	p := &place{t: t, v: open(t, cfg)}
	p.v.SpawnEngine()
	p.old = p.v.Engine()
	serves(t, "old engine", p.old)
	p.next = standbys(p.v)
	return p
}

// taken waits until the new engine serves the volume, and the old one has ended as it should.
func (p *place) taken() {
	p.t.Helper()
	wait.Until(p.t, "the old engine has left, or the new one has ended", func() bool {
		return p.new.Serves() || !p.new.Alive()
	})
	if !p.new.Alive() {
		p.t.Fatalf("the new engine has ended:\n%s\nthe old one says:\n%s", p.new.Log(), p.old.Log())
	}
	serves(p.t, "new engine", p.new)
	if code := p.old.Exit(); code != 0 {
		p.t.Errorf("the old engine ended with %d", code)
	}
	p.v.SetEngine(p.new)
}

// Several upgrades one after the other, each with new replica processes.
func TestHandOver(t *testing.T) {
	p := prepare(t, rig.Config{Replicas: 3, Size: 64 << 20, NoFrontend: true})
	for i := range 3 {
		began := time.Now()
		p.new = p.v.Upgrade(nil, p.next...)
		p.taken()
		s, err := p.new.State()
		if err != nil || s.Epoch != int64(2000+1000*i) || rig.Modes(s)[enginev1.Mode_MODE_RW] != 3 {
			t.Fatalf("upgrade %d: %+v, %v", i, s, err)
		}
		if pause := p.pause(); pause > time.Since(began) {
			t.Errorf("upgrade %d: users have waited for %v", i, pause)
		}
		for j, r := range p.v.Replicas {
			r.Stop()
			if !strings.Contains(p.next[j].Log(), "block map taken over") {
				t.Errorf("upgrade %d: the new replica has built its block map itself:\n%s", i, p.next[j].Log())
			}
		}
		p.v.Replicas, p.old = p.next, p.new
		p.next = standbys(p.v)
	}
	p.v.StopEngine()
}

// pause is how long users have waited in the upgrade by which the new engine came.
func (p *place) pause() (pause time.Duration) {
	p.t.Helper()
	wait.Until(p.t, "the new engine tells of the pause", func() bool {
		s, err := p.new.State()
		pause = time.Duration(s.GetUpgradePauseNanos())
		return err == nil && pause > 0
	})
	return pause
}
