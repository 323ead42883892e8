package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
)

// States of a backup, in the reference's words.
const (
	backupInProgress = "in_progress"
	backupComplete   = "complete"
	backupError      = "error"
)

// Parameters of a backup: the Secret that the image is encrypted with, and how many bytes per
// second backups and restores of the node send and read at most, together.
const (
	parameterSecret          = "secret"
	parameterSecretNamespace = "secret-namespace"
	parameterNodeBandwidth   = "node-bandwidth"
)

// contentShare is how much of the progress is content; the rest is the record.
const contentShare = 95

// maxBackups bounds the backups that are made at the same time: each has a process.
const maxBackups = 3

// backups are the latest backup of each image, of this process.
type backups struct {
	mu     sync.Mutex
	latest map[string]*backing
	run    int // how many are under way
}

// backing is the backup of one image.
type backing struct {
	id       backingimage.ID
	url      string
	state    string
	progress int
	error    string
}

// begin counts a backup in. begun is nil if the same one is under way already.
func (b *backups) begin(id backingimage.ID, url string) (begun *backing, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.latest[id.Name]; at != nil && at.state == backupInProgress {
		if at.id == id && at.url == url {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: backing image %s is being backed up to another place: wait for the end of that",
			files.ErrConflict, at.id)
	}
	if b.run == maxBackups {
		return nil, fmt.Errorf("%w: %d images are being backed up", files.ErrBusy, maxBackups)
	}
	if b.latest == nil {
		b.latest = map[string]*backing{}
	}
	b.run++
	begun = &backing{id: id, url: url, state: backupInProgress}
	b.latest[id.Name] = begun
	return begun, nil
}

// change changes what is told of a backup.
func (b *backups) change(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// end counts a backup out.
func (b *backups) end(at *backing, err error) {
	b.change(func() {
		b.run--
		if at.state, at.progress = backupComplete, 100; err != nil {
			at.state, at.progress, at.error = backupError, 0, err.Error()
		}
	})
}

// BackupCreate implements the service: it begins a backup, of which BackupStatus tells.
func (m *Manager) BackupCreate(_ context.Context, q *bimrpc.BackupCreateRequest) (*emptypb.Empty, error) {
	id := idOf(q)
	t, err := target.Parse(q.GetBackupTarget())
	labels, bad := labelsOf(q.GetLabels())
	rate, badRate := bandwidthOf(q.GetParameters())
	if err = errors.Join(id.Check(), err, bad, badRate, backingimage.CheckChecksum(q.GetChecksum())); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	i, err := m.files.Get(id)
	switch {
	case err != nil:
		return nil, coded(err)
	case !i.File.Complete():
		return nil, status.Errorf(codes.FailedPrecondition, "backing image %s is %s: it can be backed up when it is ready",
			id, i.File.State)
	case q.GetChecksum() != "" && q.GetChecksum() != i.File.Checksum:
		return nil, status.Errorf(codes.FailedPrecondition, "backing image %s has SHA-512 %s here, and not %s", id,
			i.File.Checksum, q.GetChecksum())
	}
	at, err := m.backups.begin(id, target.Image{Target: t, Name: id.Name}.URL())
	if at == nil {
		return &emptypb.Empty{}, coded(err)
	}
	o := worker.Order{Do: worker.CreateImage, Target: q.GetBackupTarget(), Credentials: q.GetCredential(),
		SizeBytes: i.Record.Size, BytesPerSecond: rate}
	o.CreateImage = backup.ImageCreateOptions{Image: id.Name, Checksum: i.File.Checksum, Labels: labels,
		Compression: format.Compression(q.GetCompressionMethod()), Workers: int(q.GetConcurrentLimit()),
		Secret: q.GetParameters()[parameterSecret], SecretNamespace: q.GetParameters()[parameterSecretNamespace]}
	m.work.Go(func() {
		err := m.files.Read(context.Background(), id, func(ctx context.Context, f disk.File, _ files.Image) error {
			return m.backUp(ctx, at, o, f)
		})
		if err != nil {
			m.cfg.Log.Warn("a backing image was not backed up", "image", id.String(), "target", t.String(), "err", err)
		}
		m.backups.end(at, err)
	})
	return &emptypb.Empty{}, nil
}

// backUp has a worker read a file.
func (m *Manager) backUp(ctx context.Context, at *backing, o worker.Order, f disk.File) error {
	_, err := worker.Run(ctx, worker.Job{Command: m.cfg.Worker, Order: o, Volume: &fileReader{f, o.SizeBytes},
		Report: func(_ context.Context, r worker.Report) error {
			if r.Total > 0 {
				m.backups.change(func() { at.progress = r.Done * contentShare / r.Total })
			}
			return nil
		}})
	return err
}

// bandwidthOf reads the limit of a node; 0 for none.
func bandwidthOf(parameters map[string]string) (int64, error) {
	text := parameters[parameterNodeBandwidth]
	if text == "" {
		return 0, nil
	}
	rate, err := strconv.ParseInt(text, 10, 64)
	if err != nil || rate < 0 {
		return 0, fmt.Errorf("parameter %s is %.40q: give bytes per second, 0 for no limit", parameterNodeBandwidth, text)
	}
	return rate, nil
}

// labelsOf reads KEY=VALUE.
func labelsOf(pairs []string) (map[string]string, error) {
	all := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("label %.80q: give KEY=VALUE", pair)
		}
		all[key] = value
	}
	return all, nil
}

// BackupStatus implements the service.
func (m *Manager) BackupStatus(_ context.Context, q *bimrpc.BackupStatusRequest) (*bimrpc.BackupStatusResponse, error) {
	m.backups.mu.Lock()
	defer m.backups.mu.Unlock()
	at := m.backups.latest[q.GetName()]
	if at == nil {
		return nil, status.Errorf(codes.NotFound, "backing image %.80q was not backed up by this process", q.GetName())
	}
	return &bimrpc.BackupStatusResponse{Progress: int32(at.progress), BackupUrl: at.url, Error: at.error,
		State: at.state}, nil
}

// alignment is that of places and of memory, for direct reads.
const alignment = 4096

// aligned is memory for a direct read of n bytes.
func aligned(n int64) []byte {
	n = (n + alignment - 1) / alignment * alignment
	p := make([]byte, n+alignment)
	at := int64(-uintptr(unsafe.Pointer(&p[0])) % alignment)
	return p[at : at+n : at+n]
}

// fileReader is a file that a worker reads, opened for direct reads.
type fileReader struct {
	file disk.File
	size int64
}

var errReadOnly = errors.New("a backing image is not written")

// Changed implements worker.Volume: what holds data.
func (r *fileReader) Changed(_ context.Context, since backup.Base, offset int64) ([]backup.Extent, int64, error) {
	if since != (backup.Base{}) {
		return nil, 0, backup.ErrNoBase
	}
	if offset >= r.size {
		return nil, -1, nil
	}
	found, more, err := r.file.Extents(offset, nil)
	if errors.Is(err, disk.ErrUnsupported) {
		return []backup.Extent{{Offset: offset, Length: r.size - offset}}, -1, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var out []backup.Extent
	next := int64(-1)
	for _, e := range found {
		end := min(e.Off+e.Len, r.size)
		if next = end; !e.Unwritten && e.Off < end {
			out = append(out, backup.Extent{Offset: e.Off, Length: end - e.Off})
		}
	}
	if !more || next >= r.size {
		next = -1
	}
	return out, next, nil
}

// ReadAt implements worker.Volume.
func (r *fileReader) ReadAt(_ context.Context, p []byte, offset int64) error {
	buffer := aligned(int64(len(p)))
	n, err := r.file.ReadAt(buffer, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n < len(p) {
		return fmt.Errorf("bytes %d to %d: %w: the file is shorter now", offset, offset+int64(len(p)), store.ErrDamaged)
	}
	copy(p, buffer)
	return nil
}

// WriteAt implements worker.Volume.
func (r *fileReader) WriteAt(context.Context, []byte, int64) error { return errReadOnly }

// ZeroAt implements worker.Volume.
func (r *fileReader) ZeroAt(context.Context, int64, int64) error { return errReadOnly }
