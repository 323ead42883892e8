package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/backup/worker/work"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// played has the test binary be the program. Its servers are on loopback, which only a test may
// have fetched from.
const played = "ANKOLE_TEST_PLAYS_BACKING_IMAGE_MANAGER"

// worked is an argument that has it be a backup worker.
const worked = "a-backup-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == worked {
		if err := work.Main(context.Background(), hostpath.Resolve); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(played) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		cfg := Config{}
		cfg.Source.Options.Policy = func(netip.Addr) error { return nil }
		cfg.Source.Worker = []string{"/proc/self/exe", worked}
		os.Exit(run(ctx, cfg))
	}
	os.Exit(m.Run())
}

var (
	id    = backingimage.ID{Name: "cirros", UUID: "0a1b2c3d"}
	quiet = slog.New(slog.DiscardHandler)
)

func image(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(p)
	clear(p[n/4 : n/2])
	return p
}

// program is a real process, with an address of its own.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	ip     string
	output bytes.Buffer
	ended  chan struct{}
}

var addresses atomic.Int32

// start runs the program on a disk.
func start(t *testing.T, root, ip string, args ...string) *program {
	t.Helper()
	p := &program{t: t, ip: ip, ended: make(chan struct{})}
	args = append(args, "--allow-plaintext", "a test", "--listen", ip+":8000", "--sync-listen", ip+":8001",
		"--disk-root", root)
	p.cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), played+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v:\n%s", args, &p.output)
		}
	})
	return p
}

func newIP() string {
	n := addresses.Add(1)
	return fmt.Sprintf("127.72.%d.%d", n/250, 1+n%250)
}

// over says whether the process has ended.
func (p *program) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

func startSource(t *testing.T, root, ip, url string) *program {
	t.Helper()
	return start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "download",
		"--parameters",
		"url="+url)
}

// sourceState asks a data source; "" while nobody answers.
func (p *program) sourceState() (state, message string) {
	r, err := http.Get("http://" + p.ip + ":8000/v1/file")
	if err != nil {
		return "", ""
	}
	defer r.Body.Close()
	var s struct{ State, Message string }
	if json.NewDecoder(r.Body).Decode(&s) != nil {
		return "", ""
	}
	return s.State, s.Message
}

func (p *program) await(state string) {
	p.t.Helper()
	wait.Until(p.t, "the data source is "+state, func() bool { got, _ := p.sourceState(); return got == state })
}

func (p *program) client() (bimrpc.BackingImageManagerServiceClient, healthpb.HealthClient) {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.ip+":8000", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return bimrpc.NewBackingImageManagerServiceClient(conn), healthpb.NewHealthClient(conn)
}

// startManager runs a manager, and waits until it answers.
func startManager(t *testing.T, root, ip string) (*program, bimrpc.BackingImageManagerServiceClient) {
	t.Helper()
	p := start(t, root, ip, "daemon")
	wait.For(t, "the manager listens", func() error { // gRPC would pause for a second after the first attempt
		conn, err := net.Dial("tcp", ip+":8000")
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	client, health := p.client()
	wait.For(t, "the manager answers", func() error {
		_, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	})
	return p, client
}

func state(t *testing.T, client bimrpc.BackingImageManagerServiceClient) string {
	t.Helper()
	r, err := client.Get(t.Context(), &bimrpc.GetRequest{Name: id.Name, Uuid: id.UUID})
	if err != nil {
		return ""
	}
	return r.Status.State
}

// TestFromURLToTwoDisks: data source, manager, manager of another disk, each a real process; then
// an orderly end of each.
func TestFromURLToTwoDisks(t *testing.T) {
	t.Parallel()
	want := image(8 << 20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(want) }))
	defer web.Close()
	first, second := t.TempDir(), t.TempDir()
	source := startSource(t, first, newIP(), web.URL)
	source.await("ready-for-transfer")
	a, clientA := startManager(t, first, newIP())
	b, clientB := startManager(t, second, newIP())
	spec := &bimrpc.BackingImageSpec{Name: id.Name, Uuid: id.UUID, Size: int64(len(want))}
	if _, err := clientA.Fetch(t.Context(), &bimrpc.FetchRequest{Spec: spec, DataSourceAddress: source.ip +
		":8000"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the first copy", func() bool { return state(t, clientA) == "ready" })
	<-source.ended
	if code := source.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the data source ended with %d", code)
	}
	if _, err := clientB.Sync(t.Context(), &bimrpc.SyncRequest{Spec: spec, FromAddress: a.ip + ":8000"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the second copy", func() bool { return state(t, clientB) == "ready" })
	for _, root := range []string{first, second} {
		if got, err := os.ReadFile(backingimage.InManager(root, id).File); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other content, %v", root, err)
		}
	}
	for _, p := range []*program{a, b} {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("a manager ended with %d", code)
		}
	}
}

// steps are what can be seen of a file that is being made, in this order.
var steps = []string{"nothing", "temporary", "content", "record", "file"}

// seen waits until a step of making a file is reached or passed, or the process has ended.
func seen(p *program, at backingimage.Paths, step string) bool {
	reached := func() bool {
		tmp, err := os.Stat(at.Tmp)
		temporary := err == nil
		_, err = os.Stat(at.Record)
		record := err == nil
		_, err = os.Stat(at.File)
		file := err == nil
		switch step {
		case "nothing":
			return true
		case "temporary":
			return temporary || record || file
		case "content":
			return temporary && tmp.Size() > 0 || record || file
		case "encrypting":
			return temporary && tmp.Size() > luks.HeaderBytes || record || file
		case "record":
			return record || file
		}
		return file
	}
	for !reached() {
		select {
		case <-p.ended:
			return false
		default:
		}
	}
	return true
}

// whole fails unless a disk has the whole file, or nothing of one, after the scan of a start.
func whole(t *testing.T, root string, at backingimage.Paths, same func(file []byte) bool) (there bool) {
	t.Helper()
	got, err := os.ReadFile(at.File)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil || !same(got) {
		t.Fatalf("%s: %d bytes under the name of a file, %v", root, len(got), err)
	}
	return true
}

// TestReceiverIsKilled at each step of a copy, ten times: the next process has the file, or nothing
// of it, and gets it then; the sender goes on.
func TestReceiverIsKilled(t *testing.T) {
	t.Parallel()
	want := image(4 << 20)
	first := t.TempDir()
	d := store.New(osdisk.New(nil), first, "", quiet)
	m, err := d.Create(backingimage.InManager(first, id), id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.ReadFrom(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Publish("", content.Info{Format: content.Raw}); err != nil {
		t.Fatal(err)
	}
	a, clientA := startManager(t, first, newIP())
	order := &bimrpc.SyncRequest{Spec: &bimrpc.BackingImageSpec{Name: id.Name, Uuid: id.UUID}, FromAddress: a.ip + ":8000"}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			for range kills {
				root, ip := t.TempDir(), newIP()
				at := backingimage.InManager(root, id)
				p, client := startManager(t, root, ip)
				if _, err := client.Sync(t.Context(), order); err != nil {
					t.Fatal(err)
				}
				if !seen(p, at, step) {
					t.Fatalf("the manager has ended:\n%s", &p.output)
				}
				p.kill()
				there := whole(t, root, at, equal(want))
				next, client := startManager(t, root, ip)
				if !there {
					if names, err := os.ReadDir(filepath.Dir(at.Dir)); err == nil && len(names) > 0 {
						t.Fatalf("%v are left", names)
					}
				}
				if _, err := client.Sync(t.Context(), order); err != nil {
					t.Fatal(err)
				}
				wait.Until(t, "the copy", func() bool { return state(t, client) == "ready" })
				if !whole(t, root, at, equal(want)) {
					t.Fatal("ready, and no file")
				}
				next.kill()
			}
		})
	}
	if got := state(t, clientA); got != "ready" {
		t.Errorf("the sender's file is %s", got)
	}
}

// maxMemory is what a manager may take, in KiB.
const maxMemory = 32 << 10

// TestMemory: whatever the image, a manager takes little memory, receiving as well as sending.
func TestMemory(t *testing.T) {
	lack.RealTime(t, "memory is measured")
	t.Parallel()
	const size = 256 << 20
	piece := image(1 << 20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer web.Close()
	first, second := t.TempDir(), t.TempDir()
	source := startSource(t, first, newIP(), web.URL)
	source.await("ready-for-transfer")
	a, clientA := startManager(t, first, newIP())
	b, clientB := startManager(t, second, newIP())
	before := memory(t, b)
	memoryOfSource := memory(t, source)
	spec := &bimrpc.BackingImageSpec{Name: id.Name, Uuid: id.UUID}
	if _, err := clientA.Fetch(t.Context(), &bimrpc.FetchRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the first copy", func() bool { return state(t, clientA) == "ready" })
	if _, err := clientB.Sync(t.Context(), &bimrpc.SyncRequest{Spec: spec, FromAddress: a.ip + ":8000"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the second copy", func() bool { return state(t, clientB) == "ready" })
	for name, kib := range map[string]int{"data source": memoryOfSource, "sender": memory(t, a), "receiver": memory(t,
		b)} {
		t.Logf("%s: %d KiB at most; a manager that has done nothing: %d", name, kib, before)
		if kib > maxMemory {
			t.Errorf("%s: %d KiB, more than %d", name, kib, maxMemory)
		}
	}
}

// memory is the most that a process has had, in KiB.
func memory(t *testing.T, p *program) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestCommandLine: what is wrong is said before anything is listened to.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		says string
	}{
		{"daemon --disk-root /nowhere", "no certificate"}, {"daemon --allow-plaintext x --port-range 5", "FIRST-LAST"},
		{"daemon --allow-plaintext x --listen 0.0.0.0:0", "POD_IP"}, {"daemon --allow-plaintext x --data-address x",
			"IP address"},
		{"data-source --allow-plaintext x --listen 127.0.0.1:0 --sync-listen 127.0.0.1:0", "name"},
		{"daemon --allow-plaintext x --listen 127.0.0.1:0 --sync-listen 127.0.0.1:0 --disk-root /nowhere --disk-uuid d",
			"not mounted"},
		{"data-source --allow-plaintext x --listen 127.0.0.1:0 --sync-listen 127.0.0.1:0 --name a --uuid b --source-type restore", "restore"},
	} {
		c := command(Config{})
		c.SetArgs(strings.Fields(tt.args))
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.says)
		}
	}
}

// TestDataAddress (C12): copies and volumes are received where the orders come, unless there is a
// network for data.
func TestDataAddress(t *testing.T) {
	orders := &net.TCPAddr{IP: net.ParseIP("10.0.0.7"), Port: 8000}
	for given, want := range map[string]string{"": "10.0.0.7", "10.30.0.7": "10.30.0.7"} {
		if got, err := (&Config{DataAddress: given}).dataAddress(orders); err != nil || got != want {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
	t.Setenv("ANKOLE_INTERFACES", `{"lhnet1":"10.30.0.9"}`)
	c := &Config{ExportPort: 8002}
	c.Source.Type = "export-from-volume"
	if err := c.receive(orders); err != nil || c.Source.Receive != "10.30.0.9:8002" {
		t.Errorf("an export is received at %q, %v", c.Source.Receive, err)
	}
	c.Source.Type, c.Source.Receive = "download", ""
	if err := c.receive(orders); err != nil || c.Source.Receive != "" {
		t.Errorf("a download is received at %q, %v", c.Source.Receive, err)
	}
}
