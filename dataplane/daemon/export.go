package daemon

import (
	"context"
	"errors"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/backup"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/disk"
)

var errExportEnds = errors.New("the engine of the volume has ended before all was sent")

// SnapshotExport implements enginev1.EngineServer. The receiver is where the progress is known: it
// is on another node, and outlives this process.
func (s *service) SnapshotExport(ctx context.Context, r *enginev1.SnapshotExportRequest) (
	*enginev1.SnapshotExportResponse, error) {
	if to, err := netip.ParseAddrPort(r.Address); err != nil || to.Port() == 0 || r.Token == "" {
		return nil, status.Errorf(codes.InvalidArgument, "a snapshot is sent to an IP address and a port, with the token of "+
			"its receiver, and not to %.100q", r.Address)
	}
	b := &s.p.backups
	v, err := b.openSnapshot(ctx, r.Snapshot)
	if err != nil {
		return nil, statusOf(err)
	}
	b.work.Go(func() { b.export(r, v) })
	return &enginev1.SnapshotExportResponse{Size: v.opened.Size, FromAddress: "tcp://" + v.opened.From}, nil
}

// export sends a snapshot until it is over, the receiver has gone or the engine ends.
func (b *backups) export(r *enginev1.SnapshotExportRequest, v *snapshotVolume) {
	defer v.close()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(b.ctx))
	defer cancel(nil)
	stop := context.AfterFunc(b.ctx, func() { cancel(errExportEnds) })
	defer stop()
	send := ssync.Send
	if r.InOrder {
		send = ssync.SendInOrder
	}
	err := send(ctx, r.Address, r.Token, &sentSnapshot{ctx, v}, "")
	b.p.cfg.Log.Info("export has ended", "snapshot", r.Snapshot, "to", r.Address, "bytes", v.opened.Size, "error", err)
}

// sentSnapshot is a snapshot as it is sent: what holds no data is not read.
type sentSnapshot struct {
	ctx context.Context
	v   *snapshotVolume
}

// Stat implements ssync.File.
func (s *sentSnapshot) Stat() (disk.Info, error) { return disk.Info{Size: s.v.opened.Size}, nil }

// Extents implements ssync.File.
func (s *sentSnapshot) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	for {
		page, next, err := s.v.Changed(s.ctx, backup.Base{}, off)
		if err != nil {
			return out, false, err
		}
		for _, e := range page {
			out = append(out, disk.Extent{Off: e.Offset, Len: e.Length})
		}
		if next < 0 || len(page) > 0 {
			return out, next >= 0, nil
		}
		off = next // much was looked at, and nothing was found
	}
}

// ReadAt implements ssync.File.
func (s *sentSnapshot) ReadAt(p []byte, off int64) (int, error) {
	if err := s.v.ReadAt(s.ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}
