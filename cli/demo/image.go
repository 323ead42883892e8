package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Layout of a volume used as an image: the file system, a marker that says it is complete, and the
// writer's area.
const (
	imageSize   = 192 << 20
	markerAt    = imageSize
	scratchFrom = imageSize + 64<<20
	scratchSize = 64 << 20
	// chunk is how much is copied at once.
	chunk = 1 << 20
	// smallestVolume has room for all of it.
	smallestVolume = scratchFrom + scratchSize
)

// image is a volume whose files are put on it, and read back, as one ext4 image.
type image struct {
	dev      device
	endpoint string
}

func newImage(d device, endpoint string) *image { return &image{d, endpoint} }

func (i *image) Describe() string {
	kind := "the block device " + i.endpoint
	if strings.HasPrefix(i.endpoint, "nbd") {
		kind = "its NBD socket"
	}
	return "as an ext4 image copied through " + kind
}

func (i *image) Close() error { return i.dev.Close() }

func (i *image) Scratch() (area, int64, int64, error) {
	if i.dev.Size() < smallestVolume {
		return nil, 0, 0, fmt.Errorf("the volume has %d MiB, the demonstration needs %d MiB", i.dev.Size()>>20,
			smallestVolume>>20)
	}
	return i.dev, scratchFrom, scratchFrom + scratchSize, nil
}

// marker is the block that says a complete tree precedes it.
func marker() []byte {
	b := aligned(grain)
	copy(b, "ankole demo: the image before this block is complete\n")
	sum := sha256.Sum256(b[:grain-sha256.Size])
	copy(b[grain-sha256.Size:], sum[:])
	return b
}

func (i *image) Inspect(context.Context) (content, error) {
	if _, _, _, err := i.Scratch(); err != nil {
		return contentForeign, err
	}
	head, mark := aligned(chunk), aligned(grain)
	if _, err := i.dev.ReadAt(head, 0); err != nil {
		return contentForeign, fmt.Errorf("reading the beginning of the volume: %w", err)
	}
	if _, err := i.dev.ReadAt(mark, markerAt); err != nil {
		return contentForeign, fmt.Errorf("reading the volume: %w", err)
	}
	found := headContent(head)
	if found == contentPart && bytes.Equal(mark, marker()) {
		return contentTree, nil
	}
	return found, nil
}

func (i *image) Fill(ctx context.Context) (tree, error) {
	work, err := os.MkdirTemp("", "ankole-demo-")
	if err != nil {
		return tree{}, err
	}
	defer os.RemoveAll(work)
	files, file := filepath.Join(work, "files"), filepath.Join(work, "image")
	if err := os.Mkdir(files, 0o755); err != nil {
		return tree{}, err
	}
	t, err := makeTree(files, false)
	if err != nil {
		return t, err
	}
	if err := tool(ctx, "mkfs.ext4", "-q", "-F", "-L", label, "-d", files, file,
		fmt.Sprintf("%dk", imageSize>>10)); err != nil {
		return t, err
	}
	if err := i.dev.Zero(markerAt, grain); err != nil {
		return t, fmt.Errorf("writing to the volume: %w", err)
	}
	if err := i.copyIn(ctx, file); err != nil {
		return t, err
	}
	if err := i.dev.Flush(); err != nil {
		return t, fmt.Errorf("flushing the volume: %w", err)
	}
	if _, err := i.dev.WriteAt(marker(), markerAt); err != nil {
		return t, fmt.Errorf("writing to the volume: %w", err)
	}
	return t, i.dev.Flush()
}

// copyIn copies an image to the beginning of the volume; its holes become zeroes.
func (i *image) copyIn(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := aligned(chunk)
	for off := int64(0); off < imageSize; off += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return err
		}
		if err != nil || data >= off+chunk {
			err = i.dev.Zero(off, chunk)
		} else if _, err = f.ReadAt(buf, off); err == nil {
			_, err = i.dev.WriteAt(buf, off)
		}
		if err != nil {
			return fmt.Errorf("copying the image to the volume at %d MiB: %w", off>>20, err)
		}
	}
	return nil
}

func (i *image) Verify(ctx context.Context) (tree, error) {
	work, err := os.MkdirTemp("", "ankole-demo-")
	if err != nil {
		return tree{}, err
	}
	defer os.RemoveAll(work)
	files, file := filepath.Join(work, "files"), filepath.Join(work, "image")
	if err := os.Mkdir(files, 0o755); err != nil {
		return tree{}, err
	}
	if err := i.copyOut(ctx, file); err != nil {
		return tree{}, err
	}
	// e2fsck finds damage in the file system's own structures, which checksums of files do not cover.
	if err := tool(ctx, "e2fsck", "-f", "-n", file); err != nil {
		return tree{}, err
	}
	if err := tool(ctx, "debugfs", "-R", "rdump / "+files, file); err != nil {
		return tree{}, err
	}
	return verifyTree(files)
}

// copyOut copies the image from the volume to a file.
func (i *image) copyOut(ctx context.Context, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(imageSize); err != nil {
		return err
	}
	buf, zeroes := aligned(chunk), make([]byte, chunk)
	for off := int64(0); off < imageSize; off += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := i.dev.ReadAt(buf, off); err != nil {
			return fmt.Errorf("reading the volume at %d MiB: %w", off>>20, err)
		}
		if bytes.Equal(buf, zeroes) {
			continue
		}
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return f.Close()
}
