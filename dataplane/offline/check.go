package offline

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
)

// CheckReport is what Check found.
type CheckReport struct {
	Directory string      `json:"directory"`
	Problems  []Problem   `json:"problems"`
	Files     []FileCheck `json:"files"`
}

// FileCheck is what reading a layer's file gave.
type FileCheck struct {
	Name string `json:"name"`
	File string `json:"file"`
	// ReadBytes is how much of the file could be read, all that it occupies unless there is a problem.
	ReadBytes int64          `json:"readBytes"`
	Checksum  ChecksumResult `json:"checksum"`
}

// ChecksumResult is what comparing a file with its recorded checksum gave.
type ChecksumResult string

// Checksum results.
const (
	// ChecksumNone: there is none.
	ChecksumNone ChecksumResult = "none"
	// ChecksumRight: the content is the recorded one.
	ChecksumRight ChecksumResult = "right"
	// ChecksumWrong: the content changed although the file did not: rot.
	ChecksumWrong ChecksumResult = "wrong"
	// ChecksumStale: the file was changed, or copied, after it was recorded, and the content is
	// another one: it says nothing.
	ChecksumStale ChecksumResult = "stale"
	// ChecksumUnreadable: the record or the file cannot be read.
	ChecksumUnreadable ChecksumResult = "unreadable"
)

// Failed tells whether something is wrong, as opposed to odd.
func (r *CheckReport) Failed() bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Severity == Error })
}

// Check looks at the form of a directory, reads every file once, and compares them with their
// checksums.
func (d *Directory) Check(ctx context.Context, progress Progress) (*CheckReport, error) {
	s, err := chain.ReadSurvey(d.fs, d.Path)
	if err != nil {
		return nil, err
	}
	r := &CheckReport{Directory: d.Path, Problems: []Problem{}, Files: []FileCheck{}}
	var live []string
	if s.Volume != nil {
		live, _ = s.LiveChain(s.Volume.Head)
	}
	r.Problems = append(r.Problems, d.formProblems(s, live)...)
	if s.Volume != nil && s.Volume.Incomplete {
		return r, nil
	}
	rd := &reader{d: d, s: s, r: r, progress: progress}
	for _, file := range imagesOf(s.Names) {
		if info, err := d.fs.Stat(d.file(file)); err == nil {
			rd.total += info.Allocated
		}
	}
	for _, file := range imagesOf(s.Names) {
		if err := rd.file(ctx, file); err != nil {
			return r, err
		}
	}
	return r, rd.sums(ctx)
}

// sums compares snapshots with the checksums per piece that our engines keep, where they are in
// force.
func (rd *reader) sums(ctx context.Context) error {
	if !slices.ContainsFunc(rd.s.Names, func(n string) bool { return strings.HasSuffix(n, sumsSuffix) }) {
		return nil
	}
	c, err := rd.d.open()
	if err != nil {
		rd.add(Note, rd.d.Path, "checksums per piece were not compared: %v", err)
		return nil
	}
	defer c.Close() // read-only: nothing to lose
	seen := map[string]bool{}
	for _, name := range orderedNames(c) {
		if err := rd.sumsAt(ctx, c, name, seen); err != nil {
			return err
		}
	}
	return nil
}

// sumsAt verifies what is read at a snapshot. A rotten piece of an older layer is told once.
func (rd *reader) sumsAt(ctx context.Context, c *chain.Chain, name string, seen map[string]bool) error {
	if !slices.Contains(rd.s.Names, chain.SnapshotFile(name)+sumsSuffix) {
		return nil
	}
	v, err := c.OpenView(name)
	if err != nil {
		return nil // the head, or one that is being removed
	}
	defer v.Close() // read-only: nothing to lose
	return eachChunk(ctx, v.Size(), nil, func(off int64, p []byte) error {
		_, rot, err := v.Verify(off, int64(len(p)))
		if err != nil {
			return fmt.Errorf("checksums of %s in %s: %w", name, rd.d.Path, err)
		}
		for _, bad := range rot {
			if key := fmt.Sprint(bad.Snapshot, bad.Off); !seen[key] {
				seen[key] = true
				rd.add(Error, chain.SnapshotFile(bad.Snapshot),
					"%d bytes at %d do not match their checksum: the disk has rotted; rebuild it from another replica",
					bad.Len, bad.Off)
			}
		}
		return nil
	})
}

// reader reads the files of a directory one after the other.
type reader struct {
	d           *Directory
	s           *chain.Survey
	r           *CheckReport
	progress    Progress
	done, total int64
}

func (rd *reader) add(level Severity, object, format string, args ...any) {
	rd.r.Problems = append(rd.r.Problems, Problem{level, object, fmt.Sprintf(format, args...)})
}

// file reads one image. It fails only when it is told to stop.
func (rd *reader) file(ctx context.Context, file string) error {
	fc := FileCheck{File: file, Checksum: ChecksumNone}
	fc.Name, _ = chain.LayerName(file)
	sum := crc64.New(crc64.MakeTable(crc64.ISO))
	record, recorded := rd.checksum(file, &fc)
	var w io.Writer
	if recorded {
		w = sum
	}
	err := rd.read(ctx, file, &fc, w)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		if recorded {
			fc.Checksum = ChecksumUnreadable
		}
		rd.add(Error, file, "cannot be read: %v; rebuild it from another replica", err)
	case recorded:
		fc.Checksum = rd.judge(file, record, fmt.Sprintf("%016x", sum.Sum64()))
	}
	rd.r.Files = append(rd.r.Files, fc)
	return nil
}

// checksum reads a layer's checksum file.
func (rd *reader) checksum(file string, fc *FileCheck) (checksumRecord, bool) {
	if !slices.Contains(rd.s.Names, file+checksumSuffix) {
		return checksumRecord{}, false
	}
	data, err := rd.d.fs.ReadFile(rd.d.file(file+checksumSuffix), maxChecksumBytes)
	var record checksumRecord
	if err == nil {
		record, err = parseChecksum(data)
	}
	if err == nil && record.Method != "crc64" {
		err = fmt.Errorf("method %q is not known", record.Method)
	}
	if err != nil {
		fc.Checksum = ChecksumUnreadable
		rd.add(Warning, file+checksumSuffix, "cannot be used: %v; engines compute it again", err)
		return record, false
	}
	if record.Corrupted {
		rd.add(Error, file,
			"an engine found earlier that the content no longer matches its checksum; rebuild it from another replica")
	}
	return record, true
}

// judge compares a computed checksum with the recorded one.
func (rd *reader) judge(file string, record checksumRecord, have string) ChecksumResult {
	if record.Checksum == have {
		return ChecksumRight
	}
	info, err := rd.d.fs.Stat(rd.d.file(file))
	if err == nil && sameTime(record.ChangeTime, info.CTime) {
		rd.add(Error, file, "the content does not match its checksum (%s, recorded %s) although the file was not "+
			"changed since: the disk has rotted; rebuild it from another replica",
			have, record.Checksum)
		return ChecksumWrong
	}
	return ChecksumStale
}

// sameTime compares a recorded time of change, in whatever zone it was written, with a file's.
func sameTime(text string, t time.Time) bool {
	got, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", text)
	return err == nil && got.Equal(t)
}

// read reads what a file occupies; w, unless nil, gets its whole content, holes as zeroes.
func (rd *reader) read(ctx context.Context, file string, fc *FileCheck, w io.Writer) (err error) {
	f, err := rd.d.fs.Open(rd.d.file(file), disk.ReadOnly|disk.Direct)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, buf := int64(0), make([]byte, chunk)
	for more := true; more; {
		var extents []disk.Extent
		if extents, more, err = f.Extents(at, nil); err != nil {
			return err
		}
		for _, e := range extents {
			if err := writeZeroes(ctx, w, e.Off-at); err != nil {
				return err
			}
			if at, err = rd.readExtent(ctx, f, e, fc, w, buf); err != nil {
				return err
			}
		}
		more = more && len(extents) > 0
	}
	return writeZeroes(ctx, w, info.Size-at)
}

func (rd *reader) readExtent(ctx context.Context, f disk.File, e disk.Extent, fc *FileCheck, w io.Writer,
	buf []byte) (int64, error) {
	for off, end := e.Off, e.Off+e.Len; off < end; {
		if err := ctx.Err(); err != nil {
			return off, err
		}
		p := buf[:min(chunk, end-off)]
		n, err := f.ReadAt(p, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return off, fmt.Errorf("at byte %d: %w", off, err)
		}
		clear(p[n:])
		if w != nil {
			_, _ = w.Write(p) // a hash does not fail
		}
		off += int64(len(p))
		fc.ReadBytes += int64(len(p))
		rd.done += int64(len(p))
		if rd.progress != nil {
			rd.progress(min(rd.done, rd.total), rd.total)
		}
	}
	return e.Off + e.Len, nil
}

var zeroChunk [chunk]byte

// writeZeroes feeds n zeroes to a hash.
func writeZeroes(ctx context.Context, w io.Writer, n int64) error {
	for ; w != nil && n > 0; n -= chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, _ = w.Write(zeroChunk[:min(n, chunk)]) // a hash does not fail
	}
	return nil
}
