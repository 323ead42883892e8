package chain

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// File names of a replica directory.
const (
	volumeMetaName   = "volume.meta"
	revisionName     = "revision.counter"
	headPrefix       = "volume-head-"
	snapPrefix       = "volume-snap-"
	imageSuffix      = ".img"
	metaSuffix       = ".meta"
	checksumSuffix   = ".checksum"
	sumsSuffix       = ".sums"
	tmpSuffix        = ".tmp"
	restoreTmpSuffix = ".snap_tmp"
	deltaPrefix      = "volume-delta-"
	memberName       = "ankole.member"
	dirtyName        = "ankole.dirty"
	reserveName      = "ankole.reserve"

	// HeadName is how listings call the head, which has no snapshot name.
	HeadName = "volume-head"
)

// maxSnapshotName keeps the longest file name made from a snapshot's name,
// "volume-snap-" + name + ".img.checksum..tmp", within the 255 bytes file systems allow.
const maxSnapshotName = 255 - len(snapPrefix) - len(imageSuffix+checksumSuffix+"."+tmpSuffix)

var snapshotNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ValidateSnapshotName tells whether a new snapshot may have this name.
func ValidateSnapshotName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: a snapshot needs a name", ErrInvalid)
	case name == HeadName:
		return fmt.Errorf("%w: %q is the name of the writable layer; choose another snapshot name", ErrInvalid, name)
	case len(name) > maxSnapshotName:
		return fmt.Errorf("%w: snapshot name of %d bytes; at most %d are possible", ErrInvalid, len(name), maxSnapshotName)
	case !snapshotNamePattern.MatchString(name):
		return fmt.Errorf("%w: snapshot name %q: use letters, digits, '.', '_' and '-', starting with a letter or digit",
			ErrInvalid, name)
	}
	return nil
}

// snapshotFile returns the image file of a snapshot.
func snapshotFile(name string) string { return snapPrefix + name + imageSuffix }

// snapshotName is the inverse of snapshotFile.
func snapshotName(file string) (string, bool) {
	name, ok := strings.CutPrefix(file, snapPrefix)
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, imageSuffix)
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", false
	}
	return name, true
}

// displayName is what listings call a layer's file.
func displayName(file string) string {
	if name, ok := snapshotName(file); ok {
		return name
	}
	if isHeadFile(file) {
		return HeadName
	}
	return file
}

func headFile(n int) string { return fmt.Sprintf("%s%03d%s", headPrefix, n, imageSuffix) }

// headNumber returns the number in a head's file name, whatever its width.
func headNumber(file string) (int, bool) {
	s, ok := strings.CutPrefix(file, headPrefix)
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, imageSuffix)
	if !ok || s == "" || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, false
	}
	return int(n), true
}

func isHeadFile(file string) bool {
	_, ok := headNumber(file)
	return ok
}

// isLayerFile tells whether a name from a metadata file may be opened as a layer: nothing that
// leaves the directory.
func isLayerFile(file string) bool {
	_, snap := snapshotName(file)
	return snap || isHeadFile(file)
}

// maxHeadNumber is where numbering starts over.
const maxHeadNumber = 999

// nextHead chooses the file of the next head among the names in the directory: one more than the
// highest number present, so that a head left behind by a crash, ours or another engine's, never
// stands in the way.
func nextHead(names []string) (string, error) {
	highest, used := -1, map[int]bool{}
	for _, name := range names {
		name = strings.TrimSuffix(strings.TrimSuffix(name, metaSuffix), checksumSuffix)
		if n, ok := headNumber(name); ok {
			used[n] = true
			if n <= maxHeadNumber {
				highest = max(highest, n)
			}
		}
	}
	if highest < maxHeadNumber {
		return headFile(highest + 1), nil
	}
	for n := range maxHeadNumber {
		if !used[n] {
			return headFile(n), nil
		}
	}
	return "", fmt.Errorf("%w: every head number up to %d is in use; remove stray volume-head files", ErrLimit,
		maxHeadNumber)
}
