package service

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/host/luks"
	"ankole.storage/test/lack"
)

var imageSecret = map[string]string{luks.SecretValue: "many words", luks.SecretPBKDF: "pbkdf2",
	luks.SecretIterations: "1000"}

// with is imageSecret with another value.
func with(name, value string) map[string]string {
	s := maps.Clone(imageSecret)
	s[name] = value
	return s
}

// orderReceive orders a clone to receive, with a Secret.
func orderReceive(t *testing.T, server *httptest.Server, secret map[string]string) (at Receiver, status int,
	says string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"credentials": secret})
	if err != nil {
		t.Fatal(err)
	}
	for {
		a, err := http.Post(server.URL+"/v1/file?action=receive", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(a.Body)
		if _ = a.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if a.StatusCode == http.StatusConflict { // it does not listen yet
			continue
		}
		if a.StatusCode == http.StatusOK {
			if err := json.Unmarshal(text, &at); err != nil {
				t.Fatal(err)
			}
		}
		return at, a.StatusCode, string(text)
	}
}

func needCryptsetup(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		lack.Skip(t, "cryptsetup")
	}
}

func recoding(encryption, sum string) SourceConfig {
	return SourceConfig{ID: id, Type: TypeClone, Receive: "127.0.0.1:0", Checksum: sum,
		Parameters: map[string]string{"backing-image": "golden", "encryption": encryption}}
}

// recoded is what becomes of content, in that state.
func recoded(t *testing.T, cfg SourceConfig, secret map[string]string, content []byte, told,
	state string) ([]byte, sourceStatus, *store.Disk) {
	t.Helper()
	d := newDisk(t)
	source, server := newSource(t, d, cfg)
	awaitSource(t, server, "pending")
	at, status, says := orderReceive(t, server, secret)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, says)
	}
	if err := ssync.Send(t.Context(), at.Address, at.Token, snapshotFile(t, content), told); err != nil {
		t.Fatal(err)
	}
	s := awaitSource(t, server, state)
	if source.key.Load() != nil {
		t.Error("the key is kept")
	}
	if state == "failed" {
		return nil, s, d
	}
	p, err := os.ReadFile(backingimage.InSource(d.Root(), id).File)
	if err != nil {
		t.Fatal(err)
	}
	if s.CurrentChecksum != sumOf(p) || s.Size != int64(len(p)) || s.VirtualSize != int64(len(p)) {
		t.Errorf("%d bytes: %+v", len(p), s)
	}
	return p, s, d
}

// TestEncryptedClones: an image that is encrypted, copied and decrypted again is what it was, with
// its holes; none of its content is on the disk meanwhile.
func TestEncryptedClones(t *testing.T) {
	t.Parallel()
	needCryptsetup(t)
	for _, size := range []int{512, 3<<20 + 512, 24 << 20} {
		want := image(size)
		encrypted, _, _ := recoded(t, recoding("encrypt", ""), imageSecret, want, sumOf(want), "ready-for-transfer")
		if len(encrypted) != size+luks.HeaderBytes || !bytes.HasPrefix(encrypted, []byte("LUKS\xba\xbe")) {
			t.Fatalf("%d: %d bytes, %q", size, len(encrypted), encrypted[:8])
		}
		for off := 0; off < size; off += 1 << 20 {
			if sector := want[off : off+512]; !bytes.Equal(sector, make([]byte, 512)) && bytes.Contains(encrypted, sector) {
				t.Errorf("%d: the sector at %d is there in plain text", size, off)
			}
		}
		if bytes.Contains(encrypted, []byte(imageSecret[luks.SecretValue])) {
			t.Errorf("%d: the passphrase is there", size)
		}
		copied, _, _ := recoded(t, recoding("ignore", ""), nil, encrypted, "", "ready-for-transfer")
		if !bytes.Equal(copied, encrypted) {
			t.Errorf("%d: a copy is another one", size)
		}
		got, s, _ := recoded(t, recoding("decrypt", sumOf(want)), imageSecret, copied, sumOf(copied), "ready-for-transfer")
		if !bytes.Equal(got, want) {
			t.Errorf("%d: decrypted it is another one", size)
		}
		if size == 24<<20 && s.RealSize > int64(size)*7/8 {
			t.Errorf("%d: holes are gone: it takes %d bytes", size, s.RealSize)
		}
	}
}

// TestEncryptedClonesThatFail: the reason is told, and nothing is left.
func TestEncryptedClonesThatFail(t *testing.T) {
	t.Parallel()
	needCryptsetup(t)
	plain := image(3 << 20)
	encrypted, _, _ := recoded(t, recoding("encrypt", ""), imageSecret, plain, "", "ready-for-transfer")
	qcow2 := append([]byte("QFI\xfb\x00\x00\x00\x02"), make([]byte, 1<<20-8)...)
	qcow2[23], qcow2[24+4] = 16, 1
	damaged := bytes.Clone(encrypted)
	clear(damaged[:1<<20])
	for _, tt := range []struct {
		name, encryption string
		secret           map[string]string
		content          []byte
		told, sum, says  string
	}{
		{"another passphrase", "decrypt", with(luks.SecretValue, "other words"), encrypted, "", "",
			"the key in the Secret does not open the image"},
		{"another header", "decrypt", with(luks.SecretSize, "512"), encrypted, "", "", "the Secret asks for 512"},
		{"changed on the way", "decrypt", imageSecret, encrypted, sumOf(plain), "", "as its sender has it"},
		{"changed on the way, to be encrypted", "encrypt", imageSecret, plain, sumOf(nil), "", "as its sender has it"},
		{"another result", "decrypt", imageSecret, encrypted, "", sumOf(nil), "SHA-512"},
		{"plain", "decrypt", imageSecret, image(24 << 20), "", "", "no LUKS2 header that can be read"},
		{"short", "decrypt", imageSecret, plain, "", "", "a LUKS2 header takes 16777216"},
		{"damaged", "decrypt", imageSecret, damaged, "", "", "no LUKS2 header that can be read"},
		{"qcow2", "encrypt", imageSecret, qcow2, "", "", "encrypt a raw image"},
	} {
		_, s, d := recoded(t, recoding(tt.encryption, tt.sum), tt.secret, tt.content, tt.told, "failed")
		if !strings.Contains(s.Message, tt.says) || strings.Contains(s.Message, "words") {
			t.Errorf("%s: %q, want %q", tt.name, s.Message, tt.says)
		}
		empty(t, d)
	}
}

// TestKeysThatAreRefused: an order without a key that can be used has nothing sent, and the next
// one may have it.
func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	_, server := newSource(t, newDisk(t), recoding("encrypt", ""))
	for _, tt := range []struct {
		secret map[string]string
		says   string
	}{
		{nil, "the Secret has no CRYPTO_KEY_VALUE"},
		{with(luks.SecretCipher, "twofish-xts-plain64"), "aes-xts-plain64 alone"},
		{with(luks.SecretProvider, "vault"), "vault"},
	} {
		_, status, says := orderReceive(t, server, tt.secret)
		if status != http.StatusBadRequest || !strings.Contains(says, tt.says) || strings.Contains(says, "words") {
			t.Errorf("%d %s, want %q", status, says, tt.says)
		}
	}
	if status, body := ask(t, server, "receive"); status != http.StatusBadRequest ||
		!strings.Contains(string(body), "the order cannot be read") {
		t.Errorf("no order: %d %s", status, body)
	}
	if s := sourceState(t, server); s.State != "pending" {
		t.Errorf("%+v", s)
	}
	if at, status, says := orderReceive(t, server, imageSecret); status != http.StatusOK || at.Token == "" {
		t.Errorf("%d %s", status, says)
	}
	if _, err := NewSource(newDisk(t), recoding("rot13", "")); err == nil || !strings.Contains(err.Error(), "rot13") {
		t.Errorf("%v", err)
	}
}
