package crash

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

const backupSize = 64 * mib

// backedUp is a volume, and a directory that is a backup target.
type backedUp struct {
	t     *testing.T
	v     *rig.Volume
	store string
	d     *nbdclient.Client
	src   *seeded.Source
	n     uint64
}

func newBackedUp(t *testing.T) *backedUp {
	t.Helper()
	b := &backedUp{t: t, v: rig.New(t, 2, backupSize), store: t.TempDir(), src: seeded.New(t, "content of a volume")}
	b.v.EngineEnv = b.environment()
	b.v.StartEngine()
	b.d = b.v.Dial()
	b.write(0, 40*mib)
	return b
}

// environment tells engines and commands where the worker is.
func (b *backedUp) environment() []string {
	b.t.Helper()
	program, err := workerProgram()
	if err != nil {
		b.t.Fatal(err)
	}
	return []string{"ANKOLE_BACKUP_WORKER=" + program}
}

var workerProgram = sync.OnceValues(func() (string, error) { return rig.Build("backup-worker") })

// write writes content that cannot be compressed.
func (b *backedUp) write(off, n int64) {
	b.t.Helper()
	p := make([]byte, mib)
	r := b.src.Rand(b.n)
	for b.n++; n > 0; n -= int64(len(p)) {
		p = p[:min(int64(len(p)), n)]
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		if _, err := b.d.WriteAt(p, off); err != nil {
			b.t.Fatal(err)
		}
		off += int64(len(p))
	}
}

func (b *backedUp) snapshot(name string) {
	b.t.Helper()
	if _, err := b.v.Control().SnapshotCreate(b.t.Context(), &enginev1.SnapshotCreateRequest{Name: name}); err != nil {
		b.t.Fatal(err)
	}
}

// command runs a verb of the engine program for a volume's engine, and returns what it prints.
func command(v *rig.Volume, args ...string) (string, error) {
	program, err := rig.EngineProgram()
	if err != nil {
		return "", err
	}
	at, err := workerProgram()
	if err != nil {
		return "", err
	}
	var errs bytes.Buffer
	c := exec.Command(program, append([]string{"--url", v.Addr, "--volume-name", v.Name, "backup"}, args...)...)
	c.Env, c.Stderr = append(os.Environ(), "ANKOLE_BACKUP_WORKER="+at), &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, errs.String())
	}
	return string(out), err
}

func (b *backedUp) must(v *rig.Volume, args ...string) string {
	b.t.Helper()
	out, err := command(v, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// begin begins a backup.
func (b *backedUp) begin(name, snapshot string) (incremental bool) {
	b.t.Helper()
	var out struct {
		BackupID       string
		IsIncremental  bool
		ReplicaAddress string
	}
	text := b.must(b.v, "create", snapshot, "--dest", "vfs://"+b.store, "--backup-name", name, "--label", "a=b")
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.BackupID != name || out.ReplicaAddress == "" {
		b.t.Fatal(text, err)
	}
	return out.IsIncremental
}

// ended waits for the end of a backup and returns its state.
func (b *backedUp) ended(name string) (state, reason string) {
	b.t.Helper()
	wait.Until(b.t, "end of backup "+name, func() bool {
		var out struct {
			State, Error string
			Progress     int
		}
		text, err := command(b.v, "status", name)
		if err != nil || json.Unmarshal([]byte(text), &out) != nil {
			return false
		}
		state, reason = out.State, out.Error
		if state == "complete" && out.Progress != 100 {
			b.t.Fatal(text)
		}
		return state != "in_progress"
	})
	return state, reason
}

func (b *backedUp) backup(name, snapshot string) (incremental bool) {
	b.t.Helper()
	incremental = b.begin(name, snapshot)
	if state, reason := b.ended(name); state != "complete" {
		b.t.Fatal(state, reason)
	}
	return incremental
}

func (b *backedUp) url(name string) string {
	return "vfs://" + b.store + "?backup=" + name + "&volume=vol"
}

// blocks are how many the store has.
func (b *backedUp) blocks() int {
	all, err := filepath.Glob(filepath.Join(b.store, "backupstore/volumes/*/*/vol/blocks/*/*/*.blk"))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all)
}

// worker waits until the worker of an engine has written a block, or given one to the volume, and
// stops it there. It is let go on in short turns: at full speed it may have ended between two
// looks.
func (b *backedUp) worker(v *rig.Volume, midway func() bool) (pid int) {
	b.t.Helper()
	wait.Until(b.t, "a worker midway", func() bool {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", v.EnginePid()))
		if err != nil {
			b.t.Fatal(err)
		}
		pid = 0
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && len(text) > 0 {
				pid, _ = strconv.Atoi(strings.Fields(string(text))[0])
			}
		}
		if pid == 0 {
			return false
		}
		b.signal(pid, syscall.SIGCONT)
		for range 10 {
			if midway() {
				break
			}
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			b.t.Fatal("the worker had ended before anything was done to it: ", err)
		}
		return midway()
	})
	return pid
}

func (b *backedUp) signal(pid int, s syscall.Signal) {
	b.t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		b.t.Fatal(err)
	}
}

// gone waits for the end of a process that is not this one's child.
func (b *backedUp) gone(pid int) {
	b.t.Helper()
	wait.Until(b.t, "end of the worker", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, ok := strings.Cut(string(text), ") ")
		return err != nil || ok && strings.HasPrefix(state, "Z") // it is the parent's, or that of the parent of all
	})
}

// empty makes a volume to restore to.
func (b *backedUp) empty() *rig.Volume {
	b.t.Helper()
	v, err := rig.Open(b.t, rig.Config{Replicas: 2, Size: backupSize, NoFrontend: true,
		EngineEnv: b.environment()})
	if err != nil {
		b.t.Fatal(err)
	}
	serve(v)
	return v
}

func serve(v *rig.Volume) {
	v.SpawnEngine()
	v.Await("the volume serves", func(s *enginev1.State) bool {
		return rig.Modes(s)[enginev1.Mode_MODE_RW] == len(v.Replicas) && s.GetSnapshots() != nil
	})
}

// restored waits for the end of a restore and returns its state.
func (b *backedUp) restored(v *rig.Volume) (state, reason string) {
	b.t.Helper()
	v.Await("end of the restore", func(s *enginev1.State) bool {
		state, reason = s.GetRestore().GetState(), s.GetRestore().GetError()
		return s.GetRestore() != nil && !s.GetRestore().GetRunning()
	})
	return state, reason
}

// holds ends a volume and compares it with a snapshot of the one that was backed up.
func (b *backedUp) holds(v *rig.Volume, snapshot string, replicas ...*rig.Replica) {
	b.t.Helper()
	s, err := v.State()
	if err != nil {
		b.t.Fatal(err)
	}
	if state, reason := b.restored(v); state != "complete" {
		b.t.Fatal(state, reason)
	}
	v.StopEngine()
	want := contentOf(b.t, b.v.Replicas[0].Dir, "volume-snap-"+snapshot+".img")
	for _, r := range replicas {
		for _, file := range []string{"volume-snap-" + s.GetRestore().GetName() + ".img", "volume-head-"} {
			if contentOf(b.t, r.Dir, file) != want {
				b.t.Errorf("%s of replica %s is not what was backed up", file, r.Name)
			}
		}
	}
}

func contentOf(t *testing.T, dir, file string) [32]byte {
	t.Helper()
	c := &cloned{t: t}
	return c.content(dir, file)
}

// TestBackup backs a volume up twice, the second time only what has changed, and restores both
// backups into volumes with two replicas, by the verbs of the engine program.
func TestBackup(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	b.snapshot("s1")
	if b.backup("first", "s1") {
		t.Error("the first backup is an increment")
	}
	if n := b.blocks(); n != 20 {
		t.Errorf("%d blocks of 20", n)
	}
	b.write(10*mib, 65536)
	if err := b.d.Trim(20*mib, 4*mib); err != nil {
		t.Fatal(err)
	}
	b.snapshot("s2")
	if !b.backup("second", "s2") {
		t.Error("the second backup is no increment")
	}
	if n := b.blocks(); n != 21 {
		t.Errorf("%d blocks, of which one has changed and two are discarded", n)
	}
	for name, snapshot := range map[string]string{"first": "s1", "second": "s2"} {
		to := b.empty()
		b.must(to, "restore", b.url(name))
		if state, reason := b.restored(to); state != "complete" {
			t.Fatal(state, reason)
		}
		if out := b.must(to, "restore-status"); strings.Count(out, `"lastRestored":"`+name+`"`) != 2 ||
			!strings.Contains(out, `"state":"complete"`) {
			t.Error(out)
		}
		if _, err := command(to, "restore", b.url(name)); err == nil ||
			!strings.Contains(err.Error(), "already restored backup "+name) {
			t.Errorf("restored again: %v", err)
		}
		b.holds(to, snapshot, to.Replicas...)
	}
	for args, says := range map[string]string{"ls vfs://" + b.store: `"second": {`,
		"inspect " + b.url("second"):        `"IsIncremental": true`,
		"inspect-volume " + b.url("second"): `"LastBackupName": "second"`,
		"head " + b.url("second"):           "ModificationTime"} {
		if out := b.must(b.v, strings.Fields(args)...); !strings.Contains(out, says) {
			t.Errorf("%s: %s", args, out)
		}
	}
	b.must(b.v, "rm", b.url("first"))
	if n := b.blocks(); n != 18 {
		t.Errorf("%d blocks of 18 after a backup was removed", n)
	}
	for _, c := range []struct{ args, says string }{
		{"create none --dest vfs://" + b.store, "none"}, {"create s1 --dest ftp://x", "begins with none of"},
		{"create s1 --dest azblob://box@core.windows.net/", "AZBLOB_ACCOUNT_NAME"},
		{"create s1 --dest vfs:///nowhere", "mount its file system"}, {"inspect " + b.url("first"), "cannot find"},
		{"restore " + b.url("second"), "frontend"}, {"status none", "cannot find"},
		{"create s1 --backup-name second --dest vfs://" + b.store, "of this name"},
	} {
		if _, err := command(b.v, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", c.args, err, c.says)
		}
	}
}

// TestBackupOfManySnapshots: a volume with as many snapshots as it may have is backed up by what
// differs from one that lies far below, and as a whole.
func TestBackupOfManySnapshots(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	b.snapshot("s1")
	b.backup("first", "s1")
	const most = 249 // beside the head
	p := make([]byte, 4096)
	for n := 2; n <= most; n++ {
		p[0], p[1] = byte(n), byte(n>>8)
		if _, err := b.d.WriteAt(p, int64(n%8)*2*mib+int64(n)*4096); err != nil {
			t.Fatal(err)
		}
		b.snapshot(fmt.Sprint("s", n))
	}
	last := fmt.Sprint("s", most)
	before := b.blocks()
	if !b.backup("last", last) {
		t.Error("the last backup is no increment")
	}
	if n := b.blocks() - before; n != 8 {
		t.Errorf("%d new blocks, of 8 that were written", n)
	}
	content := make([]byte, backupSize)
	if _, err := b.d.ReadAt(content, 0); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(content)
	increments := b.store
	b.store = t.TempDir()
	if b.backup("whole", last) {
		t.Error("the first backup of another store is an increment")
	}
	for name, store := range map[string]string{"last": increments, "whole": b.store} {
		to := b.empty()
		b.must(to, "restore", "vfs://"+store+"?backup="+name+"&volume=vol")
		if state, reason := b.restored(to); state != "complete" {
			t.Fatal(state, reason)
		}
		to.StopEngine()
		for _, r := range to.Replicas {
			if contentOf(t, r.Dir, "volume-head-") != want {
				t.Errorf("%s: replica %s is not what was backed up", name, r.Name)
			}
		}
	}
}

// TestBackupOfWhatDies kills what takes part in a backup, midway.
func TestBackupOfWhatDies(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(b *backedUp, worker int){
		"replica": func(b *backedUp, worker int) {
			s, err := b.v.State()
			if err != nil {
				b.t.Fatal(err)
			}
			for i, r := range b.v.Replicas {
				if "tcp://"+r.Addr == s.GetBackups()["first"].GetFromAddress() {
					r.Kill()
					b.v.Replicas[0], b.v.Replicas[i] = b.v.Replicas[i], b.v.Replicas[0]
				}
			}
			b.signal(worker, syscall.SIGCONT)
			if state, reason := b.ended("first"); state != "complete" {
				b.t.Fatal(state, reason)
			}
			b.v.Replicas[0] = b.v.Replicas[1]
		},
		"worker": func(b *backedUp, worker int) {
			b.signal(worker, syscall.SIGKILL)
			if state, reason := b.ended("first"); state != "error" || !strings.Contains(reason, "killed") {
				b.t.Fatal(state, reason)
			}
			b.backup("first", "s1")
		},
		"engine": func(b *backedUp, worker int) {
			b.v.KillEngine()
			b.signal(worker, syscall.SIGCONT)
			b.gone(worker)
			b.v.StartEngine()
			b.backup("first", "s1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackedUp(t)
			b.snapshot("s1")
			b.begin("first", "s1")
			die(b, b.worker(b.v, func() bool { return b.blocks() > 0 }))
			to := b.empty()
			b.must(to, "restore", b.url("first"))
			b.restored(to)
			b.holds(to, "s1", to.Replicas...)
		})
	}
}

// TestRestoreOfWhatDies kills what takes part in a restore, midway.
func TestRestoreOfWhatDies(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	b.snapshot("s1")
	b.backup("first", "s1")
	part := func(to *rig.Volume) {
		t.Helper()
		if s, err := to.State(); err != nil || !s.GetRestore().GetIncomplete() {
			t.Fatalf("%v, %v", s.GetRestore(), err)
		}
		if _, err := to.Control().FrontendStart(t.Context(),
			&enginev1.FrontendStartRequest{Frontend: "tgt-blockdev"}); err == nil {
			t.Error("a part of a backup is offered")
		}
		b.must(to, "restore", b.url("first"))
		b.restored(to)
	}
	for _, die := range map[string]func(to *rig.Volume, worker int) (left []*rig.Replica){
		"replica": func(to *rig.Volume, worker int) []*rig.Replica {
			to.Replicas[0].Kill()
			b.signal(worker, syscall.SIGCONT)
			return to.Replicas[1:]
		},
		"worker": func(to *rig.Volume, worker int) []*rig.Replica {
			b.signal(worker, syscall.SIGKILL)
			if state, reason := b.restored(to); state != "error" || !strings.Contains(reason, "killed") {
				t.Fatal(state, reason)
			}
			part(to)
			return to.Replicas
		},
		"engine": func(to *rig.Volume, worker int) []*rig.Replica {
			to.KillEngine()
			b.signal(worker, syscall.SIGCONT)
			b.gone(worker)
			serve(to)
			part(to)
			return to.Replicas
		},
	} {
		to := b.empty()
		b.must(to, "restore", b.url("first"))
		worker := b.worker(to, func() bool {
			s, err := to.State()
			return err == nil && s.GetRestore().GetSentBytes() > 0
		})
		left := die(to, worker)
		b.restored(to)
		b.holds(to, "s1", left...)
	}
}
