package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

// records are what lists the blocks of a pool: the backups of a volume, or all backing images.
type records struct {
	// kind names one of them in messages.
	kind  string
	pool  format.Pool
	store object.Store
	// names lists them, sorted.
	names func(ctx context.Context) ([]string, error)
	// load returns the blocks that a record lists, and whether it is complete.
	load func(ctx context.Context, name string) (blocks []format.Block, complete bool, err error)
}

// inventory is what a pool holds.
type inventory struct {
	// names are those of the records.
	names []string
	// present are the blocks that are there, unlisted those of them that no record lists.
	present, unlisted checksums
	// unknown is why unlisted is empty: blocks of a record are not known. "" if they all are.
	unknown string
}

// take reads all records and lists all blocks. The caller keeps new backups away.
func (r *records) take(ctx context.Context) (*inventory, error) {
	before, err := r.names(ctx)
	if err != nil {
		return nil, err
	}
	found := &inventory{}
	var listed checksums
	for _, name := range before {
		blocks, complete, err := r.load(ctx, name)
		switch {
		case errors.Is(err, format.ErrCorrupt):
			found.unknown = fmt.Sprintf("the record of %s %s is damaged: delete that %s", r.kind, name, r.kind)
			continue
		case errors.Is(err, ErrNotFound):
			found.unknown = fmt.Sprintf("%s %s was deleted meanwhile", r.kind, name)
			continue
		case err != nil:
			return nil, err
		case !complete:
			found.unknown = fmt.Sprintf("%s %s is not complete: delete it if its process is gone", r.kind, name)
			continue
		}
		for _, at := range blocks {
			listed = append(listed, at.Checksum)
		}
		listed = listed.sorted()
	}
	if found.present, _, err = listBlocks(ctx, r.store, r.pool, 0); err != nil {
		return nil, err
	}
	if found.names, err = r.names(ctx); err != nil {
		return nil, err
	}
	if found.unknown == "" && !slices.Equal(before, found.names) {
		found.unknown = fmt.Sprintf("a %s was added or deleted meanwhile: delete the next one later", r.kind)
	}
	if found.unknown == "" {
		found.unlisted = slices.DeleteFunc(slices.Clone(found.present), listed.has)
	}
	return found, nil
}

// clear deletes the blocks that no record lists.
func (r *records) clear(ctx context.Context, found *inventory) (*Deleted, error) {
	d := &Deleted{Kept: found.unknown}
	for _, c := range found.unlisted {
		if err := r.store.Delete(ctx, r.pool.Object(c)); err != nil {
			return d, err
		}
		d.Blocks++
	}
	return d, nil
}
