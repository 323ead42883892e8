// Package backingimage has what is known of one backing image's file on one disk: its states, its
// record and where it lies.
//
// A backing image is a golden image that volumes are made from: a raw or qcow2 file, read-only, of
// which each disk that needs one has a copy. A data source makes the first file, in the folder for
// temporary files of a disk; the manager of that disk takes it over; managers of other disks copy
// it from there. The layout is the reference's, so that files of either are used by the other:
//
//	<disk>/backing-images/<name>-<uuid>/backing        the file
//	<disk>/backing-images/<name>-<uuid>/backing.cfg    its record
//	<disk>/backing-images/<name>-<uuid>/backing.tmp    a file that is being made
//	<disk>/tmp/<name>-<uuid>, .cfg, .tmp               the same, of a data source
//
// File is the state machine of one such file. It is pure: events in, actions out; package store
// touches the disk, packages source and ssync move the bytes. docs/design/backing-images.md has the
// tables.
package backingimage
