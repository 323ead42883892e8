package csi

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
		{secretProvider, "secret", "", usual},
		{secretProvider, "vault", "vault", nil},
		{secretValue, "", secretValue, nil},
		{secretCipher, "serpent-xts-plain64", "", []string{"--cipher=serpent-xts-plain64", usual[1], usual[2], usual[3]}},
		{secretCipher, "capi:xts(aes)-plain64", "", []string{"--cipher=capi:xts(aes)-plain64", usual[1], usual[2], usual[3]}},
		{secretCipher, "--force-password", secretCipher, nil}, {secretCipher, "aes xts", secretCipher, nil},
		{secretCipher, "cipher_null-ecb", "encrypts nothing", nil},
		{secretHash, "sha512", "", []string{usual[0], "--hash=sha512", usual[2], usual[3]}},
		{secretHash, "/etc/passwd", secretHash, nil},
		{secretSize, "512\n", "", []string{usual[0], usual[1], "--key-size=512", usual[3]}},
		{secretSize, "100", secretSize, nil}, {secretSize, "-8", secretSize, nil}, {secretSize, "8000000", secretSize, nil},
		{secretPBKDF, "pbkdf2", "", []string{usual[0], usual[1], usual[2], "--pbkdf=pbkdf2"}},
		{secretPBKDF, "scrypt", "argon2id", nil},
		{secretIterations, "4", "", append(slices.Clone(usual), "--pbkdf-force-iterations=4")},
		{secretIterations, "0", secretIterations, nil},
		{secretMemory, "65536", "", append(slices.Clone(usual), "--pbkdf-memory=65536")},
		{secretMemory, "1Gi", secretMemory, nil},
		{"SOMETHING_ELSE", "1", "", usual},
	} {
		secrets := map[string]string{secretValue: "the words\n"}
		secrets[tc.name] = tc.value
		k, err := readKey(secrets)
		if tc.words != "" {
			csitest.Wants(t, err, codes.InvalidArgument)
			csitest.Says(t, err, tc.words)
			continue
		}
		if err != nil || k.value != "the words\n" || !slices.Equal(k.format, tc.want) {
			t.Errorf("%s=%q: %q, %v; want %q", tc.name, tc.value, k.format, err, tc.want)
		}
	}
}

// TestSampleOfEncryption: what users copy says what the driver reads, and names the Secret for
// each call.
func TestSampleOfEncryption(t *testing.T) {
	text, err := os.ReadFile("../deploy/samples/encrypted.yaml")
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
	if _, err := readKey(secret.StringData); err != nil {
		t.Error(err)
	}
	w, unknown, err := parse(class.Parameters)
	if err != nil || len(unknown) > 0 || !w.volume.Encrypted {
		t.Errorf("%+v, unknown %v, %v", w, unknown, err)
	}
	for _, call := range []string{"provisioner", "node-stage", "node-publish", "node-expand"} {
		prefix := reservedPrefix + call + "-secret-name"
		if class.Parameters[prefix] != secret.Name || class.Parameters[prefix+"space"] != secret.Namespace {
			t.Errorf("%s is %q in %q", call, class.Parameters[prefix], class.Parameters[prefix+"space"])
		}
	}
}
