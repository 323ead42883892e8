package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestPickVersion(t *testing.T) {
	for _, c := range []struct {
		min, max, want int
	}{
		{Version, Version, Version},
		{MinVersion, Version + 5, Version}, // a newer peer that still speaks ours
		{Version + 1, Version + 5, 0},      // too new
		{0, MinVersion - 1, 0},             // too old
		{3, 1, 0},                          // nonsense
	} {
		v, err := Pick(c.min, c.max)
		if v != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("a peer of %d to %d: %d, %v; want %d", c.min, c.max, v, err, c.want)
		}
	}
}

// Two proofs are equal only if everything that they prove is.
func TestProofsDiffer(t *testing.T) {
	type input struct {
		secret, uuid, theirs, mine string
		epoch                      uint64
	}
	base := input{"secret", "uuid", "0123456789abcdef", "fedcba9876543210", 7}
	engine := func(i input) string {
		return hex.EncodeToString(EngineProof([]byte(i.secret), i.uuid, i.epoch, []byte(i.theirs), []byte(i.mine)))
	}
	replica := func(i input) string {
		return hex.EncodeToString(ReplicaProof([]byte(i.secret), i.uuid, i.epoch, []byte(i.theirs), []byte(i.mine)))
	}
	seen := map[string]string{engine(base): "the engine's", replica(base): "the replica's"}
	if len(seen) != 2 {
		t.Error("a proof can be sent back to where it came from")
	}
	for name, change := range map[string]func(*input){
		"another secret":        func(i *input) { i.secret = "Secret" },
		"another volume":        func(i *input) { i.uuid = "uuiD" },
		"another epoch":         func(i *input) { i.epoch++ },
		"another replica nonce": func(i *input) { i.theirs = "0123456789abcdeF" },
		"another engine nonce":  func(i *input) { i.mine = "Fedcba9876543210" },
		"nonces swapped":        func(i *input) { i.theirs, i.mine = i.mine, i.theirs },
	} {
		i := base
		change(&i)
		for _, p := range []string{engine(i), replica(i)} {
			if other, ok := seen[p]; ok {
				t.Errorf("%s gives the same proof as %s", name, other)
			}
			seen[p] = name
		}
	}
	if !SameProof([]byte("x"), []byte("x")) || SameProof([]byte("x"), []byte("y")) || SameProof(nil, []byte("x")) {
		t.Error("SameProof does not compare")
	}
}

// The proof is part of the format.
func TestProofBytes(t *testing.T) {
	got := hex.EncodeToString(EngineProof(make([]byte, SecretSize), "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88", 2,
		make([]byte, NonceSize), make([]byte, NonceSize)))
	const want = "6761dcbdb1b96dbe7be6ea45d46756df6b311a0dee43f3e6c9e0b29ca2e14618"
	if got != want {
		t.Errorf("proof %s, the format says %s", got, want)
	}
}

func roundTrip[T any](t *testing.T) {
	t.Helper()
	gen := rapid.Make[T]()
	rapid.Check(t, func(t *rapid.T) {
		in := gen.Draw(t, "message")
		p := Marshal(in)
		var out T
		if err := Unmarshal(p, &out); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if again := Marshal(out); !bytes.Equal(again, p) {
			t.Fatalf("%s came back as %s", p, again)
		}
	})
}

func TestMessagesRoundTrip(t *testing.T) {
	t.Run("greeting", roundTrip[GreetingMessage])
	t.Run("hello", roundTrip[HelloMessage])
	t.Run("reply", roundTrip[HelloReply])
	t.Run("control", roundTrip[ControlRequest])
	t.Run("control reply", roundTrip[ControlReply])
}

// An older peer does not know newer fields and must not stumble over them.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	var m HelloMessage
	if err := Unmarshal([]byte(`{"version":1,"epoch":3,"later":{"x":[1]}}`), &m); err != nil || m.Epoch != 3 {
		t.Errorf("%+v, %v", m, err)
	}
}

// Epochs must not lose digits on the way through JSON.
func TestLargeNumbersKeepTheirDigits(t *testing.T) {
	in := HelloMessage{Epoch: 1<<63 + 12345}
	var out HelloMessage
	if err := Unmarshal(Marshal(in), &out); err != nil || out.Epoch != in.Epoch {
		t.Errorf("epoch %d became %d, %v", in.Epoch, out.Epoch, err)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"minVersion":1,"version":1,"nonce":"AAAA","member":"a"}`))
	f.Add(Marshal(HelloReply{Record: &RecordMessage{Members: []string{"a"}}, Dirty: []uint32{1}}))
	f.Add(Marshal(ControlRequest{Snapshot: &SnapshotRequest{Name: "s", Labels: map[string]string{"a": "b"}}}))
	f.Add(Marshal(HelloReply{Standby: true, DirtyAll: true, Promised: 7, PromisedTo: "e@im"}))
	f.Add(Marshal(HelloReply{Trial: true}))
	f.Add(Marshal(ControlRequest{Release: &ReleaseRequest{}}))
	f.Add(Marshal(ControlRequest{Keep: &KeepRequest{}}))
	f.Add(Marshal(BoundHello{Said: Marshal(HelloMessage{Version: BoundVersion}), Proof: []byte("proof")}))
	f.Add([]byte(`{"said":"","proof":""}`))
	f.Add([]byte(`{"nonce":"`))
	f.Add([]byte(`[[[[[[`))
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, b, err := ReadHello(p); err != nil && !errors.Is(err, ErrFrame) || err == nil && b == nil && !json.Valid(p) {
			t.Fatalf("%q was read as %+v, %v", p, m, err)
		}
		for _, v := range []any{&GreetingMessage{}, &HelloMessage{}, &HelloReply{}, &ControlRequest{}, &ControlReply{}} {
			err := Unmarshal(p, v)
			if err != nil && !errors.Is(err, ErrFrame) {
				t.Fatalf("error of another kind: %v", err)
			}
			if err == nil && !json.Valid(p) {
				t.Fatalf("%q was taken for a %s", p, reflect.TypeOf(v))
			}
		}
	})
}

// A grant's key depends on everything that it grants, and a reader's proof is nobody else's.
func TestGrantKeysDiffer(t *testing.T) {
	base := Grant{Snapshot: "s", For: "target", Expires: 100}
	key := func(g Grant, secret, uuid string) string { return hex.EncodeToString(g.Key([]byte(secret), uuid)) }
	seen := map[string]string{key(base, "secret", "uuid"): "the grant"}
	for name, k := range map[string]string{
		"another secret":   key(base, "Secret", "uuid"),
		"another volume":   key(base, "secret", "uuiD"),
		"another snapshot": key(Grant{"S", "target", 100}, "secret", "uuid"),
		"another reader":   key(Grant{"s", "targeT", 100}, "secret", "uuid"),
		"another end":      key(Grant{"s", "target", 101}, "secret", "uuid"),
		"shifted texts":    key(Grant{"st", "arget", 100}, "secret", "uuid"),
		"no grant":         hex.EncodeToString([]byte("secret")),
	} {
		if other, ok := seen[k]; ok {
			t.Errorf("%s gives the same key as %s", name, other)
		}
		seen[k] = name
	}
	n1, n2 := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	k := base.Key([]byte("secret"), "uuid")
	if p := ReaderProof(k, "uuid", n1, n2); SameProof(p, EngineProof(k, "uuid", 0, n1, n2)) ||
		SameProof(p, ReplicaProof(k, "uuid", 0, n1, n2)) {
		t.Error("a reader's proof is good for another role")
	}
}

// Key and proof are part of the format.
func TestGrantBytes(t *testing.T) {
	g := Grant{Snapshot: "snap", For: "9d7a1c0e-5c1b-4a52-8d5e-0c8f4ec1a4b2", Expires: 1790000000}
	k := g.Key(make([]byte, SecretSize), "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88")
	p := ReaderProof(k, "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88", make([]byte, NonceSize), make([]byte, NonceSize))
	const wantKey, wantProof = "6d320a78fb80193cbc88b85291002b05274047a47cc7ade0fe2c5dfe61952b60",
		"4f56f945f242fe53d4dab3e18d70342bea05b70c7e081378799071a8663d621b"
	if hex.EncodeToString(k) != wantKey || hex.EncodeToString(p) != wantProof {
		t.Errorf("key %x, proof %x; the format says %s, %s", k, p, wantKey, wantProof)
	}
}
