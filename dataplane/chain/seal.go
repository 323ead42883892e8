package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/disk"
)

// A directory that was closed is sealed: volume.meta has a random AnkoleSeal, and ankole.meta,
// which is written after it, has what every metadata file said at that time, how long each image
// was, and when it was changed last. So whoever opens it sees what was changed meanwhile by
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
		if !isLayerFile(name) {
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
		switch {
		case isLayerFile(name) && info.Size != e.Size:
			return changed(name, fmt.Sprintf("it had %d bytes and has %d", e.Size, info.Size))
		case isLayerFile(name) && !moved && (info.Inode != e.Inode || info.CTime.UnixNano() > e.CTime):
			// An earlier time is what a loss of power leaves of one that was not on the disk yet.
			return changed(name, "it is another file, or was written to")
		case isLayerFile(name):
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
