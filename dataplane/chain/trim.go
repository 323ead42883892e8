package chain

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/dataplane/disk"
)

// A trim gives back, without a purge, what was discarded: what the head's whiteouts hide is punched
// out of the snapshots that are marked as removed, from the one below the head down to the first
// that is not marked, has several children or is pinned. Only the head shows what they hold. It
// goes by pieces as a purge does:
//
//	layers := c.TrimLayers()
//	err := c.NoteTrim(sidecars, layers)
//	pages, next := blocks.Untrimmed(from)
//	err = c.Trim(layers, pages)    // beside I/O; Retrim(pages) if it fails

// trimPages is how many pages one piece does: the blocks of 1 GiB at most.
const trimPages = 16

// TrimLayers names the files that a trim works on, the newest first.
func (c *removal) TrimLayers() (files []string) {
	for at := c.meta.disks[c.meta.vm.Head]; at != nil && len(files) < len(c.meta.disks); {
		file := at.Parent
		if at = c.meta.disks[file]; at == nil || !at.Removed || c.readers.pins[file] > 0 || len(c.meta.children(file)) != 1 {
			break
		}
		files = append(files, file)
	}
	return files
}

// NoteTrim durably says, in what absent members miss, that these files change. It comes before each
// piece, as Purge.Note does.
func (c *removal) NoteTrim(side *Sidecars, files []string) error {
	if err := errors.Join(c.usable(), side.usable()); err != nil {
		return err
	}
	return side.layersChange(files...)
}

// Trim does a piece: pages are the head's, from Blocks.Untrimmed. It may run beside I/O.
func (c *removal) Trim(files []string, pages []DurableWhiteouts) error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.meta.vm.Rebuilding || c.merges.now != nil || !slices.Equal(files, c.TrimLayers()) {
		return fmt.Errorf("%w: the chain of %s is being changed; trim it afterwards", ErrInvalid, c.dir)
	}
	for _, file := range files {
		if err := c.trimLayer(file, pages); err != nil {
			return err
		}
	}
	return nil
}

func (c *removal) trimLayer(file string, pages []DurableWhiteouts) error {
	if err := c.checksums.void(file); err != nil {
		return err
	}
	f, err := c.fs.Open(c.path(file), disk.Direct)
	if err != nil {
		return err
	}
	defer f.Close() // synced below
	info, err := f.Stat()
	for i := range pages {
		if err == nil {
			err = pages[i].punch(f, info.Size)
		}
	}
	if err = errors.Join(err, c.syncFile(f)); err == nil { // as in prune
		c.merges.settled(file)
	}
	return err
}

// Untrimmed returns some pages of the head's whiteouts, from one on, that no trim has seen as they
// are, and where to go on, -1 if there are no more. What is not durable yet is left for another
// trim.
func (b *Blocks) Untrimmed(from int64) (pages []DurableWhiteouts, next int64) {
	h := &b.whiteouts
	for _, n := range slices.Sorted(maps.Keys(h.untrimmed)) {
		if n < from {
			continue
		}
		if len(pages) == trimPages {
			return pages, n
		}
		p := h.pages[n]
		if p.bits == p.durable {
			delete(h.untrimmed, n)
		}
		if !p.durable.empty() {
			pages = append(pages, DurableWhiteouts{n, p.durable})
		}
	}
	return pages, -1
}

// Retrim takes pages back for which a trim has failed.
func (b *Blocks) Retrim(pages []DurableWhiteouts) {
	for i := range pages {
		if h := &b.whiteouts; h.pages[pages[i].Page] != nil {
			h.untrimmed[pages[i].Page] = true
		}
	}
}
