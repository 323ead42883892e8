// Package engineclient is how the control plane talks to a running engine.
//
// An engine process serves one volume. Controllers and the REST server ask it for its state, have
// it admit or drop a replica and take snapshots. They do that through Client, or EngineClient,
// which has the rest too, and never know how the call travels: Router sends it through the gRPC
// proxy of the engine's instance manager (Proxy), or, where that has none, has the engine binary
// run on the engine's node (Binary). Fake is an engine in memory for tests.
//
// BackupTargetBinaryClient browses backup targets, which takes no engine, only the binary.
//
// Replica addresses are written as in Engine objects, "ip:port"; sizes are bytes.
package engineclient

import (
	"context"
	"errors"
	"time"
)

// Errors of every implementation, for errors.Is.
var (
	// ErrNotFound: the engine has no such replica or snapshot.
	ErrNotFound = errors.New("not found in the engine")
	// ErrPrecondition: the engine's state forbids it; the message says what to do.
	ErrPrecondition = errors.New("refused by the engine")
	// ErrInvalid: the engine does not accept the argument.
	ErrInvalid = errors.New("invalid argument for the engine")
	// ErrUnavailable: the engine cannot be reached, did not answer in time, or is at something that
	// passes. Try again later.
	ErrUnavailable = errors.New("engine unavailable")
)

// Target names one engine process.
type Target struct {
	// Address is "ip:port" of the engine.
	Address string
	// Volume and Engine are checked by the engine, so that a reused port never answers for another
	// volume.
	Volume, Engine string
	// InstanceManager is the name of the InstanceManager object that it runs in: the way to it.
	InstanceManager string
	// Image is the engine image of the process, whose binary can ask it.
	Image string
}

// Client is what controllers have engines do. Implementations are safe for concurrent use.
type Client interface {
	// Get returns the present state.
	Get(ctx context.Context, t Target) (State, error)
	// Watch calls observe with the present state at once and again after every change, until ctx
	// ends or the connection breaks; it never returns nil. Slow observers miss intermediate states,
	// never the last.
	Watch(ctx context.Context, t Target, observe func(State)) error
	// ReplicaAdd admits a replica as WO; it is rebuilt in the background and becomes RW or ERR.
	ReplicaAdd(ctx context.Context, t Target, address string) (State, error)
	// ReplicaRemove drops a replica. The last RW one is refused with ErrPrecondition.
	ReplicaRemove(ctx context.Context, t Target, address string) (State, error)
	// SnapshotCreate takes a snapshot and returns its name; an empty name lets the engine choose one.
	SnapshotCreate(ctx context.Context, t Target, s SnapshotRequest) (string, error)
	// SnapshotRemove marks a snapshot as removed; the next purge gives its space back.
	SnapshotRemove(ctx context.Context, t Target, name string) error
	// SnapshotClone fills the volume of t, which is empty and has no frontend, with a snapshot of
	// the volume of source. It returns when that is under way; asked for the same again after a
	// failure it goes on. State.Clone tells the progress. ErrNotFound: the source has no such
	// snapshot.
	SnapshotClone(ctx context.Context, t, source Target, snapshot string) error
	// BackupRestore fills the volume, which is empty and has no frontend, with a backup. It returns
	// when that is under way; State.Restore tells the progress. Asked for the same again after a
	// failure it begins again.
	BackupRestore(ctx context.Context, t Target, r RestoreRequest) error
	// Expand makes the volume sizeBytes large; the present size changes nothing. A smaller one is
	// ErrInvalid; ErrPrecondition while a replica is rebuilt or another change is under way.
	Expand(ctx context.Context, t Target, sizeBytes int64) error
	// OptionsSet changes the options that are not nil.
	OptionsSet(ctx context.Context, t Target, o Options) error
	// Version says what the engine's binary is.
	Version(ctx context.Context, t Target) (Version, error)
	// Forget releases what is held for an engine that is gone.
	Forget(t Target)
}

// EngineClient does every operation on engines; progress of what works on after the answer is in
// State. Implementations are safe for concurrent use.
type EngineClient interface {
	Client
	// FrontendStart offers the volume ("tgt-blockdev", "tgt-iscsi"); FrontendShutdown ends that,
	// replicas stay connected.
	FrontendStart(ctx context.Context, t Target, frontend string) error
	FrontendShutdown(ctx context.Context, t Target) error
	// SnapshotRevert makes the content what it was at a snapshot. The frontend must be down.
	SnapshotRevert(ctx context.Context, t Target, name string) error
	// SnapshotPurge begins to give space back. One under way is ErrPrecondition, or nothing to do
	// with skipIfInProgress.
	SnapshotPurge(ctx context.Context, t Target, skipIfInProgress bool) error
	// SnapshotHash begins to compute the checksum of a snapshot on every replica in sync;
	// SnapshotHashStatus tells the progress or result by replica address. ErrNotFound: no such
	// snapshot; not asked for, or forgotten.
	SnapshotHash(ctx context.Context, t Target, name string, rehash bool) error
	SnapshotHashStatus(ctx context.Context, t Target, name string) (map[string]Hash, error)
	// SnapshotHashCancel ends it. ErrNotFound: it is not under way.
	SnapshotHashCancel(ctx context.Context, t Target, name string) error
	// FilesystemTrim has the file system that is mounted from the volume on the engine's node discard
	// what it does not use, and returns how many bytes that were. It takes as long as that does.
	// ErrNotFound: it is not mounted there; ErrPrecondition: the kernel refuses, or it is being
	// trimmed already; ErrInvalid: the engine's instance manager has no proxy that can.
	FilesystemTrim(ctx context.Context, t Target) (bytes int64, err error)
	// SnapshotCloneStatus tells the progress or result of a clone, the zero Clone if none was asked
	// for.
	SnapshotCloneStatus(ctx context.Context, t Target) (Clone, error)
	// SnapshotBackup begins to back a snapshot up; SnapshotBackupStatus tells the progress or result.
	// ErrNotFound: no such snapshot; the engine does not know of the backup. ErrPrecondition: a backup
	// of that name is in progress, or is in the store and of another snapshot.
	SnapshotBackup(ctx context.Context, t Target, r BackupRequest) error
	SnapshotBackupStatus(ctx context.Context, t Target, backup string) (BackupProgress, error)
	// SnapshotExport begins to send a snapshot to a receiver, which knows how far it is. ErrNotFound:
	// no such snapshot. ErrInvalid: the engine cannot.
	SnapshotExport(ctx context.Context, t Target, r ExportRequest) error
	// BackupRestoreStatus tells the progress or result of a restore, zero if none was asked for.
	BackupRestoreStatus(ctx context.Context, t Target) (RestoreProgress, error)
	// ReplicaVerifyRebuild fails with ErrPrecondition unless the replica is RW.
	ReplicaVerifyRebuild(ctx context.Context, t Target, address string) error
}

// Options of a running volume; nil stays as it is.
type Options struct {
	SnapshotMaxCount          *int
	SnapshotMaxSizeBytes      *int64
	UnmapMarkSnapChainRemoved *bool
	// RebuildConcurrency is how many of a rebuild's steps go on at once, 1 to 5.
	RebuildConcurrency *int
	// RebuildBandwidth is what rebuilds send at most, in bytes per second; 0 means no bound.
	RebuildBandwidth *int64
}

// SnapshotRequest describes a snapshot to take.
type SnapshotRequest struct {
	Name        string
	Labels      map[string]string
	UserCreated bool
	// Freeze has a file system that is mounted from the volume frozen until the snapshot is taken,
	// rather than only synced. Engines that are asked by their binary do neither.
	Freeze bool
}

// Mode is the state of a replica in its engine.
type Mode string

// Modes: not judged yet (the engine is still making contact); in sync; being rebuilt; dropped.
const (
	ModePending Mode = ""
	ModeRW      Mode = "RW"
	ModeWO      Mode = "WO"
	ModeERR     Mode = "ERR"
)

// State is what an engine says of itself.
type State struct {
	Volume, Engine string
	SizeBytes      int64
	// Frontend is as asked for; FrontendUp says whether users can reach the device; Endpoint where.
	Frontend   string
	FrontendUp bool
	Endpoint   string
	// DeviceID says which block device is up, empty if there is none or the engine does not say: with
	// another ID, those who have mounted the former device get errors.
	DeviceID string
	// Expanding: a larger size is being agreed on; LastExpansionError says why the last time failed,
	// LastExpansionFailedAt when (RFC 3339).
	Expanding                                 bool
	LastExpansionError, LastExpansionFailedAt string
	// Options as they are; all set, unless the engine does not say.
	Options Options
	// Replicas in the order of the engine.
	Replicas []Replica
	// Snapshots by name, the head included.
	Snapshots map[string]Snapshot
	// Suspended: I/O waits, for SuspendedReason.
	Suspended       bool
	SuspendedReason string
	// Epoch and Generation of the membership protocol.
	Epoch, Generation int64
	// Clone is the newest filling of the volume with another one's snapshot, as far as the engine
	// knows; zero if there was none.
	Clone    Clone
	Counters Counters
	// Backups are those of this process by name: in progress, and the last ones that have ended; nil
	// where the engine does not say.
	Backups map[string]BackupProgress
	// Restore is the newest filling of the volume with a backup; zero if there was none.
	Restore RestoreProgress
	// UpgradePause is how long users of the volume waited in the live upgrade by which this process
	// got it; 0 if it came otherwise, or does not say.
	UpgradePause time.Duration
}

// Replica is a replica as its engine sees it.
type Replica struct {
	// Address is "ip:port".
	Address string
	// Member is the name of its data directory; empty while it was never connected.
	Member string
	Mode   Mode
	// Error says why the mode is ERR.
	Error string
	// Lost says which files were removed under the replica, so that what they hold goes with its
	// process; empty for none.
	Lost string
	// Rebuild is the newest rebuild; nil if there was none.
	Rebuild *Rebuild
	// Purge is the newest purge of its snapshots; nil if there was none.
	Purge *Purge
}

// Hash is the checksum of a snapshot on one replica.
type Hash struct {
	// State is in_progress, complete or error.
	State string
	// Checksum is that of the file, 16 hexadecimal digits; empty until it is known.
	Checksum, Error string
	// SilentlyCorrupted: the file is not what was written, and could not be put right.
	SilentlyCorrupted bool
	// Repaired counts pieces that were put right from another replica; 0 where the engine does not
	// say.
	Repaired int
}

// Clone is the progress of filling a volume with a snapshot of another one.
type Clone struct {
	Running bool
	// Percent is 0..100.
	Percent int
	// State is in_progress, complete or error.
	State, Error string
	// From is the address of the replica that is read, "ip:port"; Snapshot the one that is cloned.
	From, Snapshot string
	// Interrupted: the engine has found a part when it started, and was not asked to go on.
	Interrupted bool
}

// Purge is the progress of giving back the space of removed snapshots.
type Purge struct {
	Running bool
	// Percent is 0..100.
	Percent int
	// State is in_progress, complete or error.
	State, Error string
}

// Rebuild is the progress of making a replica equal to the others.
type Rebuild struct {
	Running bool
	// Percent is 0..100.
	Percent               int
	DoneBytes, TotalBytes int64
	// State is in_progress, complete or error.
	State, Error string
	// From is the address of the source, "ip:port".
	From string
}

// Snapshot is one layer of the volume.
type Snapshot struct {
	Name, Parent string
	Children     []string
	Removed      bool
	UserCreated  bool
	// Created is RFC 3339.
	Created   string
	SizeBytes int64
	Labels    map[string]string
}

// Counters count since the engine started.
type Counters struct {
	Reads, Writes, ReadBytes, WriteBytes, Flushes, Discards uint64
}

// Version of an engine binary.
type Version struct {
	Version, GitCommit, BuildDate                 string
	CLIAPIVersion, CLIAPIMinVersion               int64
	ControllerAPIVersion, ControllerAPIMinVersion int64
	DataFormatVersion, DataFormatMinVersion       int64
}
