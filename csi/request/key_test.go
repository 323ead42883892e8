package request

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"ankole.storage/csi/csitest"
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
			csitest.Wants(t, err, codes.InvalidArgument)
			csitest.Says(t, err, tc.words)
			continue
		}
		if err != nil || k.Value != "the words\n" || !slices.Equal(k.Format, tc.want) {
			t.Errorf("%s=%q: %q, %v; want %q", tc.name, tc.value, k.Format, err, tc.want)
		}
	}
}

// TestSampleOfEncryption: what users copy says what the driver reads, and names the Secret for
// each call.
func TestSampleOfEncryption(t *testing.T) {
	text, err := os.ReadFile("../../deploy/samples/encrypted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	var class storagev1.StorageClass
	first, second, _ := strings.Cut(string(text), "\n---\n")
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &secret),
		yaml.UnmarshalStrict([]byte(second), &class)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(secret.StringData); err != nil {
		t.Error(err)
	}
	w, unknown, err := ParseClass(class.Parameters)
	if err != nil || len(unknown) > 0 || !w.Volume.Encrypted {
		t.Errorf("%+v, unknown %v, %v", w, unknown, err)
	}
	for _, call := range []string{"provisioner", "node-stage", "node-publish", "node-expand"} {
		prefix := reservedPrefix + call + "-secret-name"
		if class.Parameters[prefix] != secret.Name || class.Parameters[prefix+"space"] != secret.Namespace {
			t.Errorf("%s is %q in %q", call, class.Parameters[prefix], class.Parameters[prefix+"space"])
		}
	}
}
