package request

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// Manager is the part of the manager's API that the driver uses; *client.Client is it.
type Manager interface {
	Volume(ctx context.Context, name string) (*resource.Volume, error)
	Volumes(ctx context.Context) ([]resource.Volume, error)
	CreateVolume(ctx context.Context, spec client.VolumeSpec) (*resource.Volume, error)
	DeleteVolumeAt(ctx context.Context, name, version string) error
	AttachVolume(ctx context.Context, name string, in resource.AttachInput) (*resource.Volume, error)
	DetachVolume(ctx context.Context, name string, in resource.DetachInput) (*resource.Volume, error)
	ExpandVolume(ctx context.Context, name, size string) (*resource.Volume, error)
	CancelExpansion(ctx context.Context, name string) (*resource.Volume, error)
	UpdateVolume(ctx context.Context, name, action string, in any) (*resource.Volume, error)

	OrderSnapshot(ctx context.Context, volume string, in resource.SnapshotCRInput) (*resource.SnapshotCR, error)
	SnapshotObject(ctx context.Context, volume, name string) (*resource.SnapshotCR, error)
	SnapshotObjects(ctx context.Context, volume string) ([]resource.SnapshotCR, error)
	DeleteSnapshotObject(ctx context.Context, volume, name string) error

	BackUp(ctx context.Context, volume string, in resource.SnapshotInput) (*resource.Volume, error)
	Backup(ctx context.Context, name string) (*resource.Backup, error)
	Backups(ctx context.Context, backupVolume, volume string) ([]resource.Backup, error)
	AllBackups(ctx context.Context, volume string) ([]resource.Backup, error)
	DeleteBackup(ctx context.Context, name string) error

	BackingImage(ctx context.Context, name string) (*resource.BackingImage, error)
	CreateBackingImage(ctx context.Context, spec client.BackingImageSpec) (*resource.BackingImage, error)
	DeleteBackingImage(ctx context.Context, name string) error

	TellDeviceKeepers(ctx context.Context, volume string, in resource.DeviceKeepersInput) error

	Node(ctx context.Context, name string) (*resource.Node, error)
	Nodes(ctx context.Context) ([]resource.Node, error)
	Setting(ctx context.Context, name string) (*resource.Setting, error)
}

const (
	// firstPause and longestPause are between two looks at what a call waits for: one volume is read
	// from the manager's cache each time.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
)

// Await repeats look, with growing pauses, until it says done, fails, or the context ends; why is
// what the caller is told then, with DEADLINE_EXCEEDED.
func Await(ctx context.Context, what string, look func() (done bool, why string, err error)) error {
	why := ""
	for pause := firstPause; ; pause = min(pause*3/2, longestPause) {
		done, reason, err := look()
		if err == nil && done {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			why = reason
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if why == "" {
				why = "what it waits for is not known"
			}
			return status.Errorf(codes.DeadlineExceeded, "%s: not yet (%s); it goes on, retry", what, why)
		}
	}
}
