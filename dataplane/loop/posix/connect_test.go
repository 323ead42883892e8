package posix

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// A Connect whose socket cannot be watched fails, and leaves no socket behind.
func TestConnectThatCannotBeWatched(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l, err := New(loop.NewArena(1<<20), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	whole := l.epoll
	if l.epoll, err = unix.Dup(l.inbox.efd); err != nil { // a descriptor that is no epoll descriptor
		t.Fatal(err)
	}
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	const connects = 20
	for i := range connects {
		l.Submit([]loop.Op{{Kind: loop.Connect, Addr: "tcp:" + listener.Addr().String(), Tag: uint64(i)}})
	}
	unix.Close(l.epoll)
	l.epoll = whole
	refused := 0
	for refused < connects {
		var done [connects]loop.Done
		n := l.Reap(done[:], 10*time.Second)
		if n == 0 {
			t.Fatal("some are not answered")
		}
		for _, d := range done[:n] {
			if d.Kind != loop.Connect || d.Errno == 0 || d.New != loop.None || d.Handle != loop.None {
				t.Errorf("%+v", d)
			}
			refused++
		}
	}
	// The epoll descriptor of before was closed.
	if left := open() - (before - 1); left != 0 {
		t.Errorf("%d of %d sockets are left", left, connects)
	}
}
