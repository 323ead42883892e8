package engineclient

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// Backup requests, and what engines tell of backups and restores. Credentials are the keys of a
// backup target's Secret; they travel in the order and stand in no log.
type (
	// BackupRequest describes a backup to make.
	BackupRequest struct {
		// Backup and Snapshot are names; Target is the URL of the store.
		Backup, Snapshot, Target string
		Credentials              map[string]string
		Labels                   map[string]string
		// Full: nothing is taken over from the last backup.
		Full bool
		// BlockBytes is the size of the blocks; 0: 2 MiB.
		BlockBytes int64
		// Compression is that of a volume's first backup: "lz4", "gzip" or "none".
		Compression string
		// Concurrency is how many blocks are worked on at a time.
		Concurrency int
		// StorageClass is that of the volume's claim.
		StorageClass string
		// BandwidthMiB is what all backups and restores of the node send and read at most, in MiB per
		// second; 0 is no bound.
		BandwidthMiB int
	}
	// BackupProgress is how far a backup is.
	BackupProgress struct {
		URL, Snapshot string
		// State is in_progress, complete or error.
		State, Error string
		// Percent is 0..100.
		Percent int
		// From is the address of the replica that is read, "ip:port".
		From string
	}
	// RestoreRequest describes the filling of an empty volume with a backup.
	RestoreRequest struct {
		// URL is that of the backup.
		URL         string
		Credentials map[string]string
		// Concurrency is how many blocks are worked on at a time.
		Concurrency int
		// AcceptDamage: what the store does not have becomes zero.
		AcceptDamage bool
		// BandwidthMiB is as of a backup.
		BandwidthMiB int
	}
	// RestoreProgress is how far that is.
	RestoreProgress struct {
		Running bool
		// Percent is 0..100.
		Percent int
		// State is in_progress, complete or error; empty: nothing was restored.
		State, Error string
		// Backup is its name, URL where it lies; empty if the process was not asked for it.
		Backup, URL string
		// Interrupted: the engine has found a part when it started, and was not asked to go on.
		Interrupted bool
		// Damage names the ranges that became zero because the store did not have them; empty: none.
		Damage string
	}
)

// backupTimeout bounds the beginning of a backup or a restore: the store is asked what there is,
// and locks of other clients are waited for.
const backupTimeout = 15 * time.Minute

// Names of parameters of a backup.
const (
	parameterMode      = "backup-mode"
	parameterBlockSize = "backup-block-size"
	modeFull           = "full"
)

func (r *BackupRequest) parameters() map[string]string {
	out := map[string]string{}
	if r.Full {
		out[parameterMode] = modeFull
	}
	if r.BlockBytes > 0 {
		out[parameterBlockSize] = strconv.FormatInt(r.BlockBytes, 10)
	}
	return out
}

// SnapshotBackup implements EngineClient.
func (d calls) SnapshotBackup(ctx context.Context, t Target, r BackupRequest) error {
	_, err := callFor(ctx, backupTimeout, d, t, "back up snapshot "+r.Snapshot,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.Backup, error) {
			return c.BackupCreate(ctx, &enginev1.BackupCreateRequest{Name: r.Backup, Snapshot: r.Snapshot, Target: r.Target,
				Credentials: r.Credentials, Labels: r.Labels, Parameters: r.parameters(), CompressionMethod: r.Compression,
				ConcurrentLimit: int32(r.Concurrency), StorageClassName: r.StorageClass,
				NodeBandwidth: int64(r.BandwidthMiB) << 20})
		})
	return err
}

// SnapshotBackupStatus implements EngineClient.
func (d calls) SnapshotBackupStatus(ctx context.Context, t Target, backup string) (BackupProgress, error) {
	what := "get the progress of backup " + backup
	s, err := call(ctx, d, t, what, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.Get(ctx, &enginev1.GetRequest{})
	})
	if err != nil {
		return BackupProgress{}, err
	}
	b := s.GetBackups()[backup]
	if b == nil {
		return BackupProgress{}, failed(t, what, ErrNotFound, "it has not begun the backup, or has forgotten it")
	}
	return backupFrom(b), nil
}

// BackupRestore implements Client.
func (d calls) BackupRestore(ctx context.Context, t Target, r RestoreRequest) error {
	_, err := callFor(ctx, backupTimeout, d, t, "restore a backup",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.BackupRestore(ctx, &enginev1.BackupRestoreRequest{Url: r.URL, Credentials: r.Credentials,
				ConcurrentLimit: int32(r.Concurrency), AcceptDamage: r.AcceptDamage, NodeBandwidth: int64(r.BandwidthMiB) << 20})
		})
	return err
}

// BackupRestoreStatus implements EngineClient.
func (d calls) BackupRestoreStatus(ctx context.Context, t Target) (RestoreProgress, error) {
	s, err := d.Get(ctx, t)
	return s.Restore, err
}

func backupFrom(b *enginev1.Backup) BackupProgress {
	return BackupProgress{URL: b.GetUrl(), Snapshot: b.GetSnapshot(), State: b.GetState(), Error: b.GetError(),
		Percent: int(min(max(b.GetProgress(), 0), 100)), From: plain(b.GetFromAddress())}
}

func backupsFrom(all map[string]*enginev1.Backup) map[string]BackupProgress {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]BackupProgress, len(all))
	for name, b := range all {
		out[name] = backupFrom(b)
	}
	return out
}

func restoreFrom(s *enginev1.State) RestoreProgress {
	r := s.GetRestore()
	return RestoreProgress{Running: r.GetRunning(), Percent: int(min(max(r.GetProgress(), 0), 100)), State: r.GetState(),
		Error: r.GetError(), Backup: r.GetSnapshot(), URL: s.GetRestoreUrl(), Interrupted: r.GetInterrupted(),
		Damage: s.GetRestoreDamage()}
}

// printedBackup is what `backups status` prints, printedRestore one replica in what `backups
// restore-status` prints.
type (
	printedBackup struct {
		Progress       int    `json:"progress"`
		BackupURL      string `json:"backupURL"`
		Error          string `json:"error"`
		SnapshotName   string `json:"snapshotName"`
		State          string `json:"state"`
		ReplicaAddress string `json:"replicaAddress"`
	}
	printedRestore struct {
		IsRestoring            bool   `json:"isRestoring"`
		Progress               int    `json:"progress"`
		Error                  string `json:"error"`
		State                  string `json:"state"`
		BackupURL              string `json:"backupURL"`
		LastRestored           string `json:"lastRestored"`
		CurrentRestoringBackup string `json:"currentRestoringBackup"`
		Interrupted            bool   `json:"interrupted"`
		Damage                 string `json:"damage"`
	}
)

// SnapshotBackup implements EngineClient. The verb has no flag for a full backup.
func (b *Binary) SnapshotBackup(ctx context.Context, t Target, r BackupRequest) error {
	what := "back up snapshot " + r.Snapshot
	if r.Full {
		return failed(t, what, ErrInvalid, "full backups cannot be made through an instance manager without a proxy; "+
			"attach the volume anew")
	}
	verb := []string{"backups", "create", "--dest=" + r.Target, "--backup-name=" + r.Backup,
		"--concurrent-limit=" + strconv.Itoa(r.Concurrency), "--storage-class-name=" + r.StorageClass}
	if r.Compression != "" {
		verb = append(verb, "--compression-method="+r.Compression)
	}
	if r.BlockBytes > 0 {
		verb = append(verb, "--backup-block-size="+strconv.FormatInt(r.BlockBytes>>20, 10))
	}
	for _, key := range sortedKeys(r.Labels) {
		verb = append(verb, "--label="+key+"="+r.Labels[key])
	}
	if r.BandwidthMiB > 0 { // binaries of before have no such flag, and refuse
		verb = append(verb, "--node-bandwidth="+strconv.Itoa(r.BandwidthMiB))
	}
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	_, err := b.runWith(ctx, t, what, r.Credentials, append(verb, "--", r.Snapshot)...)
	return err
}

// SnapshotBackupStatus implements EngineClient.
func (b *Binary) SnapshotBackupStatus(ctx context.Context, t Target, backup string) (BackupProgress, error) {
	p, err := read[printedBackup](ctx, b, t, "backups", "status", "--", backup)
	return BackupProgress{URL: p.BackupURL, Snapshot: p.SnapshotName, State: p.State, Error: p.Error,
		Percent: min(max(p.Progress, 0), 100), From: plain(p.ReplicaAddress)}, err
}

// BackupRestore implements Client.
func (b *Binary) BackupRestore(ctx context.Context, t Target, r RestoreRequest) error {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	verb := []string{"backups", "restore", "--concurrent-limit=" + strconv.Itoa(r.Concurrency)}
	if r.AcceptDamage { // binaries of before have no such flag, and refuse
		verb = append(verb, "--accept-damage")
	}
	if r.BandwidthMiB > 0 { // the same
		verb = append(verb, "--node-bandwidth="+strconv.Itoa(r.BandwidthMiB))
	}
	_, err := b.runWith(ctx, t, "restore a backup", r.Credentials, append(verb, "--", r.URL)...)
	return err
}

// BackupRestoreStatus implements EngineClient. Replicas that take part say the same.
func (b *Binary) BackupRestoreStatus(ctx context.Context, t Target) (RestoreProgress, error) {
	printed, err := read[map[string]printedRestore](ctx, b, t, "backups", "restore-status")
	for _, address := range slices.Sorted(maps.Keys(printed)) {
		if p := printed[address]; p.State != "" {
			return RestoreProgress{Running: p.IsRestoring, Percent: min(max(p.Progress, 0), 100), State: p.State,
				Error: p.Error, Backup: p.CurrentRestoringBackup + p.LastRestored, URL: p.BackupURL,
				Interrupted: p.Interrupted, Damage: p.Damage}, err
		}
	}
	return RestoreProgress{}, err
}

// SnapshotBackup implements EngineClient.
func (r *Router) SnapshotBackup(ctx context.Context, t Target, q BackupRequest) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotBackup(ctx, t, q)
}

// SnapshotBackupStatus implements EngineClient.
func (r *Router) SnapshotBackupStatus(ctx context.Context, t Target, backup string) (BackupProgress, error) {
	c, err := r.choose(t)
	if err != nil {
		return BackupProgress{}, err
	}
	return c.SnapshotBackupStatus(ctx, t, backup)
}

// BackupRestore implements Client.
func (r *Router) BackupRestore(ctx context.Context, t Target, q RestoreRequest) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.BackupRestore(ctx, t, q)
}

// BackupRestoreStatus implements EngineClient.
func (r *Router) BackupRestoreStatus(ctx context.Context, t Target) (RestoreProgress, error) {
	c, err := r.choose(t)
	if err != nil {
		return RestoreProgress{}, err
	}
	return c.BackupRestoreStatus(ctx, t)
}
