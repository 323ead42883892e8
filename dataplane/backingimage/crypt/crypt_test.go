package crypt

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
)

// secret is one that costs little.
func secret(more ...string) map[string]string {
	s := map[string]string{luks.SecretValue: "many words\nof two lines\n", luks.SecretPBKDF: "pbkdf2",
		luks.SecretIterations: "1000"}
	for i := 0; i < len(more); i += 2 {
		s[more[i]] = more[i+1]
	}
	return s
}

func keyOf(t *testing.T, secret map[string]string) luks.Key {
	t.Helper()
	k, err := Key(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func needCryptsetup(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		lack.Skip(t, "cryptsetup")
	}
}

// headed is an image that begins with these bytes.
type headed []byte

func (h headed) Head(w io.Writer, n int64) error {
	_, err := w.Write(h[:n])
	return err
}

// format makes a header of a Secret.
func format(t *testing.T, k luks.Key) (headed, *Content) {
	t.Helper()
	h, c, err := Format(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p, err := io.ReadAll(h.Reader())
	if err != nil || len(p) != luks.HeaderBytes {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	return p, c
}

func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(p)
	return p
}

// TestRoundTrip: what is encrypted behind a header is there again for who has the Secret, in
// whatever pieces; what was never written is zero.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	needCryptsetup(t)
	for name, s := range map[string]map[string]string{"usual": secret(), "long key": secret(luks.SecretSize, "512"),
		"argon2": {luks.SecretValue: "w", luks.SecretPBKDF: "argon2id", luks.SecretMemory: "64", luks.SecretIterations: "4"},
		"hash":   secret(luks.SecretHash, "sha512")} {
		want := random(10 * 4096)
		clear(want[4096:8192])
		header, made := format(t, keyOf(t, s))
		p := bytes.Clone(want)
		made.Encrypt(p[:8192], 0)
		made.Encrypt(p[8192:], 8192)
		if bytes.Equal(p[4096:8192], want[4096:8192]) || bytes.Equal(p[:512], want[:512]) {
			t.Errorf("%s: the content is as it was", name)
		}
		found, err := Open(t.Context(), keyOf(t, s), header)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		found.Decrypt(p[512:], 512)
		found.Decrypt(p[:512], 0)
		if !bytes.Equal(p, want) {
			t.Errorf("%s: another content", name)
		}
		hole := make([]byte, 4096)
		if found.Decrypt(hole, 1<<20); !bytes.Equal(hole, make([]byte, 4096)) {
			t.Errorf("%s: a hole is noise", name)
		}
	}
}

// TestCiphertext: cryptsetup reads the same content, from sectors of each size.
func TestCiphertext(t *testing.T) {
	t.Parallel()
	needCryptsetup(t)
	for _, sector := range []string{"512", "4096"} {
		dir, want, k := t.TempDir(), random(1<<20), keyOf(t, secret())
		file := filepath.Join(dir, "image")
		// The content moves by 16 MiB; what is behind it is lost.
		p := append(bytes.Clone(want), make([]byte, 2*luks.HeaderBytes)...)
		if err := os.WriteFile(file, p, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("cryptsetup", append([]string{"reencrypt", "--encrypt", "--type", "luks2", "--batch-mode",
			"--disable-locks", "--key-file", "-", "--reduce-device-size", "32M", "--sector-size", sector}, k.Format...)...)
		cmd.Args, cmd.Stdin = append(cmd.Args, file), strings.NewReader(k.Value)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Open(t.Context(), k, headed(got))
		if err != nil {
			t.Fatal(err)
		}
		content := got[luks.HeaderBytes:][:len(want)]
		if bytes.Equal(content, want) {
			t.Fatal("the content is not encrypted")
		}
		if c.Decrypt(content, 0); !bytes.Equal(content, want) {
			t.Errorf("sectors of %s: another content", sector)
		}
	}
}

// TestRealDeviceMapper: dm_crypt reads what was encrypted here, and what it writes is decrypted
// here, with keys of each size.
func TestRealDeviceMapper(t *testing.T) {
	if os.Getenv("ANKOLE_CRYPTSETUP") == "" {
		lack.Later(t, "tools/hunt.sh vm has a kernel with dm_crypt")
	}
	for _, size := range []string{"256", "512"} {
		k := keyOf(t, secret(luks.SecretSize, size))
		header, c := format(t, k)
		want, next := random(1<<20), bytes.Repeat([]byte("written through dm_crypt "), 4096)[:64<<10]
		p := bytes.Clone(want)
		c.Encrypt(p, 0)
		file, mapper := filepath.Join(t.TempDir(), "image"), "backing-"+size
		if err := os.WriteFile(file, append(bytes.Clone(header), p...), 0o600); err != nil {
			t.Fatal(err)
		}
		open := exec.Command("cryptsetup", "open", "--batch-mode", "--disable-locks", "--key-file", "-", file, mapper)
		open.Stdin = strings.NewReader(k.Value)
		if out, err := open.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		d, err := os.OpenFile("/dev/mapper/"+mapper, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(d, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("key of %s bits: dm_crypt reads another content, %v", size, err)
		}
		_, err = d.WriteAt(next, 128<<10)
		if err := errors.Join(err, d.Sync(), d.Close()); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cryptsetup", "close", mapper).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		copy(want[128<<10:], next)
		if c.Decrypt(got[luks.HeaderBytes:], 0); !bytes.Equal(got[luks.HeaderBytes:], want) {
			t.Errorf("key of %s bits: what dm_crypt has written is another content", size)
		}
	}
}

// TestRefusals: what is not opened, and why.
func TestRefusals(t *testing.T) {
	t.Parallel()
	needCryptsetup(t)
	header, _ := format(t, keyOf(t, secret()))
	for _, tt := range []struct {
		name   string
		secret map[string]string
		image  headed
		says   string
	}{
		{"another passphrase", secret(luks.SecretValue, "many words"), header, ErrKey.Error()},
		{"another size of the key", secret(luks.SecretSize, "512"), header, "256 bits, and the Secret asks for 512"},
		{"a better PBKDF", secret(luks.SecretPBKDF, "argon2i"), header, "the Secret asks for argon2i"},
		{"no header", secret(), make(headed, luks.HeaderBytes), "no LUKS2 header that can be read"},
		{"cut", secret(), header[:4096], "no LUKS2 header that can be read"},
	} {
		if tt.name == "cut" {
			tt.image = append(bytes.Clone(tt.image), make([]byte, luks.HeaderBytes)...)[:luks.HeaderBytes]
			clear(tt.image[4096:])
		}
		_, err := Open(t.Context(), keyOf(t, tt.secret), tt.image)
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "many words") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
	broken := errors.New("the disk is broken")
	if _, err := Open(t.Context(), keyOf(t, secret()), failing{broken}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	for says, s := range map[string]map[string]string{
		"the Secret has no CRYPTO_KEY_VALUE":                                       secret(luks.SecretValue, ""),
		"serpent-xts-plain64, and images are encrypted with aes-xts-plain64 alone": secret(luks.SecretCipher, "serpent-xts-plain64"),
		"CRYPTO_PBKDF": secret(luks.SecretPBKDF, "md5"),
	} {
		if _, err := Key(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	for _, size := range []int64{0, -512, 513} {
		if err := (&Content{sector: sectorBytes}).Fits(size); err == nil {
			t.Errorf("%d bytes fit", size)
		}
	}
}

type failing struct{ err error }

func (f failing) Head(io.Writer, int64) error { return f.err }

// TestKeyIsNoArgument: cryptsetup is given the passphrase on its standard input alone.
func TestKeyIsNoArgument(t *testing.T) {
	needCryptsetup(t)
	real, err := exec.LookPath("cryptsetup")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := "#!/bin/sh\n{ echo \"$@\"; env; } >>" + log + "\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "cryptsetup"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	k := keyOf(t, secret(luks.SecretValue, "unmistakable"))
	header, _ := format(t, k)
	if _, err := Open(t.Context(), k, header); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(got, []byte("luksDump")); n != 4 || bytes.Contains(got, []byte("unmistakable")) {
		t.Errorf("%d calls of luksDump:\n%s", n, got)
	}
}
