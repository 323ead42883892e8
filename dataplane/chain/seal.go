package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/disk"
)

// Whoever opens a directory sees what was changed by somebody who is no engine. It is refused,
// since nobody has acknowledged what the change makes of the volume.
//
// Each volume.meta has a random AnkoleSeal of its own. ankole.meta, which is written after it, has
// that volume.meta, what every layer's metadata said, how long each snapshot's image and file of
// whiteouts was and when it was written to last; that of a directory which was closed has the head
// too. It says something about the directory as long as it has the seal that volume.meta has. What
// replaces volume.meta (a rotation, a revert, a rebuild, an open) ends that until the next copy.
// What changes another file of the copy marks it there before: see mark.
//
// Another engine, and builds that do not know the marks, drop the key. A directory that was copied
// as a whole has other files with the same content: then images are judged by their length.

// sealKey holds the seal of a volume.meta.
const sealKey = "AnkoleSeal"

// seal is the one of the volume.meta in the copy, "" for none.
func (m metaCopy) seal() string {
	if own, ok := m[volumeMetaName]; ok {
		if then, err := parseVolumeMeta(own.Content); err == nil {
			return then.AnkoleSeal
		}
	}
	return ""
}

// holds tells whether the copy is of the present volume.meta.
func (c *copies) holds() bool {
	return c.of.vm.AnkoleSeal != "" && c.of.vm.AnkoleSeal == c.held.seal()
}

// checkSeal refuses a directory in which something is not as the copy says.
func (c *copies) checkSeal(names []string) error {
	if !c.holds() {
		return nil
	}
	err := c.compare(names)
	if err != nil && c.readOnly && c.replaced() {
		return nil // a process has the directory, and has changed it meanwhile
	}
	return err
}

// replaced tells whether the copy or volume.meta are others than those that were read.
func (c *copies) replaced() bool {
	data, err := c.fs.ReadFile(c.path(volumeMetaName), maxMetaBytes)
	if err != nil {
		return false
	}
	vm, err := parseVolumeMeta(data)
	return err == nil && vm.AnkoleSeal != c.of.vm.AnkoleSeal ||
		!maps.EqualFunc(c.held, readCopy(c.fs, c.dir), copiedFile.same)
}

// compare compares the directory with its copy.
func (c *copies) compare(names []string) error {
	own := c.held[volumeMetaName]
	then, err := parseVolumeMeta(own.Content)
	if err != nil {
		return err
	}
	info, err := c.fs.Stat(c.path(volumeMetaName))
	if err != nil {
		return err
	}
	k := sealCheck{c, !own.isOf(info), then.Dirty}
	if err := k.content(&own); err != nil {
		return err
	}
	if then.Dirty && then.Rebuilding {
		return nil // what a rebuild writes to is not marked
	}
	for _, name := range slices.Sorted(maps.Keys(c.held)) {
		if err := k.file(name); err != nil {
			return err
		}
	}
	return k.unknown(names)
}

// sealCheck compares a directory with its copy.
type sealCheck struct {
	c *copies
	// moved: volume.meta is another file with its content, so the directory was copied as a whole,
	// if nothing else has changed.
	moved bool
	// running: the process that had the directory did not close it.
	running bool
}

func (k *sealCheck) changed(name, how string) error {
	since := "the directory was closed"
	if k.running {
		since = "its process ended"
	}
	return fmt.Errorf("%w: %s was changed since %s: %s; put back what was there, or remove %s to have the directory "+
		"taken as it is", ErrCorrupt, name, since, how, copyName)
}

// file checks a file that the copy names.
func (k *sealCheck) file(name string) error {
	e := k.c.held[name]
	if e.Changing {
		return nil
	}
	if isLayerFile(name) {
		return k.image(&e)
	}
	if isLayerFile(strings.TrimSuffix(name, metaSuffix)) {
		if err := k.content(&e); err != nil || e.Whiteouts == nil {
			return err
		}
		return k.image(e.Whiteouts)
	}
	return nil
}

// image checks an image or a file of whiteouts by what the file system says of it.
func (k *sealCheck) image(e *copiedFile) error {
	info, err := k.c.fs.Stat(k.c.path(e.Name))
	if isNotFound(err) && !isLayerFile(e.Name) {
		return nil // damaged whiteouts make the record void, and who gives them up removes the file
	}
	if isNotFound(err) {
		return k.changed(e.Name, "it is gone")
	}
	if err != nil {
		return err
	}
	if how := e.difference(info, k.moved); how != "" {
		return k.changed(e.Name, how)
	}
	return nil
}

// content checks a metadata file.
func (k *sealCheck) content(e *copiedFile) error {
	data, _, err := k.c.held.readFile(k.c.fs, k.c.dir, e.Name)
	switch {
	case isNotFound(err):
		return k.changed(e.Name, "it is gone")
	case errors.Is(err, disk.ErrIO):
		return nil // whoever reads it says so
	case err != nil:
		return err
	case !bytes.Equal(data, e.Content):
		return k.changed(e.Name, difference(e.Content, data))
	}
	return nil
}

// unknown refuses a snapshot that was not there. A rotation that was not committed leaves one: it
// is the same file as the head, or has no image.
func (k *sealCheck) unknown(names []string) error {
	for _, name := range names {
		image, isMeta := strings.CutSuffix(name, metaSuffix)
		_, isSnap := snapshotName(image)
		if _, ok := k.c.held[name]; ok || !isSnap || !isMeta && name != image {
			continue
		}
		if k.running {
			stray, err := k.stray(image, names)
			if err != nil {
				return err
			}
			if stray {
				continue
			}
		}
		return k.changed(name, "it was not there")
	}
	return nil
}

func (k *sealCheck) stray(image string, names []string) (bool, error) {
	if !slices.Contains(names, image) || !slices.Contains(names, image+metaSuffix) {
		return true, nil
	}
	info, err := k.c.fs.Stat(k.c.path(image))
	if err != nil {
		return false, err
	}
	head, err := k.c.fs.Stat(k.c.path(k.c.of.vm.Head))
	if isNotFound(err) {
		return true, nil // whoever opens it says so
	}
	return info.Inode == head.Inode, err
}

// difference tells how an image differs from what it was, "" if it does not. One of a directory
// that was copied as a whole is judged by its length.
func (e *copiedFile) difference(info disk.Info, moved bool) string {
	switch {
	case info.Size != e.Size && !e.Grows:
		return fmt.Sprintf("it had %d bytes and has %d", e.Size, info.Size)
	case moved:
		return ""
	case info.Inode != e.Inode:
		return fmt.Sprintf("it is another file, with inode %d instead of %d", info.Inode, e.Inode)
	case e.MTime != 0 && e.writtenSince(info):
		const layout = "2006-01-02T15:04:05.000Z"
		return fmt.Sprintf("it was written to: last at %s, and before at %s", info.MTime.UTC().Format(layout),
			time.Unix(0, e.MTime).UTC().Format(layout))
	}
	return ""
}

// writtenSince goes by the time of the last write, since what does not write moves only that of the
// last change: chmod, another name, a defragmentation. A loss of power can bring back earlier
// times. Whoever puts an older file there with its time (cp -p) leaves a later last change. Who
// only gives a file its own time back, as archivers and backups do, may know no fractions of
// seconds, or microseconds of them.
func (e *copiedFile) writtenSince(info disk.Info) bool {
	written, changed := info.MTime.UnixNano(), info.CTime.UnixNano()
	for _, unit := range []time.Duration{time.Microsecond, time.Second} {
		if written == e.MTime-e.MTime%int64(unit) {
			return false
		}
	}
	return written > e.MTime || written < e.MTime && changed > e.CTime
}

// difference tells which key of a metadata file has another value.
func difference(was, is []byte) string {
	var before, now map[string]json.RawMessage
	if len(bytes.TrimSpace(is)) == 0 {
		return "it is empty"
	}
	if json.Unmarshal(was, &before) != nil || json.Unmarshal(is, &now) != nil || now == nil {
		return "it is not valid JSON"
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		v, there := now[k]
		switch {
		case !there:
			return fmt.Sprintf("%s was %.100s and is gone", k, before[k])
		case !bytes.Equal(v, before[k]):
			return fmt.Sprintf("%s was %.100s and is %.100s", k, before[k], v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if _, there := before[k]; !there {
			return fmt.Sprintf("%s was not there and is %.100s", k, now[k])
		}
	}
	return "it is written otherwise"
}
