// Package object is the interface between a backup store and what keeps its bytes: a directory, a
// bucket, a share.
//
// An object has a name, a path with slashes and without a leading one, and content that is written
// whole and read whole. A folder is no object: it is there as long as an object lies below it. The
// interface has few verbs, because every back end must offer each with the same meaning, and
// package objecttest holds every back end to it.
package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"time"
)

// Errors of back ends, marked where they arise. Test with errors.Is.
var (
	// ErrNotFound: there is no object of that name.
	ErrNotFound = errors.New("no such object in the backup store")
	// ErrNoSpace: the store is full, or a quota of it is. Nothing of the object was stored.
	ErrNoSpace = errors.New("the backup store has no space left: free some, or enlarge it")
	// ErrRefused: the store refuses the credentials or the operation. A repetition does not help.
	ErrRefused = errors.New("the backup store refuses access: check the credentials and the rights they give")
	// ErrTooLong: the object is longer than the caller takes.
	ErrTooLong = errors.New("an object of the backup store is longer than it can be")
	// ErrName: the name is not that of an object. The caller has a defect, or a record is damaged.
	ErrName = errors.New("not a name of an object")
)

// Info describes an object, or a folder in a listing that is not deep.
type Info struct {
	// Name is the whole name. That of a folder ends in a slash.
	Name string
	// SizeBytes is the length of the content; 0 of a folder.
	SizeBytes int64
	// Modified is when the content was written, by the clock of the store. It must be compared with
	// nothing but another such time of the same store. Zero of a folder.
	Modified time.Time
}

// Store is a back end. All methods may be called concurrently. All return when the context ends.
type Store interface {
	// Get appends the content of an object to buf and returns the result. It returns ErrNotFound,
	// and never part of a content without an error. A content longer than limitBytes is
	// ErrTooLong, and no more than that is read.
	Get(ctx context.Context, name string, buf []byte, limitBytes int64) ([]byte, error)
	// Put stores an object, or replaces it. The content is durable when Put returns nil. Whoever
	// reads meanwhile gets the old content or the new one, whole; the same is there after a crash.
	// After an error either is there. Put keeps nothing of data.
	Put(ctx context.Context, name string, data []byte) error
	// Stage is Put of an object that nobody needs before the next Commit. Until that has returned nil
	// readers get what was there before or the new content, whole, and so they do after a crash.
	Stage(ctx context.Context, name string, data []byte) error
	// Commit makes durable what this store has staged before. After an error each of those objects
	// is there or not.
	Commit(ctx context.Context) error
	// Stat describes an object, or returns ErrNotFound.
	Stat(ctx context.Context, name string) (Info, error)
	// List yields what lies below a folder, in no order. folder is "" or ends in a slash; below one
	// that is not there lies nothing. deep yields all objects below it, otherwise only its objects
	// and its folders. An error is the last thing that is yielded. An object that is written or
	// deleted meanwhile may be yielded or not; every other object is, once.
	List(ctx context.Context, folder string, deep bool) iter.Seq2[Info, error]
	// After describes the first objects below a folder whose names come after another name, in the
	// order of bytes: as many as most, fewer where there are no more.
	After(ctx context.Context, folder, after string, most int) ([]Info, error)
	// Delete removes an object. It is no error that there is none. The removal is durable when it
	// returns nil.
	Delete(ctx context.Context, name string) error
	// ListsAtOnce reports whether a list shows every object that any client has put before it began.
	ListsAtOnce() bool
	// String names the store for messages, without credentials.
	String() string
}

// CheckName returns ErrName unless the name is that of an object.
func CheckName(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") {
		return fmt.Errorf("%q: %w", name, ErrName)
	}
	return nil
}

// CheckFolder returns ErrName unless folder is "" or the name of a folder, with a slash at its end.
func CheckFolder(folder string) error {
	name, slash := strings.CutSuffix(folder, "/")
	if folder == "" || slash && CheckName(name) == nil {
		return nil
	}
	return fmt.Errorf("folder %q: %w", folder, ErrName)
}
