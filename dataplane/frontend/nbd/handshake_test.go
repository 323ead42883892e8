package nbd

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestNegotiation(t *testing.T) {
	type reply struct{ opt, typ uint32 }
	cases := []struct {
		name   string
		option []byte
		want   []reply
	}{
		{"list", optionBytes(optList, nil), []reply{{optList, repServer}, {optList, repAck}}},
		{"list with data", optionBytes(optList, []byte{1}), []reply{{optList, repErrInvalid}}},
		{"info", optionBytes(optInfo, infoData("vol")), []reply{{optInfo, repInfo}, {optInfo, repInfo}, {optInfo, repAck}}},
		{"info of the default", optionBytes(optInfo, infoData("")),
			[]reply{{optInfo, repInfo}, {optInfo, repInfo}, {optInfo, repAck}}},
		{"info of another", optionBytes(optInfo, infoData("nope")), []reply{{optInfo, repErrUnknown}}},
		{"info cut short", optionBytes(optInfo, []byte{0, 0, 0}), []reply{{optInfo, repErrInvalid}}},
		{"info with a false length", optionBytes(optInfo, []byte{0xff, 0xff, 0xff, 0xff, 0, 0}),
			[]reply{{optInfo, repErrInvalid}}},
		{"go to another", optionBytes(optGo, infoData("nope")), []reply{{optGo, repErrUnknown}}},
		{"TLS", optionBytes(5, nil), []reply{{5, repErrUnsup}}},
		{"structured replies", optionBytes(8, nil), []reply{{8, repErrUnsup}}},
		{"abort", optionBytes(optAbort, nil), []reply{{optAbort, repAck}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := newScript(t, nil)
			p := k.connect()
			p.got = nil
			p.chunk = 3
			k.say(p, hello(), c.option)
			var got []reply
			for b := p.got; len(b) >= 20; b = b[20+binary.BigEndian.Uint32(b[16:]):] {
				if binary.BigEndian.Uint64(b) != magicOptReply {
					t.Fatalf("not an option reply: % x", b)
				}
				got = append(got, reply{binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])})
			}
			if len(got) != len(c.want) {
				t.Fatalf("replies %x, want %x", got, c.want)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Fatalf("replies %x, want %x", got, c.want)
				}
			}
			if wantClosed := c.name == "abort"; p.closed != wantClosed {
				t.Fatalf("closed is %v", p.closed)
			}
			k.stop()
		})
	}
}

func TestExportNameIsTheOldWayIn(t *testing.T) {
	for _, flags := range []uint32{flagFixedNewstyle, flagFixedNewstyle | flagNoZeroes} {
		k := newScript(t, nil)
		p := k.connect()
		p.got = nil
		k.say(p, binary.BigEndian.AppendUint32(nil, flags), optionBytes(optExportName, []byte("vol")))
		want := 10
		if flags&flagNoZeroes == 0 {
			want = 134
		}
		if len(p.got) != want || binary.BigEndian.Uint64(p.got) != testSize {
			t.Fatalf("flags %d: got %d bytes % x, want %d", flags, len(p.got), p.got[:10], want)
		}
		k.stop()
	}
}

func TestAFloodOfOptionsIsAnsweredOrCutOff(t *testing.T) {
	k := newScript(t, nil)
	p := k.connect()
	k.say(p, hello(), bytes.Repeat(optionBytes(optList, nil), maxOptions))
	if p.closed || bytes.Count(p.got, []byte("vol")) != maxOptions {
		t.Fatalf("%d of %d lists answered, closed %v", bytes.Count(p.got, []byte("vol")), maxOptions, p.closed)
	}
	k.say(p, optionBytes(optList, nil))
	if !p.closed {
		t.Fatal("one option more than allowed was answered")
	}
	k.stop()
}
