package format

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/pierrec/lz4/v4"

	"ankole.storage/backup/encryption"
)

// Compression is how blocks are stored.
type Compression string

// The methods.
const (
	CompressionNone Compression = "none"
	CompressionGzip Compression = "gzip"
	CompressionLZ4  Compression = "lz4"
)

// Check returns an error for a method that there is not.
func (c Compression) Check() error {
	switch c {
	case CompressionNone, CompressionGzip, CompressionLZ4:
		return nil
	}
	return fmt.Errorf("compression %q is none of none, gzip, lz4", string(c))
}

// encryptedPrefix precedes the method where blocks are encrypted. Programs that cannot decrypt know
// no such method, and so refuse the order to make such a backup, and what is in a store of it.
const encryptedPrefix = "encrypted-"

// Encrypted is the method that orders, and records, of encrypted backups name; CompressionLZ4 is
// meant by "".
func (c Compression) Encrypted() Compression { return encryptedPrefix + cmp.Or(c, CompressionLZ4) }

// CutEncrypted returns the method of what is encrypted, and whether it is.
func (c Compression) CutEncrypted() (inner Compression, encrypted bool) {
	name, encrypted := strings.CutPrefix(string(c), encryptedPrefix)
	return Compression(name), encrypted
}

// Form is how the blocks of a backup are named and stored.
type Form struct {
	Compression Compression
	// Key encrypts them, and names them; nil: they are not encrypted.
	Key *encryption.Volume
}

func (f Form) hash() hash.Hash {
	if f.Key != nil {
		return f.Key.Hash()
	}
	return sha512.New()
}

// Sum returns the checksum of a block: with a key nobody else can tell it from the content.
func (f Form) Sum(block []byte) Checksum {
	h := f.hash()
	h.Write(block)
	return Checksum(h.Sum(nil)[:len(Checksum{})])
}

// open decrypts a stored block in its place.
func (f Form) open(stored []byte, want Checksum) ([]byte, error) {
	if f.Key == nil {
		return stored, nil
	}
	return f.Key.Open(stored, want)
}

// First bytes of compressed blocks.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	lz4Magic  = []byte{0x04, 0x22, 0x4d, 0x18}
)

// suffixes of quantities, as Kubernetes writes them.
var suffixes = []struct {
	suffix string
	factor int64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"", 1}}

// ParseBlockBytes reads the size of blocks, in bytes or as a quantity such as "16Mi". Nothing and 0
// mean DefaultBlockBytes. Any other size than the two that there are is an error.
func ParseBlockBytes(s string) (int64, error) {
	for _, x := range suffixes {
		number, ok := strings.CutSuffix(strings.TrimSpace(s), x.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 32)
		switch {
		case s == "" || err == nil && n == 0:
			return DefaultBlockBytes, nil
		case err == nil && (n*x.factor == DefaultBlockBytes || n*x.factor == LargeBlockBytes):
			return n * x.factor, nil
		}
		break
	}
	return 0, fmt.Errorf("size of blocks %q: there are %d and %d bytes", s, DefaultBlockBytes, LargeBlockBytes)
}

// MaxStoredBytes bounds the stored form of a block: what cannot be compressed grows by headers.
func MaxStoredBytes(blockBytes int64) int64 { return blockBytes + blockBytes/16 + 4<<10 }

// Codec compresses and decompresses blocks. It keeps its state between blocks, and is for one
// goroutine at a time. The zero Codec is ready.
type Codec struct {
	gzipWriter *gzip.Writer
	gzipReader *gzip.Reader
	lz4Writer  *lz4.Writer
	lz4Reader  *lz4.Reader
}

// Encode returns the stored form of a block whose checksum is sum. It is block itself where nothing
// is done to it, otherwise it is made in buf.
func (c *Codec) Encode(f Form, block, buf []byte, sum Checksum) ([]byte, error) {
	if f.Key == nil {
		return c.compress(f.Compression, block, buf[:0])
	}
	var header [encryption.HeaderBytes]byte // Seal fills it
	out, err := c.compress(f.Compression, block, append(buf[:0], header[:]...))
	if err != nil {
		return nil, err
	}
	if f.Compression == CompressionNone {
		out = append(append(buf[:0], header[:]...), block...)
	}
	return f.Key.Seal(out, sum), nil
}

// compress appends the compressed form of a block to buf, or returns block itself.
func (c *Codec) compress(method Compression, block, buf []byte) ([]byte, error) {
	out := bytes.NewBuffer(buf)
	var w io.WriteCloser
	switch method {
	case CompressionNone:
		return block, nil
	case CompressionGzip:
		if c.gzipWriter == nil {
			c.gzipWriter = gzip.NewWriter(out)
		}
		c.gzipWriter.Reset(out)
		w = c.gzipWriter
	case CompressionLZ4:
		if c.lz4Writer == nil {
			c.lz4Writer = lz4.NewWriter(out)
			err := c.lz4Writer.Apply(lz4.BlockSizeOption(lz4.Block1Mb), lz4.ConcurrencyOption(1),
				lz4.ChecksumOption(false))
			if err != nil {
				return nil, err
			}
		}
		c.lz4Writer.Reset(out)
		w = c.lz4Writer
	default:
		return nil, method.Check()
	}
	if _, err := w.Write(block); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Decode fills block with the content of a stored block, and returns ErrCorrupt unless it has
// exactly that length and that checksum. f is that of the backup; where the first bytes are those
// of another compression, that one is taken. block must not overlap data, which is lost if it is
// encrypted.
func (c *Codec) Decode(f Form, data, block []byte, want Checksum) error {
	data, err := f.open(data, want)
	var r io.Reader
	if err == nil {
		r, err = c.reader(f.Compression, data, int64(len(block)))
	}
	if err == nil {
		_, err = io.ReadFull(r, block)
	}
	if err == nil {
		err = ends(r)
	}
	if err == nil && f.Sum(block) != want {
		err = errChecksum
	}
	return corrupt(err, want)
}

// Check is Decode without the content, of a block of any of some sizes in bytes. It needs no room
// for it.
func (c *Codec) Check(f Form, data []byte, want Checksum, sizes ...int64) error {
	data, err := f.open(data, want)
	if err == nil {
		for _, size := range sizes {
			if err = c.checkSize(f, data, want, size); err == nil {
				return nil
			}
		}
	}
	return corrupt(err, want)
}

// checkSize checks a block that is decrypted.
func (c *Codec) checkSize(f Form, data []byte, want Checksum, size int64) error {
	hash := f.hash()
	r, err := c.reader(f.Compression, data, size)
	if err == nil {
		_, err = io.CopyN(hash, r, size)
	}
	if err == nil {
		err = ends(r)
	}
	if err == nil && Checksum(hash.Sum(nil)[:len(want)]) != want {
		err = errChecksum
	}
	return err
}

var errChecksum = errors.New("its content has another checksum")

func corrupt(err error, want Checksum) error {
	if err != nil {
		return fmt.Errorf("block %s: %w: %w", want, ErrCorrupt, err)
	}
	return nil
}

// reader returns the content of a stored block.
func (c *Codec) reader(method Compression, data []byte, blockBytes int64) (io.Reader, error) {
	in := bytes.NewReader(data)
	switch {
	case method == CompressionNone && int64(len(data)) == blockBytes:
		return in, nil
	case bytes.HasPrefix(data, gzipMagic):
		if c.gzipReader == nil {
			c.gzipReader = new(gzip.Reader)
		}
		return c.gzipReader, c.gzipReader.Reset(in)
	case bytes.HasPrefix(data, lz4Magic):
		if c.lz4Reader == nil {
			c.lz4Reader = lz4.NewReader(in)
			if err := c.lz4Reader.Apply(lz4.ConcurrencyOption(1)); err != nil {
				return nil, err
			}
		}
		c.lz4Reader.Reset(in)
		return c.lz4Reader, nil
	case int64(len(data)) == blockBytes: // as it is, in a volume whose method is another one
		return in, nil
	}
	return nil, fmt.Errorf("%d bytes that are neither a gzip stream nor an LZ4 frame", len(data))
}

// ends returns an error unless a content ends here, with the checksum that is behind it.
func ends(r io.Reader) error {
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return errors.New("it is longer than a block")
	case err != io.EOF:
		return err
	}
	return nil
}
