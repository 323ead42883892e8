package findings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/rest/resource"
)

// States of a copy of a backing image.
const (
	copyReady      = "ready"
	copyPending    = "pending"
	copyInProgress = "in-progress"
	copyUnknown    = "unknown"
	copyFailed     = "failed" // and failed-and-cleanup
)

// copies are those of a backing image, counted.
type copies struct{ all, ready, coming, pending, failed, unknown int }

func copiesOf(b *resource.BackingImage) (c copies) {
	for _, f := range b.DiskFileStatusMap {
		switch c.all++; {
		case f.State == copyReady:
			c.ready++
		case f.State == copyInProgress, f.State == "starting", f.State == "ready-for-transfer":
			c.coming++
		case f.State == copyPending && f.Message == "":
			c.pending++
		case strings.HasPrefix(f.State, copyFailed):
			c.failed++
		case f.State == copyUnknown:
			c.unknown++
		}
	}
	return c
}

// BackingImageReady says that every copy is there, and as many as are wanted.
func BackingImageReady(b *resource.BackingImage) bool {
	c := copiesOf(b)
	return c.ready > 0 && c.ready == c.all && c.ready >= b.MinNumberOfCopies
}

// BackingImage is what a backing image waits for. places names disks by their UUIDs, as people know
// them; those that no node reports are not among them.
func BackingImage(b *resource.BackingImage, places map[string]string) []string {
	out := []string{}
	if b.DeletionTimestamp != "" || BackingImageReady(b) {
		return out
	}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	c := copiesOf(b)
	failed := c.failed > 0 && c.ready+c.coming+c.unknown == 0
	if b.SourceType == "upload" && c.ready+c.coming == 0 && c.pending+c.failed > 0 {
		text := "nobody has sent the file yet"
		if failed {
			text = "the file has not come whole"
		}
		add("%s; send it by Upload… in the web UI, or: ankole backing-image upload %s FILE", text, b.Name)
	}
	if c.all == 0 {
		add("no disk has been chosen yet; if that lasts, its events name what disks lack: room, or the tags that it asks for")
	}
	if c.ready > 0 && c.ready < b.MinNumberOfCopies {
		more := "another one is made when a disk has the room and the tags for it"
		if c.coming > 0 {
			more = "another one comes"
		}
		add("%d of %d copies ready; %s", c.ready, b.MinNumberOfCopies, more)
	}
	for _, disk := range slices.Sorted(maps.Keys(b.DiskFileStatusMap)) {
		if text := copyWaits(b.DiskFileStatusMap[disk]); text != "" {
			place := places[disk]
			if place == "" {
				place = "disk " + disk + ", which no node reports"
			}
			add("copy on %s: %s", place, text)
		}
	}
	if failed && b.SourceType == "download" {
		add("the download begins anew by itself after setting backing-image-recovery-wait-interval; an image with another URL " +
			"is created anew")
	}
	return out
}

func copyWaits(f resource.BackingImageDiskFileStatus) string {
	switch {
	case f.State == copyReady:
		return ""
	case f.State == copyInProgress:
		return fmt.Sprintf("%d %% have come", f.Progress)
	case f.Message != "":
		return f.Message
	case strings.HasPrefix(f.State, copyFailed):
		return "has failed"
	case f.State == copyUnknown:
		return "the process that keeps it does not answer"
	}
	return ""
}
