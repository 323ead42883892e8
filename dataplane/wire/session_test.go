package wire

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
)

// bound is a hello as it is sent, for changes.
type bound struct {
	key, greeting string
	hello         HelloMessage
}

func (b bound) payload() string {
	p, _ := b.hello.Bind([]byte(b.key), []byte(b.greeting), NewDigester([]byte(b.key)))
	return string(p)
}

// A proof holds for the key, the greeting and every byte of the hello that it was made for.
func TestBoundProofsDiffer(t *testing.T) {
	base := bound{"secret", `{"version":5}`, HelloMessage{Version: 5, VolumeName: "v", VolumeUUID: "uuid", Engine: "e",
		InstanceManager: "im", Epoch: 7, Build: "b", Notices: true, Nonce: []byte("n"), Address: "a:1", Member: "m"}}
	seen := map[string]string{}
	for name, change := range map[string]func(*bound){
		"the hello":                func(*bound) {},
		"another secret":           func(b *bound) { b.key = "Secret" },
		"another greeting":         func(b *bound) { b.greeting = `{"version":6}` },
		"a longer greeting":        func(b *bound) { b.greeting += " " },
		"another version":          func(b *bound) { b.hello.Version++ },
		"another volume name":      func(b *bound) { b.hello.VolumeName = "w" },
		"another volume":           func(b *bound) { b.hello.VolumeUUID = "uuiD" },
		"another engine":           func(b *bound) { b.hello.Engine = "f" },
		"another instance manager": func(b *bound) { b.hello.InstanceManager = "in" },
		"another epoch":            func(b *bound) { b.hello.Epoch++ },
		"prepared":                 func(b *bound) { b.hello.Prepared = true },
		"a reader":                 func(b *bound) { b.hello.Reader = &Grant{} },
		"another build":            func(b *bound) { b.hello.Build = "c" },
		"no notices":               func(b *bound) { b.hello.Notices = false },
		"another nonce":            func(b *bound) { b.hello.Nonce = []byte("N") },
		"another address":          func(b *bound) { b.hello.Address = "a:2" },
		"another member":           func(b *bound) { b.hello.Member = "n" },
	} {
		b := base
		change(&b)
		m, got, err := ReadHello([]byte(b.payload()))
		if err != nil || got == nil || m.Version != b.hello.Version {
			t.Fatalf("%s: %v", name, err)
		}
		reader := b.hello.Reader != nil
		if !got.Proved([]byte(b.key), []byte(b.greeting), reader) {
			t.Errorf("%s: the proof does not hold for what it was made for", name)
		}
		if got.Proved([]byte(b.key), []byte(b.greeting), !reader) {
			t.Errorf("%s: the proof is good for another role", name)
		}
		if name != "the hello" {
			_, right, _ := ReadHello([]byte(base.payload()))
			crossed := BoundHello{Said: right.Said, Proof: got.Proof}
			if crossed.Proved([]byte("secret"), []byte(base.greeting), false) {
				t.Errorf("%s: the proof holds for the hello as it was", name)
			}
		}
		p := hex.EncodeToString(got.Proof)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have the same proof", name, other)
		}
		seen[p] = name
	}
}

// Proof, keys and tags are part of the format: docs/design/format-wire.md shows these bytes.
func TestSessionBytes(t *testing.T) {
	secret, greeting := make([]byte, SecretSize), []byte(`{"minVersion":1,"version":5}`)
	m := HelloMessage{Version: 5, VolumeUUID: "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88", Engine: "e", Epoch: 2,
		Nonce: make([]byte, NonceSize), Address: "10.0.0.1:10001", Member: "r"}
	p, k := m.Bind(secret, greeting, NewDigester(secret))
	_, b, err := ReadHello(p)
	if err != nil {
		t.Fatal(err)
	}
	f := frame{Header{Type: Write, Flags: FUA, ID: 0x0102030405060708, Epoch: 9, Off: 0x1000, Len: 9, Layer: 3},
		"123456789"}
	first, second := tagged(f, k), tagged(frame{h: Header{Type: Flush, ID: 1, Epoch: 9}}, k)
	for what, c := range map[string][2]string{
		"said": {string(b.Said), `{"version":5,"volumeName":"","volumeUUID":"6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88",` +
			`"engine":"e","epoch":2,"nonce":"AAAAAAAAAAAAAAAAAAAAAA==","address":"10.0.0.1:10001","member":"r"}`},
		"proof": {hex.EncodeToString(b.Proof), wantProof},
		"header": {hex.EncodeToString(first[:tagAt]), "416e6b53" + "04" + "02" + "00" + "00" + "0807060504030201" +
			"0900000000000000" + "0010000000000000" + "0900000000000000" + "09000000" + "03000000"},
		"tag":        {hex.EncodeToString(first[tagAt:HeaderSize]), wantTag},
		"second tag": {hex.EncodeToString(second[tagAt:]), wantSecondTag},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %s, the format says %s", what, c[0], c[1])
		}
	}
}

const (
	wantProof     = "db0b4deffcadd0bf777565af0b432bf4df32a4880aa486c871aeda2ae0ee4a54"
	wantTag       = "02935a11feaccc18e12e110cf8af34e9"
	wantSecondTag = "28efb13721ea2d741fb4d37b20ff5ec1"
)

// Who is between engine and replica can change, repeat, leave out, reorder and send back frames,
// and bring frames of another session: the connection ends at the first of them.
func TestFramesOfAnAttackerEndTheSession(t *testing.T) {
	first := frame{Header{Type: Write, ID: 1, Len: 4096}, content(4096, 1)}
	second := frame{Header{Type: Flush, ID: 2}, ""}
	forged := frame{Header{Type: Write, ID: 1, Len: 4096}, content(4096, 2)}
	refusal := frame{Header{Type: Hello, Flags: Response, Code: block.Refused}, "{}"}
	for name, c := range map[string]struct {
		line func(engine, replica *Keys) []byte
		good int // frames that are delivered
	}{
		"what was sent": {func(e, _ *Keys) []byte { return append(tagged(first, e), tagged(second, e)...) }, 2},
		"a checksum's":  {func(*Keys, *Keys) []byte { return encode([]frame{forged}) }, 0},
		"a greeting's":  {func(*Keys, *Keys) []byte { return encode([]frame{{Header{Type: Greeting}, "{}"}}) }, 0},
		"an open OK": {func(*Keys, *Keys) []byte {
			return encode([]frame{{Header{Type: Hello, Flags: Response}, "{}"}})
		}, 0},
		"repeated":          {func(e, _ *Keys) []byte { p := tagged(first, e); return append(p, p...) }, 1},
		"left out":          {func(e, _ *Keys) []byte { tagged(first, e); return tagged(second, e) }, 0},
		"reordered":         {func(e, _ *Keys) []byte { p := tagged(first, e); return append(tagged(second, e), p...) }, 0},
		"reflected":         {func(_, r *Keys) []byte { return tagged(first, r) }, 0},
		"of another secret": {func(*Keys, *Keys) []byte { return tagged(first, strangersKeys()) }, 0},
		"an open refusal after a tag": {func(e, _ *Keys) []byte {
			return append(tagged(second, e), encode([]frame{refusal})...)
		}, 1},
		"another payload": {func(e, _ *Keys) []byte {
			return append(tagged(first, e)[:HeaderSize:HeaderSize], forged.payload...)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			arena := newArena(4<<20, 2)
			defer arena.Close()
			engine, replica := testKeys()
			r := newReceiver(arena)
			r.conn.Secure(replica)
			for p := c.line(engine, replica); len(p) > 0 && r.conn.Err() == nil; {
				p, _ = r.feed(p, 1000)
			}
			if len(r.sink.got) != c.good {
				t.Errorf("%d frames were delivered, not %d", len(r.sink.got), c.good)
			}
			if err := r.end(arena); name == "what was sent" != errors.Is(err, ErrClosed) {
				t.Errorf("the connection ended with %v", err)
			}
		})
	}
}

func strangersKeys() *Keys {
	_, k := (&HelloMessage{Version: BoundVersion, Engine: "e"}).Bind([]byte("another"), []byte(`{"version":5}`),
		NewDigester([]byte("another")))
	return k
}

// One bit of a tagged frame is changed: nothing of it is delivered.
func TestTaggedAnyFlippedBitIsNoticed(t *testing.T) {
	arena := newArena(4<<20, 2)
	rapid.Check(t, func(t *rapid.T) {
		f := frame{drawHeader(t), content(rapid.IntRange(0, 300).Draw(t, "size"), 1)}
		engine, replica := testKeys()
		p := tagged(f, engine)
		bit := rapid.IntRange(0, len(p)*8-1).Draw(t, "bit")
		p[bit/8] ^= 1 << (bit % 8)
		r := newReceiver(arena)
		r.conn.Secure(replica)
		for len(p) > 0 && r.conn.Err() == nil {
			p, _ = r.feed(p, 1000)
		}
		if len(r.sink.got) != 0 {
			t.Fatalf("bit %d is changed, and the frame is delivered", bit)
		}
		if err := r.end(arena); err == nil {
			t.Fatal("the connection did not end")
		}
	})
}

// Before the handshake a replica's refusal is told, and nothing with a tag is taken.
func TestFramesBeforeTheKeys(t *testing.T) {
	arena := newArena(4<<20, 2)
	defer arena.Close()
	engine, replica := testKeys()
	r := newReceiver(arena)
	r.feed(tagged(frame{h: Header{Type: Flush}}, engine), 1000)
	if err := r.end(arena); len(r.sink.got) != 0 || !strings.Contains(err.Error(), "before the handshake") {
		t.Errorf("%d frames, %v", len(r.sink.got), err)
	}
	r = newReceiver(arena)
	r.conn.Secure(replica)
	r.feed(encode([]frame{{Header{Type: Hello, Flags: Response, Code: block.Refused}, "{}"}}), 1000)
	if len(r.sink.got) != 1 || r.conn.Err() != nil || r.conn.Proved() {
		t.Errorf("%d frames, %v, proved %v", len(r.sink.got), r.conn.Err(), r.conn.Proved())
	}
	_ = r.end(arena)
}

func TestDowngradeIsNoticed(t *testing.T) {
	nonce := MarkNonce([]byte("0123456789abcdef"))
	if len(nonce) != NonceSize || string(nonce[:8]) != "01234567" {
		t.Fatalf("marked nonce %q", nonce)
	}
	later := append([]byte(nil), nonce...)
	later[NonceSize-1] = Version + 1
	for name, c := range map[string]struct {
		nonce   []byte
		version int
		says    string
	}{
		"the version that it speaks": {nonce, Version, ""},
		"an earlier one":             {nonce, Version - 1, "somebody has changed the greeting"},
		"the first one":              {nonce, 1, "somebody has changed the greeting"},
		"a later replica":            {later, Version, ""},
		"a later replica, lowered":   {later, Version - 1, "somebody has changed the greeting"},
		"an earlier replica":         {[]byte("0123456789abcdef"), Version - 1, ""},
	} {
		err := CheckDowngrade(c.nonce, c.version)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSameAddress(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"10.0.0.1:10001", "10.0.0.1:10001", true},
		{"10.0.0.1:10001", "10.0.0.1:10002", false},
		{"10.0.0.1:10001", "10.0.0.2:10001", false},
		{"10.0.0.1:10001", "[::ffff:10.0.0.1]:10001", true},
		{"[fd00::1]:10001", "[fd00:0:0::1]:10001", true},
		{"[fe80::1%eth0]:1", "[fe80::1]:1", true},
		{"[fd00::1]:10001", "[fd00::2]:10001", false},
		{"10.0.0.1:10001", "", false},
		{"", "", false},
		{"a:11", "a:11", true},
		{"a:11", "b:11", false},
	} {
		if SameAddress(c.a, c.b) != c.same || SameAddress(c.b, c.a) != c.same {
			t.Errorf("%q and %q: the same %v", c.a, c.b, !c.same)
		}
	}
}

// FuzzTagged: whatever arrives in a session with keys, nothing is delivered but what the peer has
// sent, in its order.
func FuzzTagged(f *testing.F) {
	frames := []frame{{Header{Type: Write, ID: 1}, "hello"}, {Header{Type: Flush, ID: 2}, ""}}
	engine, _ := testKeys()
	right := encodeTagged(frames, engine)
	f.Add(right, uint16(10))
	f.Add(right[:len(right)-1], uint16(1))
	f.Add(right[HeaderSize+5:], uint16(64))
	f.Add(append(right[:HeaderSize+5:HeaderSize+5], right...), uint16(7))
	f.Add(encode(frames), uint16(100))
	f.Add(encode([]frame{{Header{Type: Hello, Flags: Response, Code: block.Refused}, "{}"}}), uint16(100))
	f.Fuzz(func(t *testing.T, p []byte, chunk uint16) {
		arena := newArena(4<<20, 2)
		defer arena.Close()
		_, replica := testKeys()
		r := newReceiver(arena)
		r.conn.Secure(replica)
		for len(p) > 0 && r.conn.Err() == nil {
			var ok bool
			if p, ok = r.feed(p, int(chunk)+1); !ok {
				t.Fatal("an open connection does not receive")
			}
		}
		got := r.sink.got
		for len(got) > 0 && got[0].h.Type == Hello && got[0].h.Code != block.OK { // refusals, which prove nothing
			got = got[1:]
		}
		if len(got) > len(frames) {
			t.Fatalf("%d frames were delivered", len(got))
		}
		if err := sameFrames(got, frames[:len(got)]); err != nil {
			t.Fatal(err)
		}
		if err := r.end(arena); err == nil {
			t.Fatal("an ended connection has no error")
		}
	})
}
