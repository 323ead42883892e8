package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// TestKeptDeviceIsAttachedToAnEngineThatHasEnded: an engine is to go on with the device of the one
// before (Config.Follow has said so), or has taken it over in a live upgrade (FrontendKept is
// posted before AttachFrontend there). It loses its last replica while the shell is bringing the
// device up (lock, list of mounts, loop devices; up to seconds on a busy node), and ends at once,
// since the users wait for the next engine. Then the device is attached. What its users have sent
// waits for the next engine, as docs/design/frontends.md says of an engine that loses its last
// replica, and is not answered with an error by the core that has ended.
func TestKeptDeviceIsAttachedToAnEngineThatHasEnded(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		name := map[bool]string{false: "of an engine that was killed", true: "in a live upgrade"}[upgrade]
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, 16*mib)
			g.offline = true
			g.follow = func(uint64, uint64) bool { return true }
			g.start()
			g.fakes[0].proc.Kill()
			g.until("the engine has ended", func() bool { return g.state.Fatal })
			if upgrade {
				g.proc.Post(engine.FrontendKept{Kept: true})
			}
			var attached error
			replied := false
			calls := []*call{g.write(0, 1, 4096), g.begin(block.Flush, 0, 0, nil)} // sent again by the kernel
			g.proc.Post(engine.AttachFrontend{Frontend: g.front, Reply: func(err error) { attached, replied = err, true }})
			g.until("the core has answered", func() bool { return replied })
			t.Log("attach:", attached)
			if !upgrade {
				g.proc.Post(engine.FrontendKept{Kept: true}) // as startFUSELoop does afterwards
			}
			g.w.Until(time.Second, func() bool { return false })
			for i, c := range calls {
				if c.done {
					t.Errorf("request %d of a kept device is answered: %s", i, c.code)
				}
			}
		})
	}
}
