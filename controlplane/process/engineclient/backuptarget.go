package engineclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/controlplane/object/naming"
)

// BackupTargetBinaryClient browses and removes what a backup target holds, by the engine binary: no
// engine takes part. Destinations are URLs of targets or of backups in them; credentials are the
// environment variables of a backup target's Secret.
type BackupTargetBinaryClient interface {
	BackupGet(ctx context.Context, destURL string, credential map[string]string) (*Backup, error)
	BackupVolumeGet(ctx context.Context, destURL string, credential map[string]string) (*BackupVolume, error)
	BackupNameList(ctx context.Context, destURL, volumeName string, credential map[string]string) ([]string, error)
	BackupVolumeNameList(ctx context.Context, destURL string, credential map[string]string) ([]string, error)
	// BackupVolumeTimes says when each volume's record was written; zero where it has none.
	BackupVolumeTimes(ctx context.Context, destURL string, credential map[string]string) (map[string]time.Time, error)
	BackupDelete(ctx context.Context, destURL string, credential map[string]string) error
	BackupVolumeDelete(ctx context.Context, destURL, volumeName string, credential map[string]string) error
	BackupConfigMetaGet(ctx context.Context, destURL string, credential map[string]string) (*ConfigMetadata, error)
	// BackupImageNameList names the backing images that a target has, sorted.
	BackupImageNameList(ctx context.Context, destURL string, credential map[string]string) ([]string, error)
	BackupImageGet(ctx context.Context, destURL string, credential map[string]string) (*BackupImage, error)
	BackupImageDelete(ctx context.Context, destURL string, credential map[string]string) error
	// BackupVerify reads a part of what the target has of a volume, whose URL is given.
	BackupVerify(ctx context.Context, destURL string, part VerifyPart, credential map[string]string) (*Verified, error)
}

// VerifyPart says which part of a volume's blocks is read, and how fast.
type VerifyPart struct {
	// After is Verified.Next of the part before; empty: from the beginning.
	After string
	// BandwidthMiB is the most that is read in a second, in MiB.
	BandwidthMiB int64
	// For is how long it takes, about.
	For time.Duration
}

// Verified is what was found in a part.
type Verified struct {
	// Backups are the complete backups of the volume, Hurt how many faults each has that has any.
	Backups []string
	Hurt    map[string]int
	// Blocks were read. Done of Total are behind this part.
	Blocks, Done, Total int
	ReadBytes           int64 `json:",string"`
	// Next is where the next part goes on; empty if this was the last.
	Next string
	// Faults are the first of FaultCount.
	Faults     []StoreFault
	FaultCount int
}

// StoreFault is something that is wrong in a store.
type StoreFault struct {
	// Kind is missing, damaged or record.
	Kind, Object, Error string
	// Backups are the first of BackupCount that cannot be restored whole because of it.
	Backups     []string
	BackupCount int
}

// Backup is one backup. Sizes are decimal numbers of bytes, times RFC 3339, as the binary prints
// them.
type Backup struct {
	Name, URL, SnapshotName, SnapshotCreated, Created, Size string

	Labels, Parameters                        map[string]string
	IsIncremental                             bool
	CompressionMethod                         string
	NewlyUploadedDataSize, ReUploadedDataSize string
	VolumeName, VolumeSize, VolumeCreated     string
	VolumeBackingImageName                    string
	// Messages by level, such as "error".
	Messages map[string]string
}

// BackupImage is the backup of a backing image.
type BackupImage struct {
	Name, URL string
	// Size is that of the image's file, in bytes.
	Size     int64 `json:",string"`
	Checksum string
	// Created is when the backup was complete, RFC 3339; "" while it is not.
	Created                 string
	Labels, Messages        map[string]string
	CompressionMethod       string
	Secret, SecretNamespace string
}

// BackupVolume is what a target knows of a volume.
type BackupVolume struct {
	Name, Size, Created, LastBackupName, LastBackupAt, DataStored string

	Labels, Messages                       map[string]string
	Backups                                map[string]*Backup
	BackingImageName, BackingImageChecksum string
	// StorageClassname is spelled as the binary prints it.
	StorageClassname, DataEngine string
}

// ConfigMetadata is about the object that describes a backup.
type ConfigMetadata struct {
	ModificationTime time.Time
}

const (
	// browseTimeout bounds a look at a target: one that lies far away and has many backups takes
	// its time.
	browseTimeout = 5 * time.Minute
	// removeTimeout bounds a removal, which looks through the blocks of every other backup of the
	// volume.
	removeTimeout = 24 * time.Hour
	// verifyTimeout bounds a part of a verification, which is longer than it was asked to be where
	// records and lists of blocks are long.
	verifyTimeout = 12 * time.Hour
)

// TargetBinary is the BackupTargetBinaryClient that runs the binary of an engine image on a node.
type TargetBinary struct {
	// Runner has it run, on Node.
	Runner      Runner
	Node, Image string
}

var _ BackupTargetBinaryClient = (*TargetBinary)(nil)

func (b *TargetBinary) run(ctx context.Context, timeout time.Duration, credential map[string]string,
	verb ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	verb = append([]string{"backups"}, verb...)
	what := "backups " + verb[1] // URLs may have options that are nobody's business
	r, err := b.Runner.Run(ctx, b.Node, &enginebinaryv1.RunRequest{Binary: naming.EngineBinaryInPod(b.Image), Verb: verb,
		Environment: credential})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, kindOfRun(err), whyNotRun(b.Node, b.Image, err))
	}
	if r.GetStatus() != 0 {
		why, kind := reason(r)
		if strings.Contains(why, "cannot find ") { // what binaries of every age say of a backup or volume that is not there
			kind = ErrNotFound
		}
		return nil, fmt.Errorf("%s: %w: %s", what, kind, why)
	}
	return r.GetOutput(), nil
}

func browse[T any](ctx context.Context, b *TargetBinary, credential map[string]string, verb ...string) (T, error) {
	return browseFor[T](ctx, browseTimeout, b, credential, verb...)
}

func browseFor[T any](ctx context.Context, timeout time.Duration, b *TargetBinary, credential map[string]string,
	verb ...string) (T, error) {
	var v T
	out, err := b.run(ctx, timeout, credential, verb...)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("backups %s: %w: the engine binary's answer cannot be read: %w", verb[0], ErrUnavailable, err)
	}
	return v, nil
}

// BackupGet reads one backup.
func (b *TargetBinary) BackupGet(ctx context.Context, destURL string, credential map[string]string) (*Backup, error) {
	return browse[*Backup](ctx, b, credential, "inspect", destURL)
}

// BackupVolumeGet reads one volume.
func (b *TargetBinary) BackupVolumeGet(ctx context.Context, destURL string,
	credential map[string]string) (*BackupVolume, error) {
	return browse[*BackupVolume](ctx, b, credential, "inspect-volume", destURL)
}

// BackupNameList names the backups of a volume, sorted; ErrNotFound if the target does not know it.
func (b *TargetBinary) BackupNameList(ctx context.Context, destURL, volumeName string,
	credential map[string]string) ([]string, error) {
	volumes, err := browse[map[string]*BackupVolume](ctx, b, credential, "ls", "--volume", volumeName, destURL)
	if err != nil {
		return nil, err
	}
	v := volumes[volumeName]
	if v == nil {
		return nil, fmt.Errorf("backups of volume %s: %w: the target does not know the volume", volumeName, ErrNotFound)
	}
	if m := v.Messages["error"]; m != "" {
		return nil, fmt.Errorf("backups of volume %s: %w: %s", volumeName, ErrUnavailable, m)
	}
	return sortedKeys(v.Backups), nil
}

// BackupVolumeNameList names the volumes, sorted.
func (b *TargetBinary) BackupVolumeNameList(ctx context.Context, destURL string,
	credential map[string]string) ([]string, error) {
	volumes, err := browse[map[string]*BackupVolume](ctx, b, credential, "ls", "--volume-only", destURL)
	return sortedKeys(volumes), err
}

// BackupVolumeTimes asks a store of S3 once for each volume, and once more.
func (b *TargetBinary) BackupVolumeTimes(ctx context.Context, destURL string,
	credential map[string]string) (map[string]time.Time, error) {
	volumes, err := browse[map[string]*struct{ ModificationTime time.Time }](ctx, b, credential, "ls", "--volume-only",
		destURL)
	if err != nil {
		return nil, err
	}
	out := make(map[string]time.Time, len(volumes))
	for name, v := range volumes {
		out[name] = v.ModificationTime
	}
	return out, nil
}

// BackupDelete removes one backup.
func (b *TargetBinary) BackupDelete(ctx context.Context, destURL string, credential map[string]string) error {
	_, err := b.run(ctx, removeTimeout, credential, "rm", destURL)
	return err
}

// BackupVolumeDelete removes a volume with all its backups.
func (b *TargetBinary) BackupVolumeDelete(ctx context.Context, destURL, volumeName string,
	credential map[string]string) error {
	_, err := b.run(ctx, removeTimeout, credential, "rm", "--volume", volumeName, destURL)
	return err
}

// BackupConfigMetaGet says when the object that describes a backup or volume was written.
func (b *TargetBinary) BackupConfigMetaGet(ctx context.Context, destURL string,
	credential map[string]string) (*ConfigMetadata, error) {
	return browse[*ConfigMetadata](ctx, b, credential, "head", destURL)
}

// BackupImageNameList names the backing images, sorted.
func (b *TargetBinary) BackupImageNameList(ctx context.Context, destURL string,
	credential map[string]string) ([]string, error) {
	return browse[[]string](ctx, b, credential, "ls-backing-image", destURL)
}

// BackupImageGet reads the backup of one backing image.
func (b *TargetBinary) BackupImageGet(ctx context.Context, destURL string,
	credential map[string]string) (*BackupImage, error) {
	return browse[*BackupImage](ctx, b, credential, "inspect-backing-image", destURL)
}

// BackupImageDelete removes the backup of one backing image.
func (b *TargetBinary) BackupImageDelete(ctx context.Context, destURL string, credential map[string]string) error {
	_, err := b.run(ctx, removeTimeout, credential, "rm-backing-image", destURL)
	return err
}

// BackupVerify is a verb that engine binaries of the reference have not: ErrInvalid.
func (b *TargetBinary) BackupVerify(ctx context.Context, destURL string, part VerifyPart,
	credential map[string]string) (*Verified, error) {
	verb := []string{"verify", "--bandwidth", strconv.FormatInt(part.BandwidthMiB, 10), "--for", part.For.String()}
	if part.After != "" {
		verb = append(verb, "--after", part.After)
	}
	return browseFor[*Verified](ctx, verifyTimeout, b, credential, append(verb, destURL)...)
}
