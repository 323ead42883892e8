package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend"
)

const wait = 30 * time.Second

// pair returns both ends of a hand-over: the new engine's and the old one's.
func pair(t *testing.T) (asks, answers *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if asks, err = Dial(path); err != nil {
		t.Fatal(err)
	}
	if answers, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { asks.Close(); answers.Close() })
	return asks, answers
}

func soon() time.Time { return time.Now().Add(wait) }

func one(t *testing.T, from, to *Conn, m Message) Message {
	t.Helper()
	sent := make(chan error, 1)
	go func() { sent <- from.Send(m, soon()) }()
	got, err := to.Receive(soon())
	if err := errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
	return got
}

// A socket whose path is longer than the kernel takes is reached, if there is one.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	if _, err := Dial(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asks, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer asks.Close()
	answers, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	asks.Close()
	if !answers.Gone() {
		t.Error("another one was reached")
	}
}

func TestWhatIsSentArrives(t *testing.T) {
	asks, answers := pair(t)
	for _, m := range messages() {
		if m.Offer != nil {
			continue // with descriptors, below
		}
		if got := one(t, asks, answers, m); !reflect.DeepEqual(got, m) {
			t.Errorf("%+v arrives as %+v", m, got)
		}
		if got := one(t, answers, asks, m); !reflect.DeepEqual(got, m) {
			t.Errorf("%+v arrives as %+v", m, got)
		}
	}
}

// Each descriptor arrives as the file it was, in order, with what was not read yet, however large.
func TestDescriptorsTravel(t *testing.T) {
	asks, answers := pair(t)
	x := &frontend.Export{Transport: "nbd-unix"}
	for i := range 40 {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Repeat("x", i)); err != nil {
			t.Fatal(err)
		}
		x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: "client", FD: int(f.Fd()),
			Unread: bytes.Repeat([]byte{byte(i)}, i*10000)})
	}
	got := one(t, answers, asks, Message{Offer: &Offer{Epoch: 7, Export: x}})
	if got.Offer == nil || len(got.Offer.Export.Descriptors) != len(x.Descriptors) {
		t.Fatalf("got %+v", got)
	}
	for i, d := range got.Offer.Export.Descriptors {
		var st unix.Stat_t
		if err := unix.Fstat(d.FD, &st); err != nil || st.Size != int64(i) || d.FD == x.Descriptors[i].FD {
			t.Errorf("descriptor %d is %d of %d bytes: %v", i, d.FD, st.Size, err)
		}
		if flags, err := unix.FcntlInt(uintptr(d.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would be inherited by children", i)
		}
		if !bytes.Equal(d.Unread, x.Descriptors[i].Unread) {
			t.Errorf("descriptor %d: %d bytes unread instead of %d", i, len(d.Unread), len(x.Descriptors[i].Unread))
		}
		unix.Close(d.FD)
	}
}

// TestMessageInPieces: a message of which a part has come at the deadline is not lost. The next
// Receive goes on with it, whatever the reader was in the middle of, and also when the peer says
// nothing more by then.
func TestMessageInPieces(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, m := range map[string]Message{
		"taken": {Taken: &Taken{Epoch: 1002}},
		"offer": {Offer: &Offer{Epoch: 7, Members: []string{"a"}, Export: &frontend.Export{Transport: "x",
			Descriptors: []frontend.Descriptor{{Kind: "device", FD: int(f.Fd())}}}}},
	} {
		p, fds, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		for cut := 1; cut < len(p); cut++ {
			asks, answers := pair(t)
			if _, _, err := asks.c.WriteMsgUnix(p[:cut], rights, nil); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := answers.Receive(time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("%s: %d of %d bytes are received as %+v, %v", name, cut, len(p), got, err)
				}
			}
			if _, err := asks.c.Write(p[cut:]); err != nil {
				t.Fatal(err)
			}
			if err := answers.CloseRead(); err != nil {
				t.Fatal(err)
			}
			got, err := answers.Receive(soon())
			if err != nil || got.kind() != name {
				t.Fatalf("%s: cut after %d of %d bytes it arrives as %+v, %v", name, cut, len(p), got, err)
			}
			if x := got.export(); x != nil {
				if _, err := unix.FcntlInt(uintptr(x.Descriptors[0].FD), unix.F_GETFD, 0); err != nil {
					t.Fatalf("%s: cut after %d bytes its descriptor is lost: %v", name, cut, err)
				}
				unix.Close(x.Descriptors[0].FD)
			}
			asks.Close()
			answers.Close()
		}
	}
}

// TestHalfAMessageIsLetGo: descriptors of a message that never comes whole are closed with the
// connection.
func TestHalfAMessageIsLetGo(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	asks, answers := pair(t)
	if _, _, err := asks.c.WriteMsgUnix([]byte{1}, unix.UnixRights(int(w.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := answers.Receive(time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	answers.Close()
	if err := r.SetReadDeadline(soon()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the descriptor is still open: %v", err)
	}
}

// Either the word was accepted and can still be read, or whoever sent it is told that it was not.
func TestCloseReadDecides(t *testing.T) {
	taken := Message{Taken: &Taken{Epoch: 1}}
	asks, answers := pair(t)
	if err := asks.Send(taken, soon()); err != nil {
		t.Fatal(err)
	}
	if err := answers.CloseRead(); err != nil {
		t.Fatal(err)
	}
	if err := asks.Send(taken, soon()); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the second word was accepted: %v", err)
	}
	if m, err := answers.Receive(soon()); err != nil || m.Taken == nil {
		t.Errorf("the first word is lost: %+v, %v", m, err)
	}
	if m, err := answers.Receive(soon()); !errors.Is(err, io.EOF) {
		t.Errorf("after it came %+v, %v", m, err)
	}
}

// TestCloseReadDecidesInARace: whoever is first, both sides agree about it.
func TestCloseReadDecidesInARace(t *testing.T) {
	for range 200 {
		asks, answers := pair(t)
		sent := make(chan error, 1)
		go func() { sent <- asks.Send(Message{Taken: &Taken{}}, soon()) }()
		if err := answers.CloseRead(); err != nil {
			t.Fatal(err)
		}
		m, err := answers.Receive(soon())
		if accepted := <-sent == nil; accepted != (err == nil && m.Taken != nil) {
			t.Fatalf("accepted %v, received %+v, %v", accepted, m, err)
		}
		asks.Close()
		answers.Close()
	}
}

func TestGone(t *testing.T) {
	asks, answers := pair(t)
	if answers.Gone() {
		t.Error("gone before it has left")
	}
	if err := asks.Send(Message{Taken: &Taken{}}, soon()); err != nil {
		t.Fatal(err)
	}
	asks.Close()
	if answers.Gone() {
		t.Error("what it has said is not heard")
	}
	if m, err := answers.Receive(soon()); err != nil || m.Taken == nil {
		t.Errorf("%+v, %v", m, err)
	}
	if !answers.Gone() {
		t.Error("it has left and is not gone")
	}
}

// Whether the peer is there, and has said something, is seen after a deadline has passed, too.
func TestPeekAfterADeadline(t *testing.T) {
	asks, answers := pair(t)
	if _, err := answers.Receive(time.Now().Add(-time.Second)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("nothing was said: %v", err)
	}
	if answers.Gone() || answers.Heard() {
		t.Error("a peer that waits and says nothing is not seen to")
	}
	if err := asks.Send(Message{Taken: &Taken{}}, soon()); err != nil {
		t.Fatal(err)
	}
	if answers.Gone() || !answers.Heard() {
		t.Error("what the peer has said is not seen")
	}
}

func TestPeerIsTheProcess(t *testing.T) {
	asks, answers := pair(t)
	for _, c := range []*Conn{asks, answers} {
		fd, pid, err := c.Peer()
		if err != nil || pid != os.Getpid() {
			t.Errorf("peer %d, %v", pid, err)
		}
		unix.Close(fd)
	}
}

// An engine that comes listens in the place of the one before; who leaves later does not take its
// socket away.
func TestSocketPassesOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the last one left: %v", err)
	}
	if _, err := second.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
}

func messages() []Message {
	return []Message{
		{Ask: &Ask{MinVersion: 1, Version: 1, VolumeName: "v", VolumeUUID: "u", Engine: "v-e-0", InstanceManager: "im",
			Members: []string{"a", "b"}}},
		{Refused: &Refused{Reason: "a replica is being rebuilt"}},
		{Draining: &Draining{}},
		{Offer: &Offer{Epoch: 1001, Generation: 3, Members: []string{"a"}, Size: 1 << 30, Frontend: "tgt-blockdev",
			Purge: true, Counters: Counters{Reads: 1},
			Options: Options{SnapshotMaxCount: 250},
			Export: &frontend.Export{Transport: "fuse-loop", State: json.RawMessage(`{"loop":3}`),
				Descriptors: []frontend.Descriptor{{Kind: "device", FD: -1, Unread: []byte{1}}}}}},
		{Failed: &Failed{Reason: "replica a does not give its directory"}},
		{Taken: &Taken{Epoch: 1002}},
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		p, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p, 0)
		f.Add(p, 1)
	}
	f.Add([]byte(`{"taken":{},"failed":{}}`), 0)
	f.Fuzz(func(t *testing.T, p []byte, n int) {
		fds := make([]int, max(0, min(n, 4)))
		for i := range fds {
			fds[i] = 1000 + i
		}
		m, err := decode(p, fds)
		if err != nil {
			if !errors.Is(err, ErrBadMessage) {
				t.Fatal(err)
			}
			return
		}
		if m.kind() == "" {
			t.Fatalf("%+v is accepted", m)
		}
		if x := m.export(); x != nil && len(x.Descriptors) != len(fds) || x == nil && len(fds) > 0 {
			t.Fatalf("%d descriptors for %+v", len(fds), m)
		}
	})
}
