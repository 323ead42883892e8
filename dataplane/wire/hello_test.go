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
	t.Run("initiation", roundTrip[InitiationMessage])
	t.Run("greeting", roundTrip[GreetingMessage])
	t.Run("hello", roundTrip[HelloMessage])
	t.Run("reply", roundTrip[HelloReply])
	t.Run("control", roundTrip[ControlRequest])
	t.Run("control reply", roundTrip[ControlReply])
}

// An older peer does not know newer fields and must not stumble over them.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	var m HelloMessage
	if err := Unmarshal([]byte(`{"epoch":3,"later":{"x":[1]}}`), &m); err != nil || m.Epoch != 3 {
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
	f.Add([]byte(`{"version":6,"nonce":"AAAA","member":"a"}`))
	f.Add(Marshal(HelloReply{Record: &RecordMessage{Members: []string{"a"}}, Dirty: []uint32{1}}))
	f.Add(Marshal(ControlRequest{Snapshot: &SnapshotRequest{Name: "s", Labels: map[string]string{"a": "b"}}}))
	f.Add(Marshal(HelloReply{Standby: true, DirtyAll: true, Promised: 7, PromisedTo: "e@im"}))
	f.Add(Marshal(ControlRequest{Release: &ReleaseRequest{}}))
	secret := make([]byte, SecretSize)
	ours := NewDigester(secret)
	for _, m := range []InitiationMessage{{Nonce: make([]byte, NonceSize)}, {Nonce: []byte("short")},
		{Nonce: make([]byte, NonceSize), Reader: &Grant{Snapshot: "s", For: "target", Expires: 1}}} {
		key, d := secret, ours
		if m.Reader != nil {
			key = m.Reader.Key(secret, "uuid")
			d = NewDigester(key)
		}
		_, p := Initiate(&m, key, d)
		f.Add(p)
	}
	known, _ := Initiate(&InitiationMessage{Nonce: make([]byte, NonceSize)}, secret, ours)
	hello, _ := known.Hello(&HelloMessage{Epoch: 1, Member: "a"})
	f.Add(hello)
	f.Add([]byte(`{"said":"","proof":""}`))
	f.Add([]byte(`{"nonce":"`))
	f.Add([]byte(`[[[[[[`))
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, h, err := Accept(p, secret, "uuid", ours); err == nil && (h == nil || len(m.Nonce) != NonceSize) ||
			err != nil && !errors.Is(err, ErrFrame) && !errors.Is(err, ErrPeer) {
			t.Fatalf("%q was accepted as %+v, %v", p, m, err)
		}
		if m, k, err := known.ReadHello(p); err == nil && k == nil ||
			err != nil && !errors.Is(err, ErrFrame) && !errors.Is(err, ErrPeer) {
			t.Fatalf("%q was read as %+v, %v", p, m, err)
		}
		for _, v := range []any{&InitiationMessage{}, &GreetingMessage{}, &HelloMessage{}, &HelloReply{}, &ControlRequest{},
			&ControlReply{}} {
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

// A grant's key depends on everything that it grants.
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
}

// The key is part of the format.
func TestGrantBytes(t *testing.T) {
	g := Grant{Snapshot: "snap", For: "9d7a1c0e-5c1b-4a52-8d5e-0c8f4ec1a4b2", Expires: 1790000000}
	k := g.Key(make([]byte, SecretSize), "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88")
	const want = "6d320a78fb80193cbc88b85291002b05274047a47cc7ade0fe2c5dfe61952b60"
	if hex.EncodeToString(k) != want {
		t.Errorf("key %x; the format says %s", k, want)
	}
}
