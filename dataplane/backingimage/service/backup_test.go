package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/backup/budget"
	"ankole.storage/backup/worker/work"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/host/hostpath"
	"ankole.storage/test/wait"
)

// workerVariable makes this program a backup worker.
const workerVariable = "ANKOLE_TEST_IMAGE_WORKER"

// TestMain plays the backup worker where a test has started it as one.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) == "" {
		if err := os.Setenv(workerVariable, "1"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if err := work.Main(context.Background(), hostpath.Resolve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fast is a bandwidth that nothing waits for.
const fast = 1 << 40

// thisProgram is a backup worker.
var thisProgram = []string{"/proc/self/exe"}

func backupOf(dir, sum string) *bimrpc.BackupCreateRequest {
	return &bimrpc.BackupCreateRequest{Name: id.Name, Uuid: id.UUID, Checksum: sum, BackupTarget: "vfs://" + dir,
		Labels: []string{"k=v=w"}, CompressionMethod: "lz4", Parameters: map[string]string{"secret": "s"}}
}

// awaitBackup waits for the end of a backup.
func (s *site) awaitBackup(t *testing.T) (got *bimrpc.BackupStatusResponse) {
	t.Helper()
	wait.Until(t, "the backup is over", func() bool {
		var err error
		got, err = s.client.BackupStatus(t.Context(), &bimrpc.BackupStatusRequest{Name: id.Name})
		return err == nil && got.State != backupInProgress
	})
	return got
}

// restoreSource is a data source that restores what a store has.
func restoreSource(t *testing.T, url, sum string) (string, *Source, *httptest.Server) {
	t.Helper()
	d := newDisk(t)
	s, server := newSource(t, d, SourceConfig{ID: id, Type: TypeRestore, Checksum: sum, Worker: thisProgram,
		Parameters: map[string]string{parameterBackup: url}})
	return backingimage.InSource(d.Root(), id).File, s, server
}

// order gives a data source the order to restore.
func order(t *testing.T, server *httptest.Server) int {
	t.Helper()
	body, err := json.Marshal(RestoreOrder{Credentials: map[string]string{"AWS_ACCESS_KEY_ID": "k"}, ConcurrentLimit: 1,
		NodeBandwidth: fast})
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.Post(server.URL+"/v1/file?action=restore", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	return a.StatusCode
}

// TestBackup: an image is backed up, and a data source makes the same file of the backup. Its end
// is within a sector of the disk, and holes stay holes.
func TestBackup(t *testing.T) {
	t.Parallel()
	content, dir := image(9<<20+512), t.TempDir()
	s := siteWith(t, content)
	s.cfg.Worker = thisProgram
	for range 2 { // the second one finds it there
		if _, err := s.client.BackupCreate(t.Context(), backupOf(dir, sumOf(content))); err != nil {
			t.Fatal(err)
		}
		got := s.awaitBackup(t)
		if got.State != "complete" || got.Progress != 100 || got.Error != "" ||
			got.BackupUrl != "vfs://"+dir+"?backingImage=cirros" {
			t.Fatalf("%+v", got)
		}
	}
	record, err := os.ReadFile(filepath.Join(dir, "backupstore/backing-images/backing-images/cirros/backing-image.cfg"))
	if err != nil || !strings.Contains(string(record), `"Labels":{"k":"v=w"}`) ||
		!strings.Contains(string(record), `"Secret":"s"`) || !strings.Contains(string(record), sumOf(content)) {
		t.Fatalf("%s, %v", record, err)
	}
	file, _, server := restoreSource(t, "vfs://"+dir+"?backingImage=cirros", "")
	if st := awaitSource(t, server, "pending"); !strings.Contains(st.Message, "order to restore") {
		t.Errorf("%+v", st)
	}
	wait.Until(t, "the order is taken", func() bool { return order(t, server) == http.StatusOK })
	st := awaitSource(t, server, "ready-for-transfer")
	restored, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(restored, content) || st.CurrentChecksum != sumOf(content) {
		t.Errorf("%d bytes of %d, %v, %+v", len(restored), len(content), err, st)
	}
	if code := order(t, server); code != http.StatusConflict {
		t.Errorf("restored once more: %d", code)
	}
}

// TestBandwidthOfBackups: backup and restore of an image take what they send and read from the
// budget of the node, which is in the folder that its Pods share.
func TestBandwidthOfBackups(t *testing.T) { // not beside others: it sets the environment
	content, dir, node := image(3<<20), t.TempDir(), t.TempDir()
	mounts, err := json.Marshal(map[string]string{budget.FolderInPod: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(hostpath.Variable, string(mounts))
	spent := func() (all string) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(node, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all += string(data)
		}
		return all
	}
	s := siteWith(t, content)
	s.cfg.Worker = thisProgram
	q := backupOf(dir, sumOf(content))
	q.Parameters[parameterNodeBandwidth] = strconv.Itoa(fast)
	if _, err := s.client.BackupCreate(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if got := s.awaitBackup(t); got.State != backupComplete {
		t.Fatalf("%+v", got)
	}
	sent := spent()
	if sent == "" {
		t.Error("the backup has taken nothing from the budget")
	}
	_, _, server := restoreSource(t, "vfs://"+dir+"?backingImage=cirros", "")
	wait.Until(t, "the order is taken", func() bool { return order(t, server) == http.StatusOK })
	awaitSource(t, server, "ready-for-transfer")
	if spent() == sent {
		t.Error("the restore has taken nothing from the budget")
	}
}

// TestBackupIsRefused: what cannot be backed up is said at once, what fails is said by the status.
func TestBackupIsRefused(t *testing.T) {
	t.Parallel()
	content, dir := image(1<<20), t.TempDir()
	s := siteWith(t, content)
	s.cfg.Worker = thisProgram
	if _, err := s.client.BackupStatus(t.Context(), &bimrpc.BackupStatusRequest{Name: id.Name}); status.Code(err) !=
		codes.NotFound {
		t.Errorf("nothing was ordered: %v", err)
	}
	change := func(f func(*bimrpc.BackupCreateRequest)) *bimrpc.BackupCreateRequest {
		q := backupOf(dir, "")
		f(q)
		return q
	}
	for what, tt := range map[string]struct {
		q    *bimrpc.BackupCreateRequest
		code codes.Code
	}{
		"no target": {change(func(q *bimrpc.BackupCreateRequest) { q.BackupTarget = "x" }), codes.InvalidArgument},
		"no label":  {change(func(q *bimrpc.BackupCreateRequest) { q.Labels = []string{"x"} }), codes.InvalidArgument},
		"no bandwidth": {change(func(q *bimrpc.BackupCreateRequest) { q.Parameters[parameterNodeBandwidth] = "-1" }),
			codes.InvalidArgument},
		"no name":        {change(func(q *bimrpc.BackupCreateRequest) { q.Name = "../x" }), codes.InvalidArgument},
		"another image":  {change(func(q *bimrpc.BackupCreateRequest) { q.Uuid = "11111111" }), codes.NotFound},
		"other contents": {backupOf(dir, strings.Repeat("0a", 64)), codes.FailedPrecondition},
	} {
		if _, err := s.client.BackupCreate(t.Context(), tt.q); status.Code(err) != tt.code {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.client.BackupCreate(t.Context(), backupOf(filepath.Join(dir, "none"), "")); err != nil {
		t.Fatal(err)
	}
	if got := s.awaitBackup(t); got.State != "error" || !strings.Contains(got.Error, "none") {
		t.Errorf("%+v", got)
	}
}

// TestOneBackupAtATime: an image is backed up to one place at a time, and few images are.
func TestOneBackupAtATime(t *testing.T) {
	t.Parallel()
	var b backups
	first, err := b.begin(id, "one")
	if err != nil || first == nil {
		t.Fatal(err)
	}
	if same, err := b.begin(id, "one"); same != nil || err != nil {
		t.Errorf("the same order: %v, %v", same, err)
	}
	if _, err := b.begin(id, "two"); status.Code(coded(err)) != codes.FailedPrecondition {
		t.Errorf("to another place: %v", err)
	}
	for n := range maxBackups {
		_, err = b.begin(backingimage.ID{Name: fmt.Sprint("image-", n), UUID: id.UUID}, "one")
	}
	if status.Code(coded(err)) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	b.end(first, nil)
	if again, err := b.begin(id, "two"); again == nil || err != nil {
		t.Errorf("behind the first: %v", err)
	}
}

// TestRestoreFails: a backup that is not there, or of another image than expected, makes no file.
func TestRestoreFails(t *testing.T) {
	t.Parallel()
	content, dir := image(1<<20), t.TempDir()
	s := siteWith(t, content)
	s.cfg.Worker = thisProgram
	if _, err := s.client.BackupCreate(t.Context(), backupOf(dir, "")); err != nil {
		t.Fatal(err)
	}
	if got := s.awaitBackup(t); got.State != "complete" {
		t.Fatalf("%+v", got)
	}
	for _, tt := range []struct{ url, sum, says string }{
		{"vfs://" + dir + "?backingImage=none", "", "cannot find"},
		{"vfs://" + dir + "?backingImage=cirros", strings.Repeat("0a", 64), "expected"},
	} {
		file, _, server := restoreSource(t, tt.url, tt.sum)
		wait.Until(t, "the order is taken", func() bool { return order(t, server) == http.StatusOK })
		if st := awaitSource(t, server, "failed"); !strings.Contains(st.Message, tt.says) {
			t.Errorf("%+v", st)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s: %v", tt.url, err)
		}
	}
	_, server := newSource(t, newDisk(t), SourceConfig{ID: id, Type: TypeUpload})
	if code := order(t, server); code != http.StatusBadRequest {
		t.Errorf("of an upload: %d", code)
	}
	if _, err := NewSource(newDisk(t), SourceConfig{ID: id, Type: TypeRestore, Log: quiet}); err == nil {
		t.Error("no backup, and no error")
	}
}
