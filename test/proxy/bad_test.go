package proxy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/wait"
)

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// bytesCodec sends what it is given and drops what it gets.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { return nil }
func (bytesCodec) Name() string                       { return "proto" }

// TestBadCalls: what is wrong with a call has a code and is said; the instance manager and the
// engines go on.
func TestBadCalls(t *testing.T) {
	n := start(t, "nbd-unix")
	one, two := n.volume("one", 4*mib, 1), n.volume("two", 4*mib, 1)
	raw := func(ctx context.Context, method string, request []byte) error {
		var answer []byte
		return n.conn.Invoke(ctx, method, &request, &answer, grpc.ForceCodec(bytesCodec{}))
	}
	to := func(v *volume) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "engine-address", v.engine)
	}
	get := func(request string) func() error {
		return func() error { _, err := n.out.call(t.Context(), "VolumeGet", request); return err }
	}
	for _, row := range []struct {
		name string
		call func() error
		want codes.Code
		says string
	}{
		{"the engine of another volume", get(fmt.Sprintf(`{"address": %q, "volume_name": "one"}`, two.engine)),
			codes.FailedPrecondition, "volume two"},
		{"another engine of the volume",
			get(fmt.Sprintf(`{"address": %q, "volume_name": "one", "engine_name": "one-e-1"}`, one.engine)),
			codes.FailedPrecondition, "one-e-0"},
		{"a replica's port", get(fmt.Sprintf(`{"address": %q}`, strings.TrimPrefix(one.address[0], "tcp://"))),
			codes.Unimplemented, "unknown service"},
		{"a port where nobody listens", get(fmt.Sprintf(`{"address": "%s:1"}`, n.ip)), codes.Unavailable, n.ip + ":1"},
		{"not an address", get(`{"address": "one"}`), codes.InvalidArgument, "IP:PORT"},
		{"bytes that are no message", func() error {
			return raw(t.Context(), "/"+service+"/VolumeGet", []byte("\xff\xff\xff"))
		}, codes.Internal, "unmarshal"},
		{"the same, passed on", func() error {
			return raw(to(one), "/ankole.engine.v1.Engine/Expand", []byte("\xff\xff\xff"))
		}, codes.Internal, "unmarshal"},
		{"five megabytes", func() error {
			return raw(t.Context(), "/"+service+"/VolumeGet", make([]byte, 5*mib))
		}, codes.ResourceExhausted, "larger than max"},
		{"five megabytes, passed on", func() error {
			return raw(to(one), "/ankole.engine.v1.Engine/Get", make([]byte, 5*mib))
		}, codes.ResourceExhausted, "larger than max"},
		{"a volume's name of 100 KiB",
			get(fmt.Sprintf(`{"address": %q, "volume_name": %q}`, one.engine, strings.Repeat("x", 100<<10))),
			codes.FailedPrecondition, "volume one"},
		{"a snapshot's name of 100 KiB", func() error {
			_, err := one.try("VolumeSnapshot", param("snapshot_volume",
				map[string]string{"name": strings.Repeat("x", 100<<10)}))
			return err
		}, codes.InvalidArgument, "name"},
		{"the checksum of one with such a name", func() error {
			_, err := one.try("SnapshotHash", param("snapshot_name", strings.Repeat("x", 100<<10)))
			return err
		}, codes.NotFound, "there is no snapshot"},
		{"a snapshot that is removed, with such a name", func() error {
			_, err := one.try("SnapshotRemove", param("names", []string{strings.Repeat("x", 100<<10)}))
			return err
		}, codes.NotFound, "there is no snapshot"},
		{"a second frontend", func() error {
			_, err := one.try("VolumeFrontendStart",
				param("frontend_start", map[string]string{"frontend": strings.Repeat("x", 100<<10)}))
			return err
		}, codes.FailedPrecondition, "frontend"},
		{"a method that is not there", func() error {
			return raw(t.Context(), "/"+service+"/Fly", nil)
		}, codes.Unimplemented, "Fly"},
	} {
		err := row.call()
		text := status.Convert(err).Message()
		if status.Code(err) != row.want || !strings.Contains(text, row.says) || len(text) > 4096 {
			t.Errorf("%s: %.300v, want %s and %q", row.name, err, row.want, row.says)
		}
	}
	for _, v := range []*volume{one, two} {
		if at(v.must("VolumeGet"), "volume", "name") != v.name {
			t.Errorf("%s is gone", v.name)
		}
	}
}

// TestDeadline: an engine that says nothing costs its caller the time that the caller gives, and
// nobody else any.
func TestDeadline(t *testing.T) {
	n := start(t, "nbd-unix")
	one, two := n.volume("one", 4*mib, 1), n.volume("two", 4*mib, 1)
	pid := n.pidOf("one-e-0")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	wait.Until(t, "the engine has stopped", func() bool { return stopped(t, pid) })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := n.out.call(ctx, "VolumeGet", one.request()); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := n.out.call(gone, "SnapshotList", one.request()); left <- err }()
	leave()
	if err := <-left; status.Code(err) != codes.Canceled {
		t.Errorf("a client that leaves: %v", err)
	}
	two.must("VolumeGet")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the engine is back", func() bool { _, err := one.try("VolumeGet"); return err == nil })
}

// stopped reports whether none of a process's threads runs any more: a signal stops them when one
// of them gets a processor to take it.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range threads {
		text, err := os.ReadFile(f)
		_, state, _ := strings.Cut(string(text), ") ")
		if err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// pidOf finds the process of an instance among the instance manager's children.
func (n *node) pidOf(instance string) int {
	n.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // it may have ended
		args := strings.Split(string(text), "\x00")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == fmt.Sprint(n.cmd.Process.Pid) &&
			len(args) > 2 && args[2] == instance {
			return pid
		}
	}
	n.t.Fatalf("no process of %s", instance)
	return 0
}

// use is what a process holds.
type use struct{ files, kib int }

func useOf(t *testing.T, pid int) (u use) {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	u.files = len(files)
	if _, err := fmt.Sscan(rest, &u.kib); err != nil {
		t.Fatal(err)
	}
	return u
}

// Bounds of what a client may cost the instance manager.
const (
	maxPerClient = 200 * memoryFactor // KiB for a connection with a call
	maxPerStream = 300 * memoryFactor // KiB for a stream that nobody reads
	leftOver     = 8                  // descriptors that may be left of a thousand
	clients      = 1000               // at once
	streams      = 200
)

// TestThousandClients: a thousand connections, each with a call, at once. Descriptors come back,
// memory stays bounded, everybody is answered.
func TestThousandClients(t *testing.T) {
	n := start(t, "nbd-unix")
	v := n.volume("one", 4*mib, 1)
	im := n.cmd.Process.Pid
	before, engineBefore := useOf(t, im), useOf(t, n.pidOf("one-e-0"))
	var conns []*grpc.ClientConn
	for range clients {
		conns = append(conns, n.dial())
	}
	var all sync.WaitGroup
	failed := make(chan error, clients)
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	for _, c := range conns {
		all.Go(func() {
			q := metadata.AppendToOutgoingContext(ctx, "engine-address", v.engine, "volume-name", "one")
			if _, err := enginev1.NewEngineClient(c).Get(q, &enginev1.GetRequest{}); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	if len(failed) > 0 {
		t.Errorf("%d of %d failed, for example: %v", len(failed), clients, <-failed)
	}
	during, engineDuring := useOf(t, im), useOf(t, n.pidOf("one-e-0"))
	for _, c := range conns {
		_ = c.Close() // nothing is outstanding
	}
	wait.Until(t, "descriptors come back", func() bool { return useOf(t, im).files <= before.files+leftOver })
	after := useOf(t, im)
	t.Logf("instance manager: %+v before, %+v with %d clients, %+v after; engine %+v, then %+v", before, during,
		clients, after, engineBefore, engineDuring)
	if during.kib > before.kib+clients*maxPerClient {
		t.Errorf("%d KiB for %d clients, more than %d KiB for each", during.kib-before.kib, clients, maxPerClient)
	}
	if engineDuring.files > engineBefore.files+leftOver {
		t.Errorf("the engine has %d descriptors, had %d: clients of the proxy reach it over one connection",
			engineDuring.files, engineBefore.files)
	}
	v.must("VolumeGet")
}

// TestStreamsThatNobodyReads: watchers that never read do not hold the engine up, nor other
// clients, nor make anything pile up.
func TestStreamsThatNobodyReads(t *testing.T) {
	n := start(t, "nbd-unix")
	v := n.volume("one", 4*mib, 1)
	im, engine := n.cmd.Process.Pid, n.pidOf("one-e-0")
	before, engineBefore := useOf(t, im), useOf(t, engine)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deaf := n.dial(grpc.WithStaticStreamWindowSize(65535), grpc.WithStaticConnWindowSize(65535))
	for range streams {
		q := metadata.AppendToOutgoingContext(ctx, "engine-address", v.engine, "volume-name", "one")
		if _, err := enginev1.NewEngineClient(deaf).Watch(q, &enginev1.GetRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	// Every change is news for every watcher.
	for i := range 300 {
		v.must("VolumeSnapshotMaxCountSet", param("count", map[string]any{"count": 2 + i%200}))
	}
	during, engineDuring := useOf(t, im), useOf(t, engine)
	if got := at(v.must("VolumeGet"), "volume", "snapshot_max_count"); got != float64(2+299%200) {
		t.Errorf("%v", got)
	}
	t.Logf("instance manager: %+v before, %+v with %d streams; engine %+v, then %+v", before, during, streams,
		engineBefore, engineDuring)
	for name, grown := range map[string]int{"instance manager": during.kib - before.kib,
		"engine": engineDuring.kib - engineBefore.kib} {
		if grown > streams*maxPerStream {
			t.Errorf("the %s has grown by %d KiB for %d streams, more than %d KiB for each", name, grown, streams, maxPerStream)
		}
	}
	cancel()
	watch, err := enginev1.NewEngineClient(n.conn).Watch(metadata.AppendToOutgoingContext(t.Context(), "engine-address",
		v.engine), &enginev1.GetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := watch.Recv(); err != nil || s.GetVolumeName() != "one" {
		t.Errorf("a watcher that reads: %v %v", s, err)
	}
	wait.Until(t, "descriptors come back", func() bool { return useOf(t, im).files <= before.files+leftOver })
	var none emptypb.Empty
	if err := n.conn.Invoke(t.Context(), "/"+service+"/Ping", &none, &none); err != nil {
		t.Error(err)
	}
}
