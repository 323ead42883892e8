package engineclient

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// ExportRequest describes where a snapshot is sent.
type ExportRequest struct {
	Snapshot string
	// Address is "ip:port" of the receiver, Token what it asks for.
	Address, Token string
	// InOrder: one request after the other, in the order of the volume.
	InOrder bool
}

// SnapshotExport implements EngineClient.
func (d calls) SnapshotExport(ctx context.Context, t Target, r ExportRequest) error {
	_, err := call(ctx, d, t, "send snapshot "+r.Snapshot,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotExportResponse, error) {
			a, err := c.SnapshotExport(ctx, &enginev1.SnapshotExportRequest{Snapshot: r.Snapshot, Address: r.Address,
				Token: r.Token, InOrder: r.InOrder})
			if status.Code(err) == codes.Unimplemented {
				err = status.Error(codes.Unimplemented, "its engine image is too old to export volumes; upgrade it, or the "+
					"instance manager of its node")
			}
			return a, err
		})
	return err
}

// SnapshotExport implements EngineClient. There is no verb for it.
func (b *Binary) SnapshotExport(_ context.Context, t Target, r ExportRequest) error {
	return failed(t, "send snapshot "+r.Snapshot, ErrInvalid,
		"volumes cannot be exported through an instance manager without a proxy; attach the volume anew")
}

// SnapshotExport implements EngineClient.
func (r *Router) SnapshotExport(ctx context.Context, t Target, q ExportRequest) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotExport(ctx, t, q)
}
