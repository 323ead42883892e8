package client

import (
	"context"
	"net/http"
	"net/url"

	"ankole.storage/rest/resource"
)

// Snapshots lists the snapshots of an attached volume as its engine has them, the head included.
func (c *Client) Snapshots(ctx context.Context, volume string) ([]resource.Snapshot, error) {
	out, err := action[resource.Collection[resource.Snapshot]](ctx, c, resource.TypeVolume, volume,
		resource.ActionSnapshotList, nil)
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// CreateSnapshot takes a snapshot of an attached volume; without a name the server chooses one.
func (c *Client) CreateSnapshot(ctx context.Context, volume string, in resource.SnapshotInput) (*resource.Snapshot,
	error) {
	return action[resource.Snapshot](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotCreate, in)
}

// DeleteSnapshot marks a snapshot of an attached volume as removed; a purge gives its space back.
func (c *Client) DeleteSnapshot(ctx context.Context, volume, name string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotDelete,
		resource.SnapshotInput{Name: name})
}

// RevertSnapshot makes the content of a volume that is attached without frontend what it was at a
// snapshot.
func (c *Client) RevertSnapshot(ctx context.Context, volume, name string) error {
	u, err := c.object(resource.TypeVolume, volume)
	if err != nil {
		return err
	}
	u.RawQuery = url.Values{"action": {resource.ActionSnapshotRevert}}.Encode()
	return c.call(ctx, http.MethodPost, u, resource.SnapshotInput{Name: name}, nil)
}

// PurgeSnapshots begins to give the space of removed snapshots of an attached volume back; the
// volume's purgeStatus shows the progress.
func (c *Client) PurgeSnapshots(ctx context.Context, volume string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotPurge, nil)
}

// OrderSnapshot makes a snapshot object, for which a snapshot is taken, of a detached volume too;
// it returns before that.
func (c *Client) OrderSnapshot(ctx context.Context, volume string, in resource.SnapshotCRInput) (*resource.SnapshotCR,
	error) {
	return action[resource.SnapshotCR](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotCRCreate, in)
}

// SnapshotObjects lists the snapshot objects of a volume.
func (c *Client) SnapshotObjects(ctx context.Context, volume string) ([]resource.SnapshotCR, error) {
	out, err := action[resource.Collection[resource.SnapshotCR]](ctx, c, resource.TypeVolume, volume,
		resource.ActionSnapshotCRList, nil)
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// SnapshotObject reads a snapshot object.
func (c *Client) SnapshotObject(ctx context.Context, volume, name string) (*resource.SnapshotCR, error) {
	return action[resource.SnapshotCR](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotCRGet,
		resource.SnapshotCRInput{Name: name})
}

// DeleteSnapshotObject deletes a snapshot object and with it the snapshot, of a detached volume
// too; it returns before the snapshot is gone. One that does not exist is no error.
func (c *Client) DeleteSnapshotObject(ctx context.Context, volume, name string) error {
	_, err := action[resource.Empty](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotCRDelete,
		resource.SnapshotCRInput{Name: name})
	return err
}
