package demo

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ankole.storage/rest/resource"
	"ankole.storage/test/wait"
)

// TestTimeLine: what was upgraded when can be read off the lines, in the order of the beginnings.
func TestTimeLine(t *testing.T) {
	second := time.Second
	got := timeLine([]span{{volume: "b", from: 2 * second, to: 4 * second}, {volume: "tour-a", from: 0, to: 2 * second}})
	if len(got) != 2 || got[0].volume != "tour-a" || got[1].volume != "b" {
		t.Fatalf("%+v", got)
	}
	half := lineWidth / 2
	for i, want := range []string{
		"tour-a |" + strings.Repeat("#", half+1) + strings.Repeat(".", lineWidth-half-1) + "|   0.0 s to  2.0 s",
		"b      |" + strings.Repeat(".", half) + strings.Repeat("#", lineWidth-half) + "|   2.0 s to  4.0 s",
	} {
		if got[i].text != want {
			t.Errorf("line %d is\n%q, want\n%q", i, got[i].text, want)
		}
	}
	if one := timeLine([]span{{volume: "a"}}); len(one) != 1 || !strings.Contains(one[0].text, "|#") {
		t.Errorf("an upgrade that was seen once: %+v", one)
	}
}

// TestConnectionsAreCounted: the bytes of a connection between two addresses of this machine are
// found at these addresses, and at no others.
func TestConnectionsAreCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.77.1.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	before, err := connections()
	if err != nil {
		t.Fatal(err)
	}
	const size = 100 << 10
	go func() { _, _ = out.Write(make([]byte, size)) }() // the reader notices
	if _, err := io.ReadFull(in, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	// What was read has arrived; that it was acknowledged comes a moment later.
	here := []netip.Addr{netip.MustParseAddr("127.77.1.2")}
	wait.For(t, "the acknowledgement of all bytes", func() error {
		after, err := connections()
		if err != nil {
			t.Fatal(err)
		}
		if bytes, n := grown(before, after, here); n != 1 || bytes != size {
			return fmt.Errorf("%d bytes over %d connections, want %d over 1", bytes, n, size)
		}
		if other, n := grown(before, after, []netip.Addr{netip.MustParseAddr("127.77.1.3")}); n != 0 || other != 0 {
			t.Errorf("%d bytes at another address", other)
		}
		return nil
	})
}

// TestDamagedListOfConnections: whatever the kernel were to say, reading it ends.
func TestDamagedListOfConnections(t *testing.T) {
	for _, bad := range [][]byte{
		{255, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		{16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		if done, err := readConnections(bad, map[connection]uint64{}); done || err == nil {
			t.Errorf("%v: %t, %v", bad, done, err)
		}
	}
	if done, err := readConnections(nil, nil); done || err != nil {
		t.Errorf("nothing: %t, %v", done, err)
	}
}

func TestListensAt(t *testing.T) {
	r := resource.Replica{DataPath: "/var/lib/longhorn/replicas/tour-1-1a2b3c4d"}
	args := func(listen ...string) map[int][]string {
		return map[int][]string{7: append([]string{"longhorn", "replica", "/host/x/replicas/tour-1-1a2b3c4d"}, listen...)}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "127.0.2.1:10000"}, "127.0.2.1"}, {[]string{"--listen=127.0.2.3:10015"}, "127.0.2.3"},
		{[]string{"--listen"}, ""}, {[]string{"--listen", "x"}, ""}, {nil, ""},
	} {
		at, ok := listensAt(args(tt.args...), r)
		if ok != (tt.want != "") || ok && at.String() != tt.want {
			t.Errorf("%v: %v, %t", tt.args, at, ok)
		}
	}
	if _, ok := listensAt(nil, r); ok {
		t.Error("a replica without a process listens")
	}
}

func TestReplicaStates(t *testing.T) {
	v := &resource.Volume{Replicas: []resource.Replica{{HostID: "node-2", Mode: "WO"}, {HostID: "node-1", Mode: "RW"}, {}}}
	if got, want := replicaStates(v), "replicas: node-1 (in sync), node-2 (being rebuilt), none (starting or ending)"; got !=
		want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := replicaStates(&resource.Volume{}); got != "replicas: none" {
		t.Errorf("%q", got)
	}
}

func TestPercentBeside(t *testing.T) {
	for value, want := range map[string][2]string{
		"0": {"0", "1"}, " 12 ": {"12", "13"}, "40": {"40", "39"}, "20": {"20", "19"}, `{"v1":"12","v2":"3"}`: {"12", "13"},
		`{"v2":"12"}`: {}, "x": {}, "": {},
	} {
		now, other, err := percentBeside(value)
		if now != want[0] || other != want[1] || (err != nil) != (other == "") {
			t.Errorf("%s: %s, %s, %v", value, now, other, err)
		}
	}
}
