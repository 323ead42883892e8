package crash

import (
	"syscall"
	"testing"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// migration is a volume that is served on one node and offered on another one too, as a live
// migration of a virtual machine needs it: a journal is its user, on one node after the other.
type migration struct {
	*testing.T
	v              *rig.Volume
	j              *rig.Journal
	source         *rig.Engine
	standIn        *rig.Engine
	before, behind rig.Target
}

// migrate brings a volume whose user writes on the first node, and whose device is open on the
// second.
func migrate(t *testing.T) *migration {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here:", err)
	}
	t.Parallel()
	src := seeded.New(t, "P3: while a volume migrates, one engine serves both nodes, and no write of a replaced one lands")
	v, err := rig.Open(t, rig.Config{Replicas: 2, Size: 32 * mib, Transport: "fuse-loop", Keep: true,
		EngineFlags: engineFlags})
	if err != nil {
		t.Fatal(err)
	}
	m := &migration{T: t, v: v, j: rig.NewJournal(v.Size, src.Fresh())}
	v.StartEngine()
	m.source = v.Engine()
	m.before = m.open(m.source)
	m.j.Use(m.before, true)
	m.standIn = v.StandIn(v.EngineHosts[1], m.source)
	m.standIn.AwaitUp()
	m.behind = m.open(m.standIn)
	m.goesOn("beside the stand-in")
	return m
}

func (m *migration) open(e *rig.Engine) rig.Target {
	m.Helper()
	target, err := e.Target()
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = target.Close() }) // a test that fails leaves it open
	return target
}

// goesOn waits until more requests were answered.
func (m *migration) goesOn(where string) {
	m.Helper()
	goal := m.j.Counts().Ops() + 200
	wait.Until(m.T, "requests go on "+where, func() bool { return m.j.Counts().Ops() > goal || len(m.j.Violations()) > 0 })
	m.check()
}

func (m *migration) check() {
	m.Helper()
	if bad := m.j.Violations(); len(bad) > 0 || m.j.Counts().Errors > 0 {
		wait.Final(m.T, "what the user has seen")
		m.Fatalf("%d errors, violations %q", m.j.Counts().Errors, bad)
	}
}

// move has the user go on at another device, as a virtual machine does: paused with all answered,
// then running there.
func (m *migration) move(to rig.Target) {
	m.Helper()
	m.j.Pause(m.T)
	m.j.Use(to, false)
}

// takeOver starts the engine on the second node, in the place of the stand-in.
func (m *migration) takeOver() {
	m.Helper()
	m.v.NewEngine(m.v.EngineHosts[1])
}

// verify ends the user and compares what it sees, and the replicas.
func (m *migration) verify(at rig.Target) {
	m.Helper()
	m.goesOn("in the end")
	m.j.Pause(m.T)
	rig.Final(m.T, m.j.Verify(at))
	m.j.End()
	m.check()
	for _, target := range []rig.Target{m.before, m.behind} {
		_ = target.Close() // one may be dead
	}
	m.v.StopEngine()
	for _, r := range m.v.Replicas {
		r.Signal(syscall.SIGINT)
	}
	for _, r := range m.v.Replicas {
		r.Exit()
	}
	if err := rig.Compare(m.v.Replicas...); err != nil {
		m.Error(err)
	}
}

// TestMigration: the user goes over to the second node while the first one's engine serves both;
// then the volume follows it.
func TestMigration(t *testing.T) {
	m := migrate(t)
	m.j.Pause(t)
	rig.Final(t, m.j.Verify(m.behind)) // the second node reads what the first one wrote
	m.move(m.behind)
	m.goesOn("through the stand-in")
	if m.source.Signal(syscall.SIGINT); m.source.Exit() != 0 {
		t.Errorf("the engine that is told to end fails\n%s", m.source.Log())
	}
	m.standIn.Exit()
	m.takeOver()
	m.goesOn("in the engine on the second node")
	m.verify(m.behind)
}

// TestMigrationRolledBack: the second node's device goes away, and the first one's user goes on.
func TestMigrationRolledBack(t *testing.T) {
	m := migrate(t)
	m.move(m.behind)
	m.goesOn("through the stand-in")
	m.move(m.before)
	if m.standIn.Signal(syscall.SIGTERM); m.standIn.Exit() != 0 {
		t.Errorf("the stand-in that is told to end fails\n%s", m.standIn.Log())
	}
	if m.v.EngineHosts[1].DeviceOwned(m.v.Name) {
		t.Error("the device of the stand-in belongs to somebody")
	}
	m.goesOn("on the first node")
	m.verify(m.before)
}

// TestMigrationWithKills: the stand-in and the engine are killed in turn while the user is on the
// second node, the engine more than once before it has a stand-in again. The user notices pauses.
func TestMigrationWithKills(t *testing.T) {
	m := migrate(t)
	m.move(m.behind)
	for ends := range 3 {
		m.standIn.Kill()
		m.standIn = m.v.StandIn(m.v.EngineHosts[1], m.source)
		m.goesOn("through the next stand-in")
		for n := range ends + 1 { // no stand-in has followed any of them
			m.source.Kill()
			if n == 0 {
				m.standIn.Exit()
			}
			m.v.SpawnEngine()
			m.source = m.v.Engine()
			if n < ends {
				m.source.AwaitUp()
			}
		}
		m.standIn = m.v.StandIn(m.v.EngineHosts[1], m.source)
		m.goesOn("through the stand-in of the next engine")
	}
	m.move(m.before)
	m.goesOn("on the first node, whose device has stayed")
	m.move(m.behind)
	m.source.Kill()
	m.standIn.Exit()
	m.takeOver()
	m.goesOn("in the engine on the second node")
	m.verify(m.behind)
}

// TestMigrationFromAStoppedEngine: the engine of the first node is stopped while the second node's
// takes over. When it runs again nothing of what it has from either node lands.
func TestMigrationFromAStoppedEngine(t *testing.T) {
	m := migrate(t)
	m.move(m.behind)
	m.goesOn("through the stand-in")
	m.source.Signal(syscall.SIGSTOP)
	wait.Until(t, "the engine is stopped", m.source.Stopped)
	stray := make(chan error, 1)
	go func() {
		p := rig.Aligned(4096)
		for i := range p {
			p[i] = 0xff
		}
		_, err := m.before.WriteAt(p, 0)
		stray <- err
	}()
	wait.Until(t, "requests wait for the stopped engine", m.j.Stuck)
	m.standIn.Signal(syscall.SIGTERM)
	m.standIn.Exit()
	m.takeOver()
	m.goesOn("in the engine on the second node")
	m.source.Signal(syscall.SIGCONT)
	if m.source.Exit() == 0 {
		t.Error("an engine that was replaced ends well")
	}
	m.v.EngineHosts[0].DeviceOwned(m.v.Name) // an instance manager is told that no engine follows there
	if err := <-stray; err == nil {
		t.Error("an engine that was replaced has acknowledged a write")
	}
	m.goesOn("after the end of the first engine")
	m.verify(m.behind)
}
