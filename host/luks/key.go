package luks

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Keys of the Secret of encrypted volumes and backing images, as in the reference.
const (
	SecretValue      = "CRYPTO_KEY_VALUE"
	SecretProvider   = "CRYPTO_KEY_PROVIDER"
	SecretCipher     = "CRYPTO_KEY_CIPHER"
	SecretHash       = "CRYPTO_KEY_HASH"
	SecretSize       = "CRYPTO_KEY_SIZE"
	SecretPBKDF      = "CRYPTO_PBKDF"
	SecretIterations = "CRYPTO_PBKDF_FORCE_ITERATIONS"
	SecretMemory     = "CRYPTO_PBKDF_MEMORY"
)

// PBKDF2 is the one kind of PBKDF that takes no memory.
const PBKDF2 = "pbkdf2"

// maxKeyBits bounds the size of a volume key; the largest of a cipher that the kernel has is 512.
const maxKeyBits = 4096

// Key opens an encrypted device, and says how one that is new is formatted.
type Key struct {
	// Value is the passphrase.
	Value string
	// Format are the arguments of luksFormat.
	Format []string
	// Asked are their values by name.
	Asked map[string]string
}

// Options of luksFormat that a header is compared with.
const (
	OptionCipher     = "cipher"
	OptionSize       = "key-size"
	OptionPBKDF      = "pbkdf"
	OptionIterations = "pbkdf-force-iterations"
	OptionMemory     = "pbkdf-memory"
)

// Number is the value of an option that may be missing, which is 0.
func (k *Key) Number(option string) int64 {
	n, err := strconv.ParseInt(k.Asked[option], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// cipherName is what cryptsetup takes for a cipher or a hash, such as
// capi:xts(aes)-plain64.
var cipherName = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9:_.()-]*$`)

// ReadKey reads a Secret. The passphrase is in no error.
func ReadKey(secrets map[string]string) (k Key, err error) {
	if k.Value = secrets[SecretValue]; k.Value == "" {
		return k, fmt.Errorf("the Secret has no %s", SecretValue)
	}
	if provider := cmp.Or(secrets[SecretProvider], "secret"); provider != "secret" {
		return k, fmt.Errorf("%s of the Secret: %q is not known; use secret", SecretProvider, provider)
	}
	k.Asked = map[string]string{}
	for _, o := range []struct {
		name, option, fallback string
		judge                  func(string) error
	}{
		{SecretCipher, OptionCipher, "aes-xts-plain64", isCipher}, {SecretHash, "hash", "sha256", isCipher},
		{SecretSize, OptionSize, "256", isKeySize}, {SecretPBKDF, OptionPBKDF, "argon2i", CheckPBKDF},
		{SecretIterations, OptionIterations, "", isCount}, {SecretMemory, OptionMemory, "", isCount},
	} {
		value := cmp.Or(strings.TrimSpace(secrets[o.name]), o.fallback)
		if value == "" {
			continue
		}
		if err := o.judge(value); err != nil {
			return k, fmt.Errorf("%s of the Secret: %v", o.name, err)
		}
		k.Asked[o.option] = value
		k.Format = append(k.Format, "--"+o.option+"="+value)
	}
	return k, nil
}

func isCipher(value string) error {
	if !cipherName.MatchString(value) {
		return fmt.Errorf("%q is no name of a cipher or hash", value)
	}
	if IsNullCipher(value) {
		return fmt.Errorf("%q encrypts nothing", value)
	}
	return nil
}

// IsNullCipher: a cipher of the kernel that copies.
func IsNullCipher(cipher string) bool { return strings.Contains(strings.ToLower(cipher), "null") }

func isKeySize(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n <= 0 || n > maxKeyBits || n%8 != 0 {
		return fmt.Errorf("%q is not a number of bits, a multiple of 8 up to %d", value, maxKeyBits)
	}
	return nil
}

// CheckPBKDF says what is wrong with the name of a PBKDF; nil: cryptsetup has it.
func CheckPBKDF(value string) error {
	all := []string{"argon2i", "argon2id", PBKDF2}
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
