package luks

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// usualHeader is what cryptsetup 2.6 makes of the defaults of a Secret, as luksDump shows it.
const usualHeader = `{"keyslots":{"0":{"type":"luks2","key_size":32,"af":{"type":"luks1","stripes":4000,"hash":"sha256"},` +
	`"area":{"type":"raw","offset":"32768","size":"131072","encryption":"aes-xts-plain64","key_size":32},` +
	`"kdf":{"type":"argon2i","time":4,"memory":192667,"cpus":2,"salt":"GQWLRIUoShZeZ/z6hbx57zM3SiI7wX277zvvr9x40KI="}}},` +
	`"tokens":{},"segments":{"0":{"type":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0",` +
	`"encryption":"aes-xts-plain64","sector_size":4096}},"digests":{"0":{"type":"pbkdf2","keyslots":["0"],"segments":["0"],` +
	`"hash":"sha256","iterations":453536,"salt":"OFkEEJTp3na4OuxpDNHkqJmxCJIaJQfCxvm7pQ9EhdI=",` +
	`"digest":"diq9RDs/vku6CAXNzWBOYbjM92Q4AIYgLnQSlEpwvvg="}},"config":{"json_size":"12288","keyslots_size":"16744448"}}`

// TestHeaderIsAsAsked: a header with what nobody has asked for is refused, in words; what drivers
// and cryptsetup luksChangeKey make is not.
func TestHeaderIsAsAsked(t *testing.T) {
	const memory, slot = `"memory":192667`, `"keyslots":{"0":`
	pbkdf2 := []string{`"type":"argon2i","time":4,"memory":192667`, `"type":"pbkdf2","hash":"sha256","iterations":1000`}
	for _, tc := range []struct {
		name    string
		secrets map[string]string
		change  []string // what of the usual header, and by what; pairs
		words   string   // of the refusal; none: it is opened
	}{
		{name: "usual"},
		{name: "changed key", change: []string{"argon2i", "argon2id"}},
		{name: "short sectors", change: []string{`"sector_size":4096`, `"sector_size":512`}},
		{name: "least cost", change: []string{memory, `"memory":65536`}},
		{name: "less memory asked for", secrets: map[string]string{SecretMemory: "32"},
			change: []string{memory, `"memory":32`}},
		{name: "more memory asked for", secrets: map[string]string{SecretMemory: "2097152"},
			change: []string{memory, `"memory":2097152`}},
		{name: "pbkdf2", secrets: map[string]string{SecretPBKDF: "pbkdf2"}, change: pbkdf2},
		{name: "better than asked", secrets: map[string]string{SecretPBKDF: "pbkdf2",
			SecretIterations: "5000"}},
		{name: "short cipher", secrets: map[string]string{SecretCipher: "aes"},
			change: []string{"aes-xts-plain64", "aes-cbc-plain"}},
		{name: "old mode", secrets: map[string]string{SecretCipher: "aes-plain"},
			change: []string{"aes-xts-plain64", "aes-cbc-plain"}},
		{name: "long key", secrets: map[string]string{SecretSize: "512"},
			change: []string{`"key_size":32`, `"key_size":64`}},
		{name: "slot with a cipher of its own", secrets: map[string]string{SecretCipher: "capi:xts(aes)-plain64"},
			change: []string{`"iv_tweak":"0","encryption":"aes-xts-plain64"`,
				`"iv_tweak":"0","encryption":"capi:xts(aes)-plain64"`}},

		{name: "null", change: []string{"aes-xts-plain64", "cipher_null-ecb"}, words: "cipher cipher_null-ecb,"},
		{name: "null of the kernel", change: []string{"aes-xts-plain64", "capi:ecb(cipher_null)-plain"},
			words: "encrypts nothing"},
		{name: "null slot", change: []string{`"encryption":"aes-xts-plain64","key_size":32}`,
			`"encryption":"cipher_null-ecb","key_size":32}`}, words: `a key slot that is encrypted with "cipher_null-ecb"`},
		{name: "another cipher", change: []string{"aes-xts-plain64", "aes-cbc-plain"}, words: SecretCipher},
		{name: "another size", change: []string{`"key_size":32`, `"key_size":16`},
			words: "128 bits, and the Secret asks for 256"},
		{name: "two slots", change: []string{slot, `"keyslots":{"1":{"type":"luks2"},"0":`}, words: "key slots [0 1]"},
		{name: "reencryption slot", change: []string{`{"type":"luks2"`, `{"type":"reencrypt"`}, words: `type "reencrypt"`},
		{name: "token", change: []string{`"tokens":{}`, `"tokens":{"0":{"type":"luks2-keyring","keyslots":["0"]}}`},
			words: "tokens [0]"},
		{name: "another offset", change: []string{"16777216", "33554432"}, words: `"33554432"`},
		{name: "not to the end", change: []string{`"dynamic"`, `"1048576"`}, words: `size "1048576"`},
		{name: "linear", change: []string{`"type":"crypt"`, `"type":"linear"`}, words: `type "linear"`},
		{name: "tweak", change: []string{`"iv_tweak":"0"`, `"iv_tweak":"8"`}, words: `tweak "8"`},
		{name: "two segments", change: []string{`"segments":{`, `"segments":{"1":{"type":"linear"},`}, words: "2 segments"},
		{name: "no segments", change: []string{`"segments":{"0"`, `"segments":{},"others":{"0"`}, words: "0 segments"},
		{name: "marked segment", change: []string{`"iv_tweak"`, `"flags":["in-reencryption"],"iv_tweak"`},
			words: "in-reencryption"},
		{name: "integrity", change: []string{`"iv_tweak"`, `"integrity":{"type":"none"},"iv_tweak"`}, words: "integrity"},
		{name: "requirement", change: []string{`"config":{`, `"config":{"requirements":{"mandatory":["online-reencrypt-v2"]},`},
			words: "online-reencrypt-v2"},
		{name: "weaker kind", change: pbkdf2, words: "PBKDF pbkdf2, and the Secret asks for argon2i"},
		{name: "unknown kind", change: []string{"argon2i", "plain"}, words: `PBKDF "plain"`},
		{name: "less time", change: []string{`"time":4`, `"time":1`}, words: "at least 4 iterations"},
		{name: "less memory", change: []string{memory, `"memory":32`}, words: "65536 KiB"},
		{name: "no memory", change: []string{memory, `"memory":0`}, words: "65536 KiB"},
		{name: "all memory", change: []string{memory, `"memory":4194304`}, words: "at most 1048576 KiB"},
		{name: "fewer than asked", secrets: map[string]string{SecretIterations: "9"}, words: "at least 9 iterations"},
		{name: "fewer pbkdf2", secrets: map[string]string{SecretPBKDF: "pbkdf2", SecretIterations: "2000"},
			change: pbkdf2,
			words:  "at least 2000 iterations"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := strings.NewReplacer(tc.change...).Replace(usualHeader)
			if len(tc.change) > 0 && text == usualHeader {
				t.Fatal("nothing was changed")
			}
			var h Header
			if err := json.Unmarshal([]byte(text), &h); err != nil {
				t.Fatal(err)
			}
			secrets := map[string]string{SecretValue: "words"}
			maps.Copy(secrets, tc.secrets)
			k, err := ReadKey(secrets)
			if err != nil {
				t.Fatal(err)
			}
			err = h.Check(k)
			if (err == nil) != (tc.words == "") || err != nil && !strings.Contains(err.Error(), tc.words) {
				t.Errorf("%v, want %q", err, tc.words)
			}
		})
	}
}
