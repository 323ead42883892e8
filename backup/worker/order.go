// Package worker touches backup stores in a process of its own.
//
// A store may stop to answer, and a process that waits for a file system of the kernel cannot
// always be ended. So neither an engine nor a command touches a store: it starts a worker, which
// asks it, over a pair of sockets, for what it is to do and for the content of a volume, and tells
// how far it is. A worker that is not answered by its store is ended, and left where that is not
// possible; for that target no second one is let in beside it. See docs/design/backup.md.
package worker

import (
	"errors"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/target"
)

// What a worker can be told to do.
const (
	Create       = "create"
	Restore      = "restore"
	List         = "list"
	Inspect      = "inspect"
	InspectOf    = "inspect-volume"
	Head         = "head"
	Delete       = "delete"
	DeleteVolume = "delete-volume"
	Verify       = "verify"
	// Those of backing images.
	CreateImage  = "create-image"
	RestoreImage = "restore-image"
	ListImages   = "list-images"
	InspectImage = "inspect-image"
	DeleteImage  = "delete-image"
)

// Order is what a worker is to do.
type Order struct {
	Do string
	// Target is its URL, Credentials are those for it.
	Target      string
	Credentials target.Credentials
	// Create and Restore are for those two. SizeBytes is that of the snapshot to back up.
	Create    backup.CreateOptions
	Restore   backup.RestoreOptions
	SizeBytes int64
	// CreateImage and RestoreImage are for those two, where SizeBytes is that of the image's file.
	CreateImage  backup.ImageCreateOptions
	RestoreImage backup.ImageRestoreOptions
	// Verify is for that one, of Volume or of Image.
	Verify backup.VerifyOptions
	// Volume and Backup are for the others; Volume "" lists all. VolumeOnly leaves out their backups.
	Volume, Backup string
	VolumeOnly     bool
	// Image is for orders about the backup of one backing image.
	Image string
	// BytesPerSecond is what backups and restores of the node send and read at most, together; 0 is no
	// bound.
	BytesPerSecond int64
	// GiveUp is how long the store may leave one request without an answer.
	GiveUp time.Duration
}

// Created is the result of a backup.
type Created struct {
	Incremental              bool
	NewBytes, RewrittenBytes int64
}

// Image describes the backup of a backing image. It is the result of all orders about one, but
// deletions.
type Image struct {
	Name string
	URL  string
	// Size is that of the image's file, in bytes.
	Size int64 `json:",string"`
	// Checksum is the SHA-512 of the file.
	Checksum string
	// Created is when the backup was complete; "" while it is not.
	Created           format.Time
	Labels            map[string]string
	CompressionMethod string
	// Secret and SecretNamespace name the Secret that the image is encrypted with.
	Secret          string
	SecretNamespace string
	Messages        map[string]string
}

// Report is what a worker tells while it works.
type Report struct {
	// Begun: it is known what there is to do. Incremental: a backup reads what has changed only.
	// Restoring is the rest of it for a backup that is restored; of an image only SizeBytes is set.
	Begun, Incremental bool
	Restoring          backup.Beginning
	// Done and Total count blocks.
	Done, Total int
	// Waits is how long the store has left a request without an answer.
	Waits time.Duration
}

// Messages of the two processes. The worker asks.
type (
	// Page asks for what was changed after the snapshot Since, from Offset on.
	Page struct {
		Since  backup.Base
		Offset int64
	}
	// Extents answers it. Next is where the next page begins, -1 at the end. NoBase: there is no such
	// snapshot.
	Extents struct {
		Extents []backup.Extent
		Next    int64
		NoBase  bool
	}
	// Range asks for zeroes.
	Range struct{ Offset, Length int64 }
	// Piece asks for content, in a place of the memory that is shared, or for what is there to be
	// written.
	Piece struct {
		Place          int
		Offset, Length int64
	}
	// End is what became of the order: JSON, or an error.
	End struct {
		Result []byte
		Error  string
		// Mark is the number of what the error is, in Marks, -1 for none of them.
		Mark int
		// Damage is that of a *backup.DamageError.
		Damage []backup.Damage
	}
)

// Marks are errors that are told apart on the other side.
var Marks = []error{backup.ErrNotFound, backup.ErrExists, backup.ErrInProgress, backup.ErrNoBase, format.ErrCorrupt,
	object.ErrNoSpace, object.ErrRefused, target.ErrURL, ErrHeld,
	encryption.ErrNoKey}

// ErrHeld: another worker waits for the target, which does not answer it.
var ErrHeld = errors.New("the backup target does not answer")
