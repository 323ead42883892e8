package engineclient_test

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/controlplane/process/engineclient"
)

// printer is an engine binary on node-1 that prints what the real one's golden files hold.
type printer struct {
	t *testing.T

	mu     sync.Mutex
	runs   []string
	failed map[string]*enginebinaryv1.RunResponse // by verb
	err    error
	// adding holds add-replica back until it is closed.
	adding chan struct{}
}

var printed = map[string]string{
	"info": "info.json", "ls-replica": "ls-replica.txt", "replica-rebuild-status": "rebuild-status.json",
	"snapshots info": "snapshot-info.json", "snapshots hash-status -- s1": "hash-status.json",
	"snapshots purge-status": "purge-status.json",
	"snapshots clone-status": "clone-status.json",
	"backups restore-status": "restore-status.json", "backups status -- backup-2": "backup-status.json",
}

func (p *printer) Run(
	ctx context.Context, node string, r *enginebinaryv1.RunRequest,
) (*enginebinaryv1.RunResponse, error) {
	verb := strings.Join(r.Verb, " ")
	p.mu.Lock()
	p.runs = append(p.runs, verb)
	failed, fails := p.failed[verb+" by "+path.Base(path.Dir(r.GetBinary()))]
	err := p.err
	p.mu.Unlock()
	if node != "node-1" || r.Volume != "demo" || r.Engine != "demo-e-0" || r.Address != "10.0.0.7:10015" {
		p.t.Errorf("on node %q: %+v", node, r)
	}
	if err != nil || fails {
		return failed, err
	}
	if (r.Verb[0] == "add-replica" || strings.HasPrefix(verb, "snapshots clone --")) && p.adding != nil {
		select {
		case <-p.adding:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	file := printed[verb]
	if file == "" {
		return &enginebinaryv1.RunResponse{}, nil
	}
	out, err := os.ReadFile(filepath.Join("../../../dataplane/command/testdata", file))
	return &enginebinaryv1.RunResponse{Output: out}, err
}

// asked are the runs that change something.
func (p *printer) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, r := range p.runs {
		if printed[r] == "" {
			out = append(out, r)
		}
	}
	return out
}

// oldManager returns a client of an engine whose instance manager has no proxy.
func oldManager(t *testing.T, p *printer) (engineclient.Target, *engineclient.Binary) {
	t.Helper()
	proxies := engineclient.NewProxies(nil)
	if err := proxies.Ensure(t.Context(), engineclient.Manager{Name: "im-old", IP: "10.0.0.7",
		Node: "node-1"}); err != nil {
		t.Fatal(err)
	}
	b := engineclient.NewBinary(p, proxies, "new")
	b.SetEvery(time.Millisecond)
	t.Cleanup(b.Close)
	return engineclient.Target{Address: "10.0.0.7:10015", Volume: "demo", Engine: "demo-e-0", InstanceManager: "im-old",
		Image: "old"}, b
}

// TestBinaryState: what the verbs print becomes the state.
func TestBinaryState(t *testing.T) {
	target, b := oldManager(t, &printer{t: t})
	got, err := b.Get(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	count, size, unmap := 250, int64(1<<40), true
	want := engineclient.State{Volume: "demo", Engine: "demo-e-0", SizeBytes: 1 << 30, Frontend: "tgt-blockdev",
		FrontendUp: true,
		Endpoint:   "/dev/longhorn/demo", Expanding: true, LastExpansionError: "no space",
		Options: engineclient.Options{SnapshotMaxCount: &count, SnapshotMaxSizeBytes: &size,
			UnmapMarkSnapChainRemoved: &unmap},
		Replicas: []engineclient.Replica{
			{Address: "10.0.0.1:10000", Mode: engineclient.ModeRW,
				Purge: &engineclient.Purge{Running: true, Percent: 40, State: "in_progress"}},
			{Address: "10.0.0.2:10010", Mode: engineclient.ModeWO,
				Rebuild: &engineclient.Rebuild{Running: true, Percent: 50, State: "in_progress", From: "10.0.0.1:10000"}},
			{Address: "10.0.0.3:10020", Mode: engineclient.ModeERR,
				Purge: &engineclient.Purge{State: "error", Error: "disk is broken"}},
		},
		Snapshots: map[string]engineclient.Snapshot{
			"volume-head": {Name: "volume-head", Parent: "s2", Created: "2026-01-02T03:04:05Z", SizeBytes: 8192,
				Labels: map[string]string{}},
			"s2": {Name: "s2", Parent: "s1", Children: []string{"volume-head"}, Created: "2026-01-02T03:04:04Z", SizeBytes: 4096,
				Labels: map[string]string{"for": "a & b"}},
			"s1": {Name: "s1", Children: []string{"s2"}, Removed: true, UserCreated: true,
				Created: "2026-01-02T03:04:03Z", SizeBytes: 1 << 20,
				Labels: map[string]string{}},
		},
		Restore: engineclient.RestoreProgress{State: "error", Error: "the engine has ended", Percent: 30, Backup: "backup-1",
			URL: "s3://b@r/?backup=backup-1&volume=source", Interrupted: true},
		Clone: engineclient.Clone{Running: true, Percent: 70, State: "in_progress", From: "10.0.1.1:10000", Snapshot: "s9"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// TestBinaryHashes: what hash-status prints.
func TestBinaryHashes(t *testing.T) {
	target, b := oldManager(t, &printer{t: t})
	got, err := b.SnapshotHashStatus(t.Context(), target, "s1")
	want := map[string]engineclient.Hash{
		"10.0.0.1:10000": {State: "complete", Checksum: "00c0ffee00c0ffee"}, "10.0.0.2:10010": {State: "in_progress"},
		"10.0.0.3:10020": {State: "complete", Checksum: "0123456789abcdef", SilentlyCorrupted: true},
		"10.0.0.4:10030": {State: "error", Error: "cancelled"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
}

// TestBinaryClone: what clone-status prints, and a clone that is refused or stays under way.
func TestBinaryClone(t *testing.T) {
	p := &printer{t: t}
	target, b := oldManager(t, p)
	got, err := b.SnapshotCloneStatus(t.Context(), target)
	want := engineclient.Clone{Running: true, Percent: 70, State: "in_progress", From: "10.0.1.1:10000", Snapshot: "s9"}
	if err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	source := engineclient.Target{Address: "10.0.1.7:10015", Volume: "other", Engine: "other-e-1"}
	verb := "snapshots clone --snapshot-name=s8 --from-controller-address=10.0.1.7:10015 --from-volume-name=other " +
		"--from-controller-instance-name=other-e-1"
	p.failed = map[string]*enginebinaryv1.RunResponse{verb +
		" by old": {Status: 1, Message: "code: FailedPrecondition\nerror: the volume is not empty\n"}}
	if err := b.SnapshotClone(t.Context(), target, source, "s8"); !errors.Is(err, engineclient.ErrPrecondition) ||
		!strings.Contains(err.Error(), "not empty") {
		t.Errorf("%v", err)
	}
	p.adding = make(chan struct{}) // a verb that does not end
	if err := b.SnapshotClone(t.Context(), target, source, "s9"); err != nil {
		t.Errorf("under way, yet %v", err)
	}
	b.Close() // ends the binary that is left; hangs if nothing does
}

// TestBinaryBackups: what the verbs print of backups and restores.
func TestBinaryBackups(t *testing.T) {
	target, b := oldManager(t, &printer{t: t})
	got, err := b.SnapshotBackupStatus(t.Context(), target, "backup-2")
	want := engineclient.BackupProgress{URL: "s3://b@r/?backup=backup-2&volume=demo", Snapshot: "s1",
		State: "in_progress", Percent: 60, From: "10.0.0.1:10000"}
	if err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	restore := engineclient.RestoreProgress{State: "error", Error: "the engine has ended", Percent: 30,
		Backup: "backup-1", URL: "s3://b@r/?backup=backup-1&volume=source", Interrupted: true}
	if s, err := b.Get(t.Context(), target); err != nil || s.Restore != restore {
		t.Errorf("%+v %v, want %+v", s.Restore, err, restore)
	}
	err = b.SnapshotBackup(t.Context(), target, engineclient.BackupRequest{Snapshot: "s", Full: true})
	if !errors.Is(err, engineclient.ErrInvalid) {
		t.Errorf("a full backup was taken, but there is no flag for it: %v", err)
	}
}

// TestBinaryOrders is the table of what is run for each operation.
func TestBinaryOrders(t *testing.T) {
	yes, no, n := true, false, 5
	for _, row := range []struct {
		want string
		do   func(context.Context, *engineclient.Binary, engineclient.Target) error
	}{
		{"expand --size 4096", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.Expand(c, t, 4096)
		}},
		{"frontend start tgt-blockdev", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.FrontendStart(c, t, "tgt-blockdev")
		}},
		{"frontend shutdown", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.FrontendShutdown(c, t)
		}},
		{"unmap-mark-snap-chain-removed --enable",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.OptionsSet(c, t, engineclient.Options{UnmapMarkSnapChainRemoved: &yes})
			}},
		{"unmap-mark-snap-chain-removed --disable",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.OptionsSet(c, t, engineclient.Options{UnmapMarkSnapChainRemoved: &no})
			}},
		{"", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			if err := b.OptionsSet(c, t, engineclient.Options{SnapshotMaxCount: &n}); !errors.Is(err, engineclient.ErrInvalid) {
				return errors.New("a limit of snapshots was taken, but there is no verb for it")
			}
			err := b.OptionsSet(c, t, engineclient.Options{RebuildConcurrency: &n})
			if !errors.Is(err, engineclient.ErrInvalid) {
				return errors.New("a concurrency of rebuilds was taken, but there is no verb for it")
			}
			return nil
		}},
		{"snapshots create --label a=1 --label b=2 -- s3",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				_, err := b.SnapshotCreate(c, t, engineclient.SnapshotRequest{Name: "s3",
					Labels: map[string]string{"b": "2", "a": "1"}})
				return err
			}},
		{"backups create --dest=s3://b@r/ --backup-name=b --concurrent-limit=2 --storage-class-name=fast " +
			"--compression-method=lz4 --backup-block-size=16 --label=a=1 -- s3",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.SnapshotBackup(c, t, engineclient.BackupRequest{Backup: "b", Snapshot: "s3", Target: "s3://b@r/",
					Credentials: map[string]string{"AWS_ACCESS_KEY_ID": "k"}, Labels: map[string]string{"a": "1"},
					BlockBytes: 16 << 20, Compression: "lz4", Concurrency: 2, StorageClass: "fast"})
			}},
		{"backups restore --concurrent-limit=3 -- s3://b@r/?backup=b&volume=v",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.BackupRestore(c, t, engineclient.RestoreRequest{URL: "s3://b@r/?backup=b&volume=v", Concurrency: 3})
			}},
		{"backups create --dest=s3://b@r/ --backup-name=b --concurrent-limit=2 --storage-class-name= --node-bandwidth=7 -- s3",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.SnapshotBackup(c, t, engineclient.BackupRequest{Backup: "b", Snapshot: "s3", Target: "s3://b@r/",
					Credentials: map[string]string{"AWS_ACCESS_KEY_ID": "k"}, Concurrency: 2, BandwidthMiB: 7})
			}},
		{"backups restore --concurrent-limit=1 --node-bandwidth=7 -- s3://b@r/?backup=b&volume=v",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.BackupRestore(c, t, engineclient.RestoreRequest{URL: "s3://b@r/?backup=b&volume=v", Concurrency: 1,
					BandwidthMiB: 7})
			}},
		{"backups restore --concurrent-limit=1 --accept-damage -- s3://b@r/?backup=b&volume=v",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.BackupRestore(c, t, engineclient.RestoreRequest{URL: "s3://b@r/?backup=b&volume=v", Concurrency: 1,
					AcceptDamage: true})
			}},
		{"snapshots revert -- -s", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.SnapshotRevert(c, t, "-s")
		}},
		{"snapshots rm -- s1", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.SnapshotRemove(c, t, "s1")
		}},
		{"snapshots hash-cancel -- s1", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.SnapshotHashCancel(c, t, "s1")
		}},
		{"snapshots purge", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.SnapshotPurge(c, t, false)
		}},
		{"snapshots purge --skip-if-in-progress",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.SnapshotPurge(c, t, true)
			}},
		{"snapshots hash --rehash -- s1", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			return b.SnapshotHash(c, t, "s1", true)
		}},
		{"snapshots clone --snapshot-name=s9 --from-controller-address=10.0.1.7:10015 --from-volume-name=other " +
			"--from-controller-instance-name=other-e-1",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.SnapshotClone(c, t, engineclient.Target{Address: "10.0.1.7:10015", Volume: "other",
					Engine: "other-e-1"}, "s9")
			}},
		{"verify-rebuild-replica tcp://10.0.0.1:10000",
			func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
				return b.ReplicaVerifyRebuild(c, t, "10.0.0.1:10000")
			}},
		{"rm-replica tcp://10.0.0.1:10000", func(c context.Context, b *engineclient.Binary, t engineclient.Target) error {
			_, err := b.ReplicaRemove(c, t, "10.0.0.1:10000")
			return err
		}},
	} {
		p := &printer{t: t}
		target, b := oldManager(t, p)
		if err := row.do(t.Context(), b, target); err != nil || strings.Join(p.asked(), ", ") != row.want {
			t.Errorf("%q was run (%v), want %q", p.asked(), err, row.want)
		}
	}
	p := &printer{t: t}
	target, b := oldManager(t, p)
	if _, err := b.FilesystemTrim(t.Context(), target); !errors.Is(err, engineclient.ErrInvalid) || len(p.asked()) > 0 {
		t.Errorf("no binary can trim: %v, %q was run", err, p.asked())
	}
}

// TestBinaryErrors: the codes the binary prints become the same errors as the proxy's.
func TestBinaryErrors(t *testing.T) {
	for _, row := range []struct {
		result *enginebinaryv1.RunResponse
		err    error
		want   error
		says   string
	}{
		{&enginebinaryv1.RunResponse{Status: 1,
			Message: "level=INFO msg=x\ncode: NotFound\nerror: engine at a: no snapshot s\n"}, nil,
			engineclient.ErrNotFound, "no snapshot s"},
		{&enginebinaryv1.RunResponse{Status: 1, Message: "code: FailedPrecondition\nerror: not now\n"}, nil,
			engineclient.ErrPrecondition, "not now"},
		{&enginebinaryv1.RunResponse{Status: 1, Message: "code: Unimplemented\nerror: cannot\n"}, nil,
			engineclient.ErrInvalid, "cannot"},
		{&enginebinaryv1.RunResponse{Status: 1, Message: "code: Unavailable\nerror: refused\n"}, nil,
			engineclient.ErrUnavailable, "refused"},
		{&enginebinaryv1.RunResponse{Status: 1, Message: "code: Sleepy\nerror: who knows\n"}, nil,
			engineclient.ErrUnavailable, "who knows"},
		{&enginebinaryv1.RunResponse{Status: 1, Message: "error: an older binary gives no code\n"}, nil,
			engineclient.ErrUnavailable, "gives no code"},
		{&enginebinaryv1.RunResponse{Status: -1}, nil, engineclient.ErrUnavailable, "exit status -1"},
		{nil, status.Error(codes.NotFound, "it is not on the node"), engineclient.ErrUnavailable, "not on the node"},
		{nil, status.Error(codes.InvalidArgument, "invalid order"), engineclient.ErrInvalid, "invalid order"},
	} {
		failed := map[string]*enginebinaryv1.RunResponse{"snapshots rm -- s by old": row.result}
		p := &printer{t: t, err: row.err, failed: failed}
		target, b := oldManager(t, p)
		err := b.SnapshotRemove(t.Context(), target, "s")
		if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) ||
			!strings.Contains(err.Error(), "demo-e-0") {
			t.Errorf("%+v: %v, want %v", row.result, err, row.want)
		}
	}
}

// TestOlderBinary: a binary that does not know the verb is replaced by this release's; if that does
// not know it either, the error says so.
func TestOlderBinary(t *testing.T) {
	unknown := &enginebinaryv1.RunResponse{Status: 1, Message: "error: unknown command \"info\" for \"longhorn\"\n"}
	p := &printer{t: t, failed: map[string]*enginebinaryv1.RunResponse{"info by old": unknown}}
	target, b := oldManager(t, p)
	if s, err := b.Get(t.Context(), target); err != nil || s.SizeBytes != 1<<30 {
		t.Errorf("%+v %v", s, err)
	}
	p.mu.Lock()
	p.failed["info by new"] = unknown
	p.mu.Unlock()
	if _, err := b.Get(t.Context(), target); !errors.Is(err, engineclient.ErrInvalid) ||
		!strings.Contains(err.Error(), "unknown command") {
		t.Errorf("%v", err)
	}
}

// TestBinaryAdd: the call returns when the engine shows the replica, the binary stays until the
// rebuild ends or the client does.
func TestBinaryAdd(t *testing.T) {
	p := &printer{t: t, adding: make(chan struct{})}
	target, b := oldManager(t, p)
	s, err := b.ReplicaAdd(t.Context(), target, "10.0.0.2:10010")
	if err != nil || len(s.Replicas) != 3 {
		t.Fatalf("%+v %v", s, err)
	}
	b.Close() // ends the binary that is left; hangs if nothing does
	refused := &printer{t: t, failed: map[string]*enginebinaryv1.RunResponse{
		"add-replica tcp://10.0.0.9:1 by old": {Status: 1, Message: "code: FailedPrecondition\nerror: of another volume\n"}}}
	target, b = oldManager(t, refused)
	if _, err := b.ReplicaAdd(t.Context(), target, "10.0.0.9:1"); !errors.Is(err, engineclient.ErrPrecondition) {
		t.Errorf("%v", err)
	}
}

// TestBinaryWatch asks until the engine is gone.
func TestBinaryWatch(t *testing.T) {
	p := &printer{t: t}
	target, b := oldManager(t, p)
	seen := 0
	err := b.Watch(t.Context(), target, func(s engineclient.State) {
		if seen++; seen == 3 {
			p.mu.Lock()
			p.err = errors.New("gone")
			p.mu.Unlock()
		}
	})
	if !errors.Is(err, engineclient.ErrUnavailable) || seen != 3 {
		t.Errorf("saw %d states, ended with %v", seen, err)
	}
}

// TestBinaryNeedsTheNode: nothing is run without knowing where, and of which image.
func TestBinaryNeedsTheNode(t *testing.T) {
	p := &printer{t: t}
	target, b := oldManager(t, p)
	target.InstanceManager = "im-gone"
	if _, err := b.Get(t.Context(), target); !errors.Is(err, engineclient.ErrUnavailable) || len(p.runs) != 0 {
		t.Errorf("%v, ran %q", err, p.runs)
	}
	target.InstanceManager, target.Image = "im-old", ""
	if _, err := b.Get(t.Context(), target); !errors.Is(err, engineclient.ErrUnavailable) || len(p.runs) != 0 {
		t.Errorf("%v, ran %q", err, p.runs)
	}
}
