// Package backingimage is what the controllers of backing images share: where disks are, and which
// files of an image there are on them.
//
// A backing image is a golden image, a file that volumes are made from, with copies on some disks.
// Three controllers keep it, each with a pure decide; docs/design/backing-images.md has their
// tables:
//
//   - image decides which disks have a copy, and what the user is told of it;
//   - source keeps the Pod that makes the first file, from a URL or from a user who uploads;
//   - manager keeps the Pod that serves the files of a disk, and gives it its orders.
package backingimage
