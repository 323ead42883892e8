package backingimage

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

// Names in the directory of a disk.
const (
	// Folder has a directory for each image.
	Folder = "backing-images"
	// TemporaryFolder has the files of data sources.
	TemporaryFolder = "tmp"
	// DiskConfig says which disk a directory is.
	DiskConfig = "longhorn-disk.cfg"

	fileName     = "backing"
	recordSuffix = ".cfg"
	tmpSuffix    = ".tmp"
)

// Bounds of what is read from a disk, in bytes.
const (
	// MaxRecord bounds a record; a real one has about 700.
	MaxRecord = 64 << 10
	maxName   = 128
)

// nameForm is what names of images and UUIDs look like: nothing that leads out of a directory.
var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// ChecksumDigits is the length of a checksum: SHA-512 in hexadecimal digits.
const ChecksumDigits = 128

// CheckChecksum says what is wrong with a checksum. An empty one is none, and right.
func CheckChecksum(sum string) error {
	if sum == "" {
		return nil
	}
	if _, err := hex.DecodeString(sum); err != nil || len(sum) != ChecksumDigits || strings.ToLower(sum) != sum {
		return fmt.Errorf("checksum %.160q is no SHA-512: give %d hexadecimal digits in lower case, or none", sum,
			ChecksumDigits)
	}
	return nil
}

// ID is one file: an image by its name, and one life of that name. An image that is deleted and
// made again has another UUID.
type ID struct{ Name, UUID string }

// Check says what is wrong with an ID.
func (id ID) Check() error {
	for _, part := range [][2]string{{"name", id.Name}, {"UUID", id.UUID}} {
		if len(part[1]) > maxName || !nameForm.MatchString(part[1]) {
			return fmt.Errorf("%s %.160q of a backing image: letters, digits, \"-\", \"_\" and \".\" are allowed, %d at most",
				part[0], part[1], maxName)
		}
	}
	return nil
}

// String is the name of the image's directory.
func (id ID) String() string { return id.Name + "-" + id.UUID }

// uuidLength is that of the reference, which the system keeps.
const uuidLength = 8

// ParseID reads the name of an image's directory. A UUID has no hyphen, so the last one is before
// it.
func ParseID(dir string) (ID, error) {
	at := strings.LastIndexByte(dir, '-')
	if at < 0 {
		return ID{}, fmt.Errorf("%.160q is not the directory of a backing image", dir)
	}
	id := ID{Name: dir[:at], UUID: dir[at+1:]}
	if len(id.UUID) != uuidLength {
		return ID{}, fmt.Errorf("%.160q is not the directory of a backing image", dir)
	}
	return id, id.Check()
}

// Paths are the places of one file.
type Paths struct {
	// Dir is the directory that has all of them; File is the file itself, Record its record, Tmp
	// the file while it is made.
	Dir, File, Record, Tmp string
}

// InManager returns the places of an image's file on a disk.
func InManager(root string, id ID) Paths {
	dir := path.Join(root, Folder, id.String())
	file := path.Join(dir, fileName)
	return Paths{Dir: dir, File: file, Record: file + recordSuffix, Tmp: file + tmpSuffix}
}

// InSource returns the places of a file that a data source makes.
func InSource(root string, id ID) Paths {
	dir := path.Join(root, TemporaryFolder)
	file := path.Join(dir, id.String())
	return Paths{Dir: dir, File: file, Record: file + recordSuffix, Tmp: file + tmpSuffix}
}

// Record is the content of backing.cfg. It is written before the file gets its name.
type Record struct {
	// FilePath is the place of the file as the process sees it, under the key "name".
	FilePath string `json:"name"`
	UUID     string `json:"uuid"`
	// Size is that of the file in bytes, VirtualSize that of the disk that it holds, RealSize what
	// it occupies.
	Size        int64 `json:"size"`
	VirtualSize int64 `json:"virtualSize"`
	RealSize    int64 `json:"realSize"`
	// Checksums are SHA-512: what a user expects, if anything, and what the file has.
	ExpectedChecksum string `json:"expectedChecksum"`
	CurrentChecksum  string `json:"currentChecksum"`
	// ModificationTime is the time of the file's last write, as ModificationTime writes it.
	ModificationTime string `json:"modificationTime"`
}

// ModificationTime is a time as records have it.
func ModificationTime(t time.Time) string { return t.UTC().String() }

// Encode returns the text of a record.
func (r Record) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return text
}

// ParseRecord reads a record. Keys that are unknown here are ignored.
func ParseRecord(text []byte) (Record, error) {
	var r Record
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("record of a backing image: %w", err)
	}
	if r.Size < 0 || r.VirtualSize < 0 || r.RealSize < 0 {
		return Record{}, errors.New("record of a backing image: a size is negative")
	}
	for _, sum := range []string{r.ExpectedChecksum, r.CurrentChecksum} {
		if err := CheckChecksum(sum); err != nil {
			return Record{}, fmt.Errorf("record of a backing image: %w", err)
		}
	}
	return r, nil
}

// Describes tells whether the record is of a file of that size and time: its checksum then need not
// be computed again.
func (r Record) Describes(size int64, modified time.Time) bool {
	return r.CurrentChecksum != "" && r.Size == size && r.ModificationTime == ModificationTime(modified)
}
