package csi

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Keys of the Secret of an encrypted volume, as in the reference.
const (
	secretValue      = "CRYPTO_KEY_VALUE"
	secretProvider   = "CRYPTO_KEY_PROVIDER"
	secretCipher     = "CRYPTO_KEY_CIPHER"
	secretHash       = "CRYPTO_KEY_HASH"
	secretSize       = "CRYPTO_KEY_SIZE"
	secretPBKDF      = "CRYPTO_PBKDF"
	secretIterations = "CRYPTO_PBKDF_FORCE_ITERATIONS"
	secretMemory     = "CRYPTO_PBKDF_MEMORY"
)

// kindPBKDF2 is the one kind of PBKDF that takes no memory.
const kindPBKDF2 = "pbkdf2"

// maxKeyBits bounds the size of a volume key; the largest of a cipher that the kernel has is 512.
const maxKeyBits = 4096

// key opens an encrypted volume, and says how one that is new is formatted.
type key struct {
	value string
	// format are the arguments of luksFormat.
	format []string
	// asked are their values by name.
	asked map[string]string
}

// Options of luksFormat that a header is compared with.
const (
	optionCipher     = "cipher"
	optionSize       = "key-size"
	optionPBKDF      = "pbkdf"
	optionIterations = "pbkdf-force-iterations"
	optionMemory     = "pbkdf-memory"
)

// number is the value of an option that may be missing, which is 0.
func (k *key) number(option string) int64 {
	n, err := strconv.ParseInt(k.asked[option], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// cipherName is what cryptsetup takes for a cipher or a hash, such as
// capi:xts(aes)-plain64.
var cipherName = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9:_.()-]*$`)

// readKey reads the Secret of a volume. Values are in no error.
func readKey(secrets map[string]string) (k key, err error) {
	if k.value = secrets[secretValue]; k.value == "" {
		return k, refuse("the volume is encrypted, and its Secret has no %s: name one in the StorageClass, parameters "+
			"csi.storage.k8s.io/node-stage-secret-name, node-publish-secret-name and node-expand-secret-name, each with its "+
			"-namespace", secretValue)
	}
	if provider := cmp.Or(secrets[secretProvider], "secret"); provider != "secret" {
		return k, refuse("%s of the Secret: %q is not known; use secret", secretProvider, provider)
	}
	k.asked = map[string]string{}
	for _, o := range []struct {
		name, option, fallback string
		judge                  func(string) error
	}{
		{secretCipher, optionCipher, "aes-xts-plain64", isCipher}, {secretHash, "hash", "sha256", isCipher},
		{secretSize, optionSize, "256", isKeySize}, {secretPBKDF, optionPBKDF, "argon2i", isPBKDF},
		{secretIterations, optionIterations, "", isCount}, {secretMemory, optionMemory, "", isCount},
	} {
		value := cmp.Or(strings.TrimSpace(secrets[o.name]), o.fallback)
		if value == "" {
			continue
		}
		if err := o.judge(value); err != nil {
			return k, refuse("%s of the Secret: %v", o.name, err)
		}
		k.asked[o.option] = value
		k.format = append(k.format, "--"+o.option+"="+value)
	}
	return k, nil
}

func isCipher(value string) error {
	if !cipherName.MatchString(value) {
		return fmt.Errorf("%q is no name of a cipher or hash", value)
	}
	if isNull(value) {
		return fmt.Errorf("%q encrypts nothing", value)
	}
	return nil
}

// isNull: a cipher of the kernel that copies.
func isNull(cipher string) bool { return strings.Contains(strings.ToLower(cipher), "null") }

func isKeySize(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n <= 0 || n > maxKeyBits || n%8 != 0 {
		return fmt.Errorf("%q is not a number of bits, a multiple of 8 up to %d", value, maxKeyBits)
	}
	return nil
}

func isPBKDF(value string) error {
	all := []string{"argon2i", "argon2id", kindPBKDF2}
	if !slices.Contains(all, value) {
		return fmt.Errorf("%q is not one of %s", value, strings.Join(all, ", "))
	}
	return nil
}

func isCount(value string) error {
	if n, err := strconv.ParseInt(value, 10, 32); err != nil || n <= 0 {
		return fmt.Errorf("%q is not a number above 0", value)
	}
	return nil
}
