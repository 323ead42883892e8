package nbd

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

func TestImportRefusesNonsense(t *testing.T) {
	client := func(state string, unread int) frontend.Export {
		return frontend.Export{Transport: Transport, State: []byte(`{"version":1,"export":"vol","size":67108864}`),
			Descriptors: []frontend.Descriptor{
				{Kind: kindListener, FD: testListener}, {Kind: kindClient, FD: 1, State: []byte(state),
					Unread: make([]byte, unread)}}}
	}
	good := client(`{"phase":"transmission"}`, 100)
	for name, x := range map[string]frontend.Export{
		"another frontend": {Transport: "fuse-loop"},
		"no state":         {Transport: Transport},
		"another version":  {Transport: Transport, State: []byte(`{"version":2,"export":"vol","size":67108864}`)},
		"another volume":   {Transport: Transport, State: []byte(`{"version":1,"export":"other","size":67108864}`)},
		"no size": {Transport: Transport, State: []byte(`{"version":1,"export":"vol"}`),
			Descriptors: good.Descriptors},
		"no listener": {Transport: Transport, State: good.State},
		"two listeners": {Transport: Transport, State: good.State,
			Descriptors: []frontend.Descriptor{good.Descriptors[0], good.Descriptors[0]}},
		"an unknown descriptor": {Transport: Transport, State: good.State,
			Descriptors: []frontend.Descriptor{good.Descriptors[0], {Kind: "eye"}}},
		"an unknown phase":        client(`{"phase":"lunch"}`, 0),
		"a state that is none":    client(`[]`, 0),
		"too many unread bytes":   client(`{"phase":"transmission"}`, rxSize+1),
		"a write and a skip":      client(`{"phase":"transmission","write":{"size":512},"skip":{"left":1}}`, 0),
		"a write before the time": client(`{"phase":"options","write":{"size":512}}`, 0),
		"a write of nothing":      client(`{"phase":"transmission","write":{}}`, 0),
		"a write beyond the end":  client(`{"phase":"transmission","write":{"size":1024,"off":67108352}}`, 0),
		"a write that is done":    client(`{"phase":"transmission","write":{"size":1048576,"done":1048576}}`, 0),
		"a write half a piece":    client(`{"phase":"transmission","write":{"size":1048576,"done":512}}`, 0),
		"a write that is whole":   client(`{"phase":"transmission","write":{"size":512}}`, 512),
		"a skip of nothing":       client(`{"phase":"transmission","skip":{}}`, 0),
	} {
		t.Run(name, func(t *testing.T) {
			arena := loop.NewArena(48 << 20)
			defer arena.Close()
			if _, err := Import(Config{Owner: 3, Arena: arena, Export: "vol"}, x); !errors.Is(err, ErrExport) {
				t.Fatalf("imported with %v", err)
			}
			if n := arena.InUse(); n != 0 {
				t.Fatalf("%d buffers are in use after a refusal", n)
			}
		})
	}
	arena := loop.NewArena(48 << 20)
	defer arena.Close()
	if _, err := Import(Config{Owner: 3, Arena: arena, Export: "vol"}, good); err != nil {
		t.Fatal(err)
	}
}

// FuzzImport imports whatever another engine may have said, and plays on with what is accepted.
func FuzzImport(f *testing.F) {
	server := []byte(`{"version":1,"export":"vol","size":67108864}`)
	f.Add(server, []byte(`{"phase":"transmission","unsent":"AAAA"}`), requestBytes(0, cmdRead, 1, 0, 512, nil))
	f.Add(server,
		[]byte(`{"phase":"transmission","write":{"cookie":1,"off":4096,"size":2097152,"done":1048576,"errno":5}}`),
		make([]byte, 700))
	f.Add(server, []byte(`{"phase":"transmission","skip":{"left":512,"cookie":3,"errno":22}}`), make([]byte, 600))
	f.Add(server, []byte(`{"phase":"options","options":3,"noZeroes":true}`), intoTransmission()[4:])
	f.Add(server, []byte(`{"phase":"draining"}`), []byte{})
	f.Fuzz(func(t *testing.T, state, client, unread []byte) {
		k := &script{tb: t, arena: loop.NewArena(48 << 20), peers: map[loop.Handle]*peer{1: {h: 1}}, auto: true}
		defer k.arena.Close()
		x := frontend.Export{Transport: Transport, State: state, Descriptors: []frontend.Descriptor{
			{Kind: kindListener, FD: testListener}, {Kind: kindClient, FD: 1, State: client, Unread: unread}}}
		s, err := Import(Config{Owner: 3, Arena: k.arena, Export: "vol"}, x)
		if err != nil {
			if n := k.arena.InUse(); n != 0 {
				t.Fatalf("%d buffers are in use after a refusal", n)
			}
			return
		}
		k.s = s
		k.s.Start(&k.out)
		k.s.Resume(&k.reqs, &k.out)
		k.engine()
		k.run()
		k.stop()
	})
}
