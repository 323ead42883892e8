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

	"ankole.storage/disk"
)

// A directory that was closed is sealed: volume.meta has a random AnkoleSeal, and ankole.meta,
// which is written after it, has what every metadata file said at that time, how long each image
// was, and when it was written to last. So whoever opens it sees what was changed meanwhile by
// somebody who is no engine. It is refused, since nobody has acknowledged what the change makes of
// the volume.
//
// The seal says nothing where volume.meta carries another one than the copy: there was no room for
// the copy, the process ended before it, or volume.meta is another one. Another engine drops the
// key. A directory that was copied as a whole has other files with the same content: then images
// are judged by their length.

// sealKey holds the seal of a directory that was closed; opening for writing takes it away.
const sealKey = "AnkoleSeal"

// sealFiles adds what the seal says of files that are not in the copy: images, and metadata that an
// operation which failed has left.
func (c *Files) sealFiles(m metaCopy) error {
	names, err := c.fs.List(c.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := m[name]; ok || !isLayerFile(strings.TrimSuffix(name, metaSuffix)) {
			continue
		}
		info, err := c.fs.Stat(c.path(name))
		if err != nil {
			return err
		}
		e := copiedFile{Name: name, Inode: info.Inode, Size: info.Size, CTime: info.CTime.UnixNano()}
		if isLayerFile(name) {
			e.MTime = info.MTime.UnixNano()
		} else {
			if e.Content, err = c.fs.ReadFile(c.path(name), maxMetaBytes); err != nil {
				return err
			}
		}
		m[name] = e
	}
	return nil
}

// checkSeal refuses a directory that was changed since it was closed.
func (c *Files) checkSeal(names []string) error {
	own, ok := c.copies[volumeMetaName]
	if !ok || c.vm.AnkoleSeal == "" || c.vm.Dirty || c.opts.AsItIs || c.opts.RecoverHead != "" {
		return nil
	}
	then, err := parseVolumeMeta(own.Content)
	if err != nil || then.AnkoleSeal != c.vm.AnkoleSeal {
		return nil
	}
	changed := func(name, how string) error {
		return fmt.Errorf("%w: %s was changed since the directory was closed: %s; put back what was there, or remove %s to "+
			"have the directory taken as it is", ErrCorrupt, name, how, copyName)
	}
	info, err := c.fs.Stat(c.path(volumeMetaName))
	if err != nil {
		return err
	}
	moved := !own.isOf(info) // copied as a whole, if nothing else has changed
	for _, name := range slices.Sorted(maps.Keys(c.copies)) {
		e := c.copies[name]
		info, err := c.fs.Stat(c.path(name))
		if isNotFound(err) {
			return changed(name, "it is gone")
		}
		if err != nil {
			return err
		}
		if isLayerFile(name) {
			if how := e.difference(info, moved); how != "" {
				return changed(name, how)
			}
			continue
		}
		data, _, err := c.copies.readFile(c.fs, c.dir, name)
		if errors.Is(err, disk.ErrIO) {
			continue // whoever reads it says so
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(data, e.Content) {
			return changed(name, difference(e.Content, data))
		}
	}
	for _, name := range names {
		image, isMeta := strings.CutSuffix(name, metaSuffix)
		_, isSnap := snapshotName(image)
		if _, ok := c.copies[name]; !ok && isSnap && (isMeta || name == image) {
			return changed(name, "it was not there")
		}
	}
	return nil
}

// difference tells how an image differs from what it was, "" if it does not. One of a directory
// that was copied as a whole is judged by its length.
func (e *copiedFile) difference(info disk.Info, moved bool) string {
	switch {
	case info.Size != e.Size:
		return fmt.Sprintf("it had %d bytes and has %d", e.Size, info.Size)
	case moved:
		return ""
	case info.Inode != e.Inode:
		return fmt.Sprintf("it is another file, with inode %d instead of %d", info.Inode, e.Inode)
	case e.MTime != 0 && e.writtenSince(info):
		return fmt.Sprintf("it was written to: last at %s, and before at %s", info.MTime.UTC(), time.Unix(0, e.MTime).UTC())
	}
	return ""
}

// writtenSince goes by the time of the last write, since what does not write moves only that of the
// last change: chmod, another name, a defragmentation. A loss of power can bring back earlier
// times. Whoever puts an older file there with its time (cp -p) leaves a later last change.
func (e *copiedFile) writtenSince(info disk.Info) bool {
	written, changed := info.MTime.UnixNano(), info.CTime.UnixNano()
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
