package directory

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ankole.storage/backup/object"
)

// After is that of object.Store. It reads the folders alone that have what it looks for, or that
// come before it.
func (s *Store) After(ctx context.Context, folder, after string, most int) ([]object.Info, error) {
	if err := object.CheckFolder(folder); err != nil {
		return nil, err
	}
	return s.after(ctx, folder, after, most)
}

func (s *Store) after(ctx context.Context, folder, after string, most int) (found []object.Info, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, filepath.FromSlash(folder)))
	if err = s.wrap(err, "listing", folder); errors.Is(err, object.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	name := func(e os.DirEntry) string {
		if e.IsDir() {
			return folder + e.Name() + "/"
		}
		return folder + e.Name()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(name(a), name(b)) })
	for _, e := range entries {
		if len(found) >= most {
			break
		}
		switch n := name(e); {
		case n <= after && !strings.HasPrefix(after, n): // and so does all below it
		case e.IsDir():
			below, err := s.after(ctx, n, after, most-len(found))
			if err != nil {
				return nil, err
			}
			found = append(found, below...)
		case n > after:
			info, ok, err := s.describe(e, n)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, info)
			}
		}
	}
	return found, nil
}
