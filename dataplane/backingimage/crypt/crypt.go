// Package crypt makes and opens the LUKS2 headers of encrypted backing images, and encrypts and
// decrypts what is behind them. cryptsetup works on headers, in memory; the content is this
// process's work, so that it needs no device. docs/design/encrypted-images.md says why.
package crypt

import (
	"bytes"
	"context"
	"crypto/aes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/crypto/xts"
	"golang.org/x/sys/unix"

	"ankole.storage/host/luks"
)

// cipher is the one that is made and read here.
const cipher = "aes-xts-plain64"

// Sizes of what is encrypted at once, in bytes; the first is also the unit of its number.
const (
	sectorBytes    = 512
	maxSectorBytes = 4096
)

// noPermission is the exit status of cryptsetup where no key slot opens, see cryptsetup(8).
const noPermission = 2

// ErrKey: the passphrase does not open the header.
var ErrKey = errors.New("the key in the Secret does not open the image")

// Key reads a Secret. An error says what is to be changed in it; the passphrase is in none.
func Key(secrets map[string]string) (luks.Key, error) {
	k, err := luks.ReadKey(secrets)
	if asked := k.Asked[luks.OptionCipher]; err == nil && asked != cipher {
		err = fmt.Errorf("%s of the Secret: %s, and images are encrypted with %s alone", luks.SecretCipher, asked, cipher)
	}
	return k, err
}

// Content is the ciphertext behind a header.
type Content struct {
	key *xts.Cipher
	// sector is what is encrypted at once, in bytes.
	sector int
}

// Encrypt encrypts p, which is so far behind the header; both are multiples of a sector.
func (c *Content) Encrypt(p []byte, off int64) {
	c.each(p, off, func(sector []byte, number uint64) { c.key.Encrypt(sector, sector, number) })
}

// Decrypt is the reverse. A sector of zeroes was never written, since no data encrypt to that, and
// stays so.
func (c *Content) Decrypt(p []byte, off int64) {
	c.each(p, off, func(sector []byte, number uint64) {
		if !bytes.Equal(sector, zeroes[:len(sector)]) {
			c.key.Decrypt(sector, sector, number)
		}
	})
}

var zeroes [maxSectorBytes]byte

// each has the numbers of sectors as dm_crypt counts them for plain64.
func (c *Content) each(p []byte, off int64, do func(sector []byte, number uint64)) {
	for at := 0; at < len(p); at += c.sector {
		do(p[at:at+c.sector], uint64(off+int64(at))/sectorBytes)
	}
}

// Fits says whether content of that size can be behind the header.
func (c *Content) Fits(size int64) error {
	if size <= 0 || size%int64(c.sector) != 0 {
		return fmt.Errorf("%d bytes are behind the header, and no multiple of its sectors of %d", size, c.sector)
	}
	return nil
}

// Header is a LUKS2 header in memory.
type Header struct{ file *os.File }

// Format makes a header with one key, and the content behind it, which is empty. Close it.
func Format(ctx context.Context, k luks.Key) (*Header, *Content, error) {
	h, err := newHeader()
	if err != nil {
		return nil, nil, err
	}
	// Without anything behind the header cryptsetup finds the device too small.
	if err = h.file.Truncate(luks.HeaderBytes + maxSectorBytes); err == nil {
		// The passphrase comes on the standard input; images are multiples of such sectors.
		_, err = h.cryptsetup(ctx, k.Value, "luksFormat", append([]string{"--type", "luks2", "--key-file", "-",
			"--sector-size", strconv.Itoa(sectorBytes)}, k.Format...)...)
	}
	var c *Content
	if err == nil {
		c, err = h.open(ctx, k)
	}
	if err != nil {
		return nil, nil, errors.Join(err, h.Close())
	}
	return h, c, nil
}

// Image is what begins with a header.
type Image interface {
	// Head writes the first n bytes to w.
	Head(w io.Writer, n int64) error
}

// Open returns what is behind the header of an image, which has to be what was asked for.
func Open(ctx context.Context, k luks.Key, i Image) (*Content, error) {
	h, err := newHeader()
	if err != nil {
		return nil, err
	}
	var c *Content
	if err = i.Head(h.file, luks.HeaderBytes); err == nil {
		c, err = h.open(ctx, k)
	}
	return c, errors.Join(err, h.Close())
}

func newHeader() (*Header, error) {
	fd, err := unix.MemfdCreate("luks2-header", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for a LUKS2 header: %w", err)
	}
	return &Header{os.NewFile(uintptr(fd), "luks2-header")}, nil
}

// Reader reads the header from its beginning to its end.
func (h *Header) Reader() io.Reader { return io.NewSectionReader(h.file, 0, luks.HeaderBytes) }

// Close frees the memory.
func (h *Header) Close() error { return h.file.Close() }

// open compares the header with what was asked for, and takes the volume key from it.
func (h *Header) open(ctx context.Context, k luks.Key) (*Content, error) {
	out, err := h.cryptsetup(ctx, "", "luksDump", "--dump-json-metadata")
	if err != nil {
		return nil, fmt.Errorf("the image has no LUKS2 header that can be read: %w", err)
	}
	var says luks.Header
	if err := json.Unmarshal(out, &says); err != nil {
		return nil, fmt.Errorf("the LUKS2 header of the image: %w", err)
	}
	if err := says.Check(k); err != nil {
		return nil, fmt.Errorf("the LUKS2 header of the image has %w", err)
	}
	sector := says.SectorBytes()
	if sector < sectorBytes || sector > maxSectorBytes || sector&(sector-1) != 0 {
		return nil, fmt.Errorf("the LUKS2 header of the image has sectors of %d bytes", sector)
	}
	out, err = h.cryptsetup(ctx, k.Value, "luksDump", "--dump-volume-key", "--key-file", "-")
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() == noPermission {
		return nil, ErrKey
	}
	if err != nil {
		return nil, err
	}
	volumeKey, err := dumpedKey(string(out))
	if err != nil {
		return nil, err
	}
	c := &Content{sector: int(sector)}
	if c.key, err = xts.NewCipher(aes.NewCipher, volumeKey); err != nil {
		return nil, fmt.Errorf("the volume key of the image: %w", err)
	}
	return c, nil
}

// dumpedKey reads the volume key from what luksDump prints: hexadecimal bytes behind the last
// colon. What it prints is in no error.
func dumpedKey(out string) ([]byte, error) {
	digits := strings.Join(strings.Fields(out[strings.LastIndexByte(out, ':')+1:]), "")
	key, err := hex.DecodeString(digits)
	if err != nil || len(key) == 0 {
		return nil, errors.New("cryptsetup luksDump has printed no volume key")
	}
	return key, nil
}

// headerInChild is the header's descriptor in cryptsetup: the first one after the standard ones.
const headerInChild = "/proc/self/fd/3"

// cryptsetup runs it on the header. Nobody else has that, so that its lock, which needs a
// directory, is not needed.
func (h *Header) cryptsetup(ctx context.Context, input, action string, args ...string) ([]byte, error) {
	args = append([]string{action, "--disable-locks", "--batch-mode"}, append(args, headerInChild)...)
	cmd := exec.CommandContext(ctx, "cryptsetup", args...)
	var out, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &wrong
	cmd.ExtraFiles = []*os.File{h.file}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cryptsetup %s: %w: %s", action, err, strings.TrimSpace(wrong.String()))
	}
	return out.Bytes(), nil
}
