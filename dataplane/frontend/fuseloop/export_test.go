package fuseloop

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// takeOver gives the device of a suspended frontend to another one with memory of its own, as if it
// were another process.
func (k *script) takeOver() {
	k.tb.Helper()
	if !k.f.Suspended() {
		k.tb.Fatal("the frontend is not suspended although the engine owes it nothing")
	}
	x := k.f.Export()
	p, err := json.Marshal(x)
	if err != nil {
		k.tb.Fatal(err)
	}
	var y frontend.Export
	if err := json.Unmarshal(p, &y); err != nil {
		k.tb.Fatal(err)
	}
	y.Descriptors[0].FD = x.Descriptors[0].FD
	y.Descriptors = append(y.Descriptors, frontend.Descriptor{Kind: "another's", FD: 77})
	if !k.f.Stopped() || k.arena.InUse() != 0 {
		k.tb.Fatalf("after the export: stopped %v, %d buffers in use", k.f.Stopped(), k.arena.InUse())
	}
	k.arena.Close()
	flags := k.f.Negotiated()
	k.arena = loop.NewArena(32 << 20)
	if k.f, err = Import(Config{Owner: 5, Arena: k.arena, File: "vol"}, y); err != nil {
		k.tb.Fatal(err)
	}
	if k.f.Negotiated() != flags {
		k.tb.Fatalf("flags %#x became %#x", flags, k.f.Negotiated())
	}
	k.f.Start(&k.out)
	k.f.Resume(&k.reqs, &k.out)
	k.run()
	if len(k.notices) != 0 {
		k.tb.Fatal("the kernel was asked to send again what was answered already")
	}
}

// Requests survive any number of hand-overs, and of suspensions that come to nothing: each is
// answered once (the script sees to that) and carried out once.
func TestHandOverUnderLoad(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := newScript(t, nil)
		k.auto = false
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
	k := newScript(t, nil)
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

func TestImportRefusesNonsense(t *testing.T) {
	good := frontend.Export{Transport: Transport, State: []byte(`{"version":1,"file":"vol","size":4096}`),
		Descriptors: []frontend.Descriptor{{Kind: KindDevice, FD: 9}}}
	arena := loop.NewArena(32 << 20)
	defer arena.Close()
	change := func(f func(x *frontend.Export)) frontend.Export {
		x := good
		f(&x)
		return x
	}
	for name, x := range map[string]frontend.Export{
		"another frontend": change(func(x *frontend.Export) { x.Transport = "nbd-unix" }),
		"no state":         change(func(x *frontend.Export) { x.State = nil }),
		"another version":  change(func(x *frontend.Export) { x.State = []byte(`{"version":2,"file":"vol","size":4096}`) }),
		"another file":     change(func(x *frontend.Export) { x.State = []byte(`{"version":1,"file":"other","size":4096}`) }),
		"no size":          change(func(x *frontend.Export) { x.State = []byte(`{"version":1,"file":"vol"}`) }),
		"no device":        change(func(x *frontend.Export) { x.Descriptors = nil }),
		"two devices":      change(func(x *frontend.Export) { x.Descriptors = append(x.Descriptors, x.Descriptors[0]) }),
	} {
		if _, err := Import(Config{Owner: 5, Arena: arena, File: "vol"}, x); !errors.Is(err, ErrExport) {
			t.Errorf("%s: imported with %v", name, err)
		}
	}
	if _, err := Import(Config{Owner: 5, Arena: arena, File: "vol"}, good); err != nil {
		t.Error(err)
	}
}

// FuzzImport imports whatever another engine may have said.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"version":1,"file":"vol","size":4096,"flags":1}`))
	f.Add([]byte(`{"version":1,"file":"vol","size":-1}`))
	f.Fuzz(func(t *testing.T, state []byte) {
		k := &script{tb: t, arena: loop.NewArena(32 << 20), replies: map[uint64][]byte{}, errors: map[uint64]int32{},
			auto: true, unique: 2}
		defer k.arena.Close()
		x := frontend.Export{Transport: Transport, State: state,
			Descriptors: []frontend.Descriptor{{Kind: KindDevice, FD: 9}}}
		var err error
		if k.f, err = Import(Config{Owner: 5, Arena: k.arena, File: "vol"}, x); err != nil {
			return
		}
		k.f.Start(&k.out)
		k.run()
		k.ask(opGetattr, fileNode, words(0, 0))
		k.stop()
	})
}
