package wire

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
)

// said is a handshake as far as the hello, for changes.
type said struct {
	key        string
	initiation InitiationMessage
	greeting   string
	hello      HelloMessage
}

// payloads are what an engine sends.
func (b said) payloads() (initiation, hello []byte) {
	h, initiation := Initiate(&b.initiation, []byte(b.key), NewDigester([]byte(b.key)))
	h.Greet([]byte(b.greeting))
	hello, _ = h.Hello(&b.hello)
	return initiation, hello
}

func proofOf(t *testing.T, payload []byte) (p Proved) {
	t.Helper()
	if err := Unmarshal(payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

var saidFirst = said{"secret", InitiationMessage{MinVersion: 6, Version: 6, Nonce: []byte("0123456789abcdef"),
	Address: "a:1"}, `{"version":6}`, HelloMessage{VolumeName: "v", VolumeUUID: "uuid", Engine: "e",
	InstanceManager: "im", Epoch: 7, Build: "b", Notices: true, Member: "m"}}

// A replica takes an initiation for the key, the role and every byte that its proof was made for.
func TestInitiationProofsDiffer(t *testing.T) {
	secret := []byte("secret")
	grant := Grant{Snapshot: "s", For: "target", Expires: 100}
	base, _ := saidFirst.payloads()
	right := proofOf(t, base)
	seen := map[string]string{}
	for name, change := range map[string]func(*said){
		"the initiation":     func(*said) {},
		"another secret":     func(b *said) { b.key = "Secret" },
		"another oldest":     func(b *said) { b.initiation.MinVersion-- },
		"another newest":     func(b *said) { b.initiation.Version++ },
		"another nonce":      func(b *said) { b.initiation.Nonce = []byte("0123456789abcdeF") },
		"another address":    func(b *said) { b.initiation.Address = "a:2" },
		"a reader by secret": func(b *said) { b.initiation.Reader = &grant },
		"an engine by grant": func(b *said) { b.key = string(grant.Key(secret, "uuid")) },
		"a reader": func(b *said) {
			b.key, b.initiation.Reader = string(grant.Key(secret, "uuid")), &grant
		},
		"a reader of another volume": func(b *said) {
			b.key, b.initiation.Reader = string(grant.Key(secret, "uuiD")), &grant
		},
		"a short nonce": func(b *said) { b.initiation.Nonce = b.initiation.Nonce[:15] },
	} {
		b := saidFirst
		change(&b)
		payload, _ := b.payloads()
		_, h, err := Accept(payload, secret, "uuid", NewDigester(secret))
		want := error(nil)
		switch name {
		case "another secret", "a reader by secret", "an engine by grant", "a reader of another volume":
			want = ErrPeer
		case "a short nonce":
			want = ErrFrame
		}
		if !errors.Is(err, want) || (h == nil) != (want != nil) || h != nil && h.Reader() != (name == "a reader") {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		p := proofOf(t, payload)
		if name != "the initiation" {
			crossed := Marshal(Proved{Said: right.Said, Proof: p.Proof})
			if _, _, err := Accept(crossed, secret, "uuid", NewDigester(secret)); !errors.Is(err, ErrPeer) {
				t.Errorf("%s: the proof holds for the initiation as it was: %v", name, err)
			}
		}
		if other, ok := seen[string(p.Proof)]; ok {
			t.Errorf("%s and %s have the same proof", name, other)
		}
		seen[string(p.Proof)] = name
	}
}

// A proof holds for the key, initiation, greeting and every byte of the hello that it was made for.
func TestBoundProofsDiffer(t *testing.T) {
	secret := []byte("secret")
	initiation, base := saidFirst.payloads()
	_, h, err := Accept(initiation, secret, "uuid", NewDigester(secret))
	if err != nil {
		t.Fatal(err)
	}
	h.Greet([]byte(saidFirst.greeting))
	right := proofOf(t, base)
	seen := map[string]string{}
	for name, change := range map[string]func(*said){
		"the hello":                func(*said) {},
		"another secret":           func(b *said) { b.key = "Secret" },
		"another initiation":       func(b *said) { b.initiation.Nonce = []byte("0123456789abcdeF") },
		"another range":            func(b *said) { b.initiation.MinVersion-- },
		"a reader":                 func(b *said) { b.initiation.Reader = &Grant{} },
		"another greeting":         func(b *said) { b.greeting = `{"version":7}` },
		"a longer greeting":        func(b *said) { b.greeting += " " },
		"another volume name":      func(b *said) { b.hello.VolumeName = "w" },
		"another volume":           func(b *said) { b.hello.VolumeUUID = "uuiD" },
		"another engine":           func(b *said) { b.hello.Engine = "f" },
		"another instance manager": func(b *said) { b.hello.InstanceManager = "in" },
		"another epoch":            func(b *said) { b.hello.Epoch++ },
		"prepared":                 func(b *said) { b.hello.Prepared = true },
		"another build":            func(b *said) { b.hello.Build = "c" },
		"no notices":               func(b *said) { b.hello.Notices = false },
		"another member":           func(b *said) { b.hello.Member = "n" },
	} {
		b := saidFirst
		change(&b)
		_, payload := b.payloads()
		p := proofOf(t, payload)
		ofThisHandshake := b.key == saidFirst.key && b.greeting == saidFirst.greeting &&
			string(Marshal(b.initiation)) == string(Marshal(saidFirst.initiation))
		m, k, err := h.ReadHello(payload)
		if ofThisHandshake && (err != nil || k == nil || string(Marshal(m)) != string(Marshal(b.hello))) ||
			!ofThisHandshake && !errors.Is(err, ErrPeer) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if name != "the hello" {
			crossed := Marshal(Proved{Said: right.Said, Proof: p.Proof})
			if _, _, err := h.ReadHello(crossed); !errors.Is(err, ErrPeer) {
				t.Errorf("%s: the proof holds for the hello as it was: %v", name, err)
			}
		}
		if other, ok := seen[string(p.Proof)]; ok {
			t.Errorf("%s and %s have the same proof", name, other)
		}
		seen[string(p.Proof)] = name
	}
}

// Proof, keys and tags are part of the format: docs/design/format-wire.md shows these bytes.
func TestSessionBytes(t *testing.T) {
	secret, nonce := make([]byte, SecretSize), make([]byte, NonceSize)
	h, initiation := Initiate(&InitiationMessage{MinVersion: 6, Version: 6, Nonce: nonce, Address: "10.0.0.1:10001"},
		secret, NewDigester(secret))
	h.Greet(Marshal(GreetingMessage{Version: 6, Nonce: nonce, Member: "r"}))
	p, k := h.Hello(&HelloMessage{VolumeUUID: "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88", Engine: "e", Epoch: 2, Member: "r"})
	began, b := proofOf(t, initiation), proofOf(t, p)
	f := frame{Header{Type: Write, Flags: FUA, ID: 0x0102030405060708, Epoch: 9, Off: 0x1000, Len: 9, Layer: 3},
		"123456789"}
	first, second := tagged(f, k), tagged(frame{h: Header{Type: Flush, ID: 1, Epoch: 9}}, k)
	for what, c := range map[string][2]string{
		"initiation": {string(began.Said),
			`{"minVersion":6,"version":6,"nonce":"AAAAAAAAAAAAAAAAAAAAAA==","address":"10.0.0.1:10001"}`},
		"initiation's proof": {hex.EncodeToString(began.Proof), wantInitiationProof},
		"greeting":           {string(h.greeting), `{"version":6,"nonce":"AAAAAAAAAAAAAAAAAAAAAA==","member":"r"}`},
		"hello": {string(b.Said), `{"volumeName":"","volumeUUID":"6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88",` +
			`"engine":"e","epoch":2,"member":"r"}`},
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
	wantInitiationProof = "af39019b9efc3d3bdb289ec61cb678f8472709c955ccd23a157e1a859678a008"
	wantProof           = "98a9428f9a5d75faa9b0f74c0e2d8067b56e5c587f9aa61d4202a172e1d4ba3f"
	wantTag             = "5abcb69ed76445b45edfe15e690df9f5"
	wantSecondTag       = "fc22677708d9bc596156087ed324e45e"
)

// Who is between engine and replica can change, repeat, leave out, reorder and send back frames,
// and bring frames of another session: the connection ends at the first of them.
func TestFramesOfAnAttackerEndTheSession(t *testing.T) {
	first := frame{Header{Type: Write, ID: 1, Len: 4096}, content(4096, 1)}
	second := frame{Header{Type: Flush, ID: 2}, ""}
	forged := frame{Header{Type: Write, ID: 1, Len: 4096}, content(4096, 2)}
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
		"an open refusal": {func(*Keys, *Keys) []byte {
			return encode([]frame{{Header{Type: Hello, Flags: Response, Code: block.Refused}, "{}"}})
		}, 0},
		"repeated":          {func(e, _ *Keys) []byte { p := tagged(first, e); return append(p, p...) }, 1},
		"left out":          {func(e, _ *Keys) []byte { tagged(first, e); return tagged(second, e) }, 0},
		"reordered":         {func(e, _ *Keys) []byte { p := tagged(first, e); return append(tagged(second, e), p...) }, 0},
		"reflected":         {func(_, r *Keys) []byte { return tagged(first, r) }, 0},
		"of another secret": {func(*Keys, *Keys) []byte { return tagged(first, strangersKeys()) }, 0},
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
	h, _ := Initiate(&InitiationMessage{Nonce: make([]byte, NonceSize)}, []byte("another"), NewDigester([]byte("another")))
	h.Greet([]byte(`{"version":6}`))
	_, k := h.Hello(&HelloMessage{Engine: "e"})
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

// Nothing with a tag is taken before there are keys.
func TestFramesBeforeTheKeys(t *testing.T) {
	arena := newArena(4<<20, 2)
	defer arena.Close()
	engine, _ := testKeys()
	r := newReceiver(arena)
	r.feed(tagged(frame{h: Header{Type: Flush}}, engine), 1000)
	if err := r.end(arena); len(r.sink.got) != 0 || !strings.Contains(err.Error(), "before the hello") {
		t.Errorf("%d frames, %v", len(r.sink.got), err)
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
