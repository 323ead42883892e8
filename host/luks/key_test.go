package luks

import (
	"slices"
	"strings"
	"testing"
)

// TestSecrets: what a Secret may say, and the defaults of the reference.
func TestSecrets(t *testing.T) {
	usual := []string{"--cipher=aes-xts-plain64", "--hash=sha256", "--key-size=256", "--pbkdf=argon2i"}
	for _, tc := range []struct {
		name, value string
		words       string // of a refusal
		want        []string
	}{
		{SecretProvider, "secret", "", usual},
		{SecretProvider, "vault", "vault", nil},
		{SecretValue, "", SecretValue, nil},
		{SecretCipher, "serpent-xts-plain64", "", []string{"--cipher=serpent-xts-plain64", usual[1], usual[2], usual[3]}},
		{SecretCipher, "capi:xts(aes)-plain64", "", []string{"--cipher=capi:xts(aes)-plain64", usual[1], usual[2], usual[3]}},
		{SecretCipher, "--force-password", SecretCipher, nil}, {SecretCipher, "aes xts", SecretCipher, nil},
		{SecretCipher, "cipher_null-ecb", "encrypts nothing", nil},
		{SecretHash, "sha512", "", []string{usual[0], "--hash=sha512", usual[2], usual[3]}},
		{SecretHash, "/etc/passwd", SecretHash, nil},
		{SecretSize, "512\n", "", []string{usual[0], usual[1], "--key-size=512", usual[3]}},
		{SecretSize, "100", SecretSize, nil}, {SecretSize, "-8", SecretSize, nil}, {SecretSize, "8000000", SecretSize, nil},
		{SecretPBKDF, "pbkdf2", "", []string{usual[0], usual[1], usual[2], "--pbkdf=pbkdf2"}},
		{SecretPBKDF, "scrypt", "argon2id", nil},
		{SecretIterations, "4", "", append(slices.Clone(usual), "--pbkdf-force-iterations=4")},
		{SecretIterations, "0", SecretIterations, nil},
		{SecretMemory, "65536", "", append(slices.Clone(usual), "--pbkdf-memory=65536")},
		{SecretMemory, "1Gi", SecretMemory, nil},
		{"SOMETHING_ELSE", "1", "", usual},
	} {
		secrets := map[string]string{SecretValue: "the words\n"}
		secrets[tc.name] = tc.value
		k, err := ReadKey(secrets)
		if tc.words != "" {
			if err == nil || !strings.Contains(err.Error(), tc.words) || strings.Contains(err.Error(), "the words") {
				t.Errorf("%s=%q: %v, want %q", tc.name, tc.value, err, tc.words)
			}
			continue
		}
		if err != nil || k.Value != "the words\n" || !slices.Equal(k.Format, tc.want) {
			t.Errorf("%s=%q: %q, %v; want %q", tc.name, tc.value, k.Format, err, tc.want)
		}
	}
}
