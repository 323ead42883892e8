package nbd

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// expire lets time pass for the server.
func (k *script) expire(now time.Duration) clock.Ticks {
	next := k.s.Expire(clock.Ticks(now), &k.out)
	k.run()
	return next
}

// TestStoppedClientsKeepNobodyWaitingForEver: a client that has stopped holds memory, with a write
// that is half sent or answers that it does not take. Another one, which waits for it, is served in
// the end; nobody is disconnected who is not in the way.
func TestStoppedClientsKeepNobodyWaitingForEver(t *testing.T) {
	for name, stop := range map[string]func(k *script, p *peer){
		"in the middle of a write": func(k *script, p *peer) {
			k.say(p, requestBytes(0, cmdWrite, 1, 0, MaxRequest, make([]byte, MaxRequest/2)))
		},
		"without taking answers": func(k *script, p *peer) {
			p.lazy = true
			k.say(p, requestBytes(0, cmdRead, 1, 0, MaxRequest, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newScript(t, nil)
			stopped, other, idle := k.ready(), k.ready(), k.ready()
			stop(k, stopped)
			for _, now := range []time.Duration{0, 10 * time.Minute} {
				if next := k.expire(now); next != clock.Never || stopped.closed {
					t.Errorf("called again at %v, disconnected %v, although nobody waits", next, stopped.closed)
				}
			}
			k.say(other, requestBytes(0, cmdRead, 2, 0, MaxRequest, nil))
			if len(other.got) != 0 || stopped.closed {
				t.Fatal("there was memory for both: the test proves nothing")
			}
			begin := 20 * time.Minute
			if next := k.expire(begin); next != clock.Ticks(begin+clientTimeout) {
				t.Errorf("called again at %v, not after %s", next, clientTimeout)
			}
			if k.expire(begin + clientTimeout - 1); stopped.closed {
				t.Error("disconnected too early")
			}
			k.expire(begin + clientTimeout)
			if !stopped.closed || other.closed || idle.closed {
				t.Errorf(
					"disconnected: the one that has stopped %v, the one that waits %v, the one that does nothing %v",
					stopped.closed, other.closed, idle.closed)
			}
			if got := k.answers(other, map[uint64]int{2: MaxRequest}); len(got) != 1 || got[0].errno != 0 {
				t.Errorf("the client that waited has %d answers", len(got))
			}
			k.stop()
		})
	}
}

// TestWhoGoesOnIsNotDisconnected: a client that takes its answers slowly keeps its connection
// however long another one waits, and so does one whose requests the engine has.
func TestWhoGoesOnIsNotDisconnected(t *testing.T) {
	k := newScript(t, nil)
	slow, engine, other := k.ready(), k.ready(), k.ready()
	slow.lazy = true
	k.say(slow, requestBytes(0, cmdRead, 1, 0, MaxRequest, nil))
	k.auto = false
	k.say(engine, requestBytes(0, cmdRead, 2, 0, 8<<20, nil))
	k.say(other, requestBytes(0, cmdRead, 3, 0, MaxRequest, nil))
	now := time.Duration(0)
	for range MaxRequest / (8 * block.MaxTransfer) {
		k.expire(now)
		now += clientTimeout - 1
		k.expire(now)
		slow.room += 9 * block.MaxTransfer
		k.trickle(slow)
		k.run()
	}
	if slow.closed || engine.closed || other.closed {
		t.Errorf("disconnected: the slow one %v, the one that waits for the engine %v, the other one %v", slow.closed,
			engine.closed, other.closed)
	}
	k.auto = true
	k.engine()
	k.run()
	k.stop()
}
