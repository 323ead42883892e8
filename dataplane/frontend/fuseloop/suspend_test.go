package fuseloop

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
)

// takeOver drops a suspended frontend and has another one with memory of its own go on, as if it
// were another process.
func (k *journaled) takeOver() {
	k.tb.Helper()
	if !k.f.Suspended() {
		k.tb.Fatal("the frontend is not suspended although the engine owes it nothing")
	}
	notices := len(k.notices)
	k.kill()
	if len(k.reqs) != 0 {
		k.tb.Fatalf("the successor carries out %d requests that were answered", len(k.reqs))
	}
	k.run()
	if len(k.notices) != notices {
		k.tb.Fatal("the kernel was asked for what was answered already")
	}
}

// Requests survive any number of successors, and of suspensions that come to nothing: each is
// answered once (the script sees to that) and carried out once.
func TestLeftUnderLoad(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := newJournaled(t)
		init := k.ask(opInit, 0, words(7|44<<32, 1<<20|wantedFlags&0xffffffff<<32, wantedFlags>>32))
		k.want(init, 0)
		asked, given, suspended := map[uint64]int64{}, map[int64]int{}, false
		var pending []frontend.Request
		collect := func() {
			for _, q := range k.reqs {
				given[q.Off]++
				pending = append(pending, q)
			}
			k.reqs = nil
		}
		ask := func() {
			off := int64(len(asked)) * block.MaxTransfer
			n := rapid.SampledFrom([]int{512, 4096, 70_144, 1 << 20}).Draw(rt, "size")
			switch rapid.IntRange(0, 2).Draw(rt, "kind") {
			case 0:
				asked[k.ask(opRead, fileNode, words(1, uint64(off), uint64(n), 0, 0))] = off
			case 1:
				asked[k.ask(opWrite, fileNode, words(1, uint64(off), uint64(n), 0, 0), make([]byte, n))] = off
			default:
				k.ask(opGetattr, fileNode, words(0, 0))
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			switch action := rapid.IntRange(0, 7).Draw(rt, "action"); {
			case action <= 2:
				ask()
			case action <= 4 && len(pending) > 0:
				i := rapid.IntRange(0, len(pending)-1).Draw(rt, "answered")
				k.complete(&pending[i], block.OK)
				pending = slices.Delete(pending, i, i+1)
			case action == 5 && !suspended:
				k.f.Suspend(&k.out)
				suspended = true
			case action == 6 && suspended:
				k.f.Continue(&k.out)
				suspended = false
			case action == 7 && suspended && len(pending) == 0 && k.f.Suspended():
				k.takeOver()
				suspended = false
			}
			k.run()
			collect()
		}
		if suspended {
			k.f.Continue(&k.out)
		}
		for k.run(); len(pending) > 0 || len(k.reqs) > 0; k.run() {
			collect()
			for _, q := range pending {
				k.complete(&q, block.OK)
			}
			pending = nil
		}
		for unique, off := range asked {
			if _, ok := k.errors[unique]; !ok || given[off] != 1 {
				t.Fatalf("request at %d: answered %v, given to the engine %d times", off, ok, given[off])
			}
		}
		k.auto = true
		k.stop()
	})
}

// What the kernel has to say while nobody listens waits for the successor.
func TestSuspendedFrontendReadsNothing(t *testing.T) {
	k := newJournaled(t)
	k.auto = true
	k.f.Suspend(&k.out)
	k.run()
	if !k.f.Suspended() || len(k.recvs) != 0 {
		t.Fatalf("suspended %v with %d receives", k.f.Suspended(), len(k.recvs))
	}
	unique := k.ask(opRead, fileNode, words(1, 4096, 512, 0, 0))
	if len(k.queue) != 1 {
		t.Fatal("the request was read")
	}
	k.takeOver()
	if got := k.want(unique, 0); len(got) != 512 || got[0] != patternAt(4096) {
		t.Fatalf("%d bytes", len(got))
	}
	k.stop()
}
