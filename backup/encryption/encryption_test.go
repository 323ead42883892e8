package encryption_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ankole.storage/backup/encryption"
)

// keyOf is a key of equal bytes, and its text.
func keyOf(b byte) (encryption.Key, string) {
	k := encryption.Key(bytes.Repeat([]byte{b}, 32))
	return k, base64.StdEncoding.EncodeToString(k[:])
}

func TestParse(t *testing.T) {
	t.Parallel()
	_, one := keyOf(1)
	_, two := keyOf(2)
	_, three := keyOf(3)
	for _, tt := range []struct {
		current, old string
		all          int
		encrypts     bool
	}{{"", "", 0, false}, {one, "", 1, true}, {" " + one + "\n", "", 1, true}, {"", one, 1, false},
		{one, two + "," + three + "\n", 3, true}, {one, two + " " + three, 3, true}, {one, one, 2, true}} {
		keys, err := encryption.Parse(tt.current, tt.old)
		if err != nil || len(keys.All()) != tt.all || (keys.Current != nil) != tt.encrypts {
			t.Errorf("%q, %q: %v, %v", tt.current, tt.old, keys, err)
		}
	}
	const secret = "hunter2hunter2"
	for _, bad := range [][2]string{{secret, ""}, {one[:43], ""}, {one + "AA", ""}, {one, secret}, {one, two + three},
		{one + " " + two, ""}, {base64.StdEncoding.EncodeToString([]byte(secret)), ""}, {one, two + " " + secret},
		{one, strings.Repeat(two+" ", 65)}} {
		_, err := encryption.Parse(bad[0], bad[1])
		if err == nil || !strings.Contains(err.Error(), "BACKUP_ENCRYPTION_") || strings.Contains(err.Error(), secret) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}

// TestIDs: the id of a key is a check value, keys print nothing else, and one that is missing is
// named with those that are there.
func TestIDs(t *testing.T) {
	t.Parallel()
	one, text := keyOf(1)
	two, _ := keyOf(2)
	id := one.ID()
	if again, err := encryption.ParseID(id.String()); err != nil || again != id || id == two.ID() {
		t.Errorf("%s, %s, %v", id, again, err)
	}
	for _, bad := range []string{"", "00", strings.Repeat("0", 16), strings.ToUpper("abcdefabcdefabcd"),
		id.String() + "00"} {
		if _, err := encryption.ParseID(bad); err == nil {
			t.Errorf("%q is an id", bad)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb, one); got != "key "+id.String() {
			t.Errorf("%s: %s", verb, got)
		}
		if got := fmt.Sprintf(verb, encryption.Keys{Old: []encryption.Key{one}}); strings.Contains(got, text[:8]) ||
			strings.Contains(got, "1 1 1") || strings.Contains(got, "0101") {
			t.Errorf("%s: %s", verb, got)
		}
	}
	keys := encryption.Keys{Current: &two}
	_, err := keys.Of(id)
	if !errors.Is(err, encryption.ErrNoKey) || !strings.Contains(err.Error(), id.String()) ||
		!strings.Contains(err.Error(), two.ID().String()) || !strings.Contains(err.Error(), "BACKUP_ENCRYPTION_OLD_KEYS") {
		t.Error(err)
	}
	keys.Old = []encryption.Key{one}
	if got, err := keys.Of(id); err != nil || got != one {
		t.Errorf("%v, %v", got, err)
	}
}

// derived was computed by a program in another language from the page alone: the id, a name, an
// authentication.
const derived = "3e9b7e84a4c7e18c " +
	"e3633717bc171d651a2d1ceba2e9ab87624c2074ba792b865720b149ed0d92f1 " +
	"d4a42a6316c5316c0ef45cfa11f291be5695ac21491d6a831e0d3f98071b60a4"

// TestDerivation: what is in stores depends on these values.
func TestDerivation(t *testing.T) {
	t.Parallel()
	one, _ := keyOf(1)
	v := one.ForVolume("vol1")
	h := v.Hash()
	h.Write([]byte("content"))
	name := hex.EncodeToString(h.Sum(nil)[:encryption.SumBytes])
	got := one.ID().String() + " " + name + " " + v.Authenticate([]byte("record"))
	if got != derived {
		t.Errorf("%s, want %s", got, derived)
	}
	if v.ID() != one.ID() || (*encryption.Volume)(nil).ID() != (encryption.ID{}) {
		t.Error(v.ID())
	}
}

// seal encrypts a content under a name.
func seal(v *encryption.Volume, content []byte, name [32]byte) []byte {
	return v.Seal(append(make([]byte, encryption.HeaderBytes, 512), content...), name)
}

// TestEveryByteCounts: a block comes back under its name with its key, and a flipped bit anywhere,
// another length, name, volume or key is an error. Nothing of a content stands in it, and no two
// are equal.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	one, _ := keyOf(1)
	two, _ := keyOf(2)
	v, name := one.ForVolume("vol1"), [32]byte{7}
	content := []byte(strings.Repeat("the content ", 10))
	stored := seal(v, content, name)
	if id, ok := encryption.KeyOf(stored); !ok || id != one.ID() || bytes.Contains(stored, content[:12]) {
		t.Errorf("%s %v: %q", id, ok, stored)
	}
	if got, err := v.Open(bytes.Clone(stored), name); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if bytes.Equal(stored, seal(v, content, name)) {
		t.Error("a content is encrypted twice to the same bytes")
	}
	wrong := func(what string, v *encryption.Volume, stored []byte, name [32]byte) {
		t.Helper()
		if got, err := v.Open(bytes.Clone(stored), name); err == nil {
			t.Errorf("%s: %q", what, got)
		}
	}
	for i := range stored {
		bad := bytes.Clone(stored)
		bad[i] ^= 1
		wrong(fmt.Sprint("byte ", i), v, bad, name)
		wrong(fmt.Sprint("cut at ", i), v, stored[:i], name)
	}
	wrong("longer", v, append(bytes.Clone(stored), 0), name)
	wrong("another name", v, stored, [32]byte{8})
	wrong("another volume", one.ForVolume("vol2"), stored, name)
	wrong("another key", two.ForVolume("vol1"), stored, name)
	forged := seal(two.ForVolume("vol1"), content, name)
	id := one.ID()
	copy(forged[8:16], id[:])
	wrong("another key under this id", v, forged, name)
}

// TestRecords: a record is authentic to its volume and key alone.
func TestRecords(t *testing.T) {
	t.Parallel()
	one, _ := keyOf(1)
	two, _ := keyOf(2)
	v := one.ForVolume("vol1")
	stored := v.Authenticate([]byte("record"))
	if !v.Authentic([]byte("record"), stored) {
		t.Error("a record is not authentic")
	}
	if v.Authentic([]byte("other"), stored) || v.Authentic([]byte("record"), "") ||
		one.ForVolume("vol2").Authentic([]byte("record"), stored) ||
		two.ForVolume("vol1").Authentic([]byte("record"), stored) {
		t.Error("another record, volume or key is authentic")
	}
}
