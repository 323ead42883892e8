package engine_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// TestFollowBeforeTheFirstRecord: whoever decides about a frontend of the engine before knows whom
// this engine follows, and under which epoch it will serve, before any replica or the witness has
// this engine's first record.
func TestFollowBeforeTheFirstRecord(t *testing.T) {
	const before = 3 * quorum.GrantStep
	g := newRig(t, 2, 16*mib)
	if _, ok, err := g.witness.Swap(quorum.WitnessRecord{},
		quorum.WitnessRecord{Epoch: before, Engine: "old", InstanceManager: "im",
			Record: quorum.Record{Epoch: before, Generation: 4, Members: []string{"a", "b"}}}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, f := range g.fakes {
		f.promised, f.reply.Blank = before, false
		f.record = &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: before, Generation: 4,
			Members: []string{"a", "b"}, Agreed: true}
	}
	calls := 0
	g.follow = func(follows, epoch uint64) bool {
		calls++
		if follows != before || epoch != before+quorum.GrantStep {
			t.Errorf("epoch %d follows %d", epoch, follows)
		}
		for _, f := range g.fakes {
			if f.record.Epoch != before {
				t.Errorf("%s has record %+v already", f.name, f.record)
			}
		}
		if w, err := g.witness.Read(); w.Record.Epoch != before || err != nil {
			t.Errorf("the witness has %s already, %v", w, err)
		}
		return false
	}
	g.start()
	if calls != 1 {
		t.Errorf("asked %d times", calls)
	}
}

// TestContentStaysForAFrontendThatGoesOn: from its start until the frontend is attached, or does
// not come, the content is not replaced: the frontend's users hold what they have read and not yet
// written.
func TestContentStaysForAFrontendThatGoesOn(t *testing.T) {
	for name, release := range map[string]func(g *rig){
		"it does not come": func(g *rig) { g.proc.Post(engine.Discontinue{}) },
		"it comes and ends": func(g *rig) {
			for _, m := range []func(reply func(error)) any{
				func(reply func(error)) any { return engine.AttachFrontend{Frontend: g.front, Reply: reply} },
				func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} },
			} {
				if err := g.ask(m); err != nil {
					g.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 16*mib)
			g.offline = true
			g.follow = func(_, _ uint64) bool { return true }
			g.start()
			changes := map[string]func(reply func(error)) any{
				"revert": func(reply func(error)) any { return engine.Revert{Name: "s", Reply: reply} },
				"clone": func(reply func(error)) any {
					return engine.Clone{From: engine.CloneSource{Replicas: []string{"x"}, VolumeUUID: "other", Key: []byte("k"),
						Grant: wire.Grant{For: g.uuid, Snapshot: "s"}}, Name: "s", Reply: reply}
				},
			}
			for what, message := range changes {
				if err := g.ask(message); !errors.Is(err, engine.ErrState) {
					t.Errorf("%s: %v", what, err)
				}
			}
			release(g)
			// There is no source, which is found out by trying.
			if err := g.ask(changes["clone"]); err == nil || errors.Is(err, engine.ErrState) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}
