package luks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// HeaderBytes is what the header takes at the beginning of a device or of an image; the ciphertext
// is behind it.
const HeaderBytes = 16 << 20

// Header is what a LUKS2 header says, in the form of luksDump.
type Header struct {
	// Keyslots are the keys that open it; none: luksFormat was cut short, or somebody has erased
	// them.
	Keyslots map[string]keySlot
	Tokens   map[string]json.RawMessage
	Segments map[string]segment
	Config   struct{ Requirements json.RawMessage }
}

// keySlot is a volume key that is encrypted with a key that is made of a passphrase.
type keySlot struct {
	Type string
	Size int `json:"key_size"` // of the volume key, in bytes
	Area struct {
		Encryption string
		Size       int `json:"key_size"`
	}
	KDF struct {
		Type                     string
		Iterations, Time, Memory int64 // memory in KiB
	}
}

// segment is a part of the device. Numbers of bytes are text in it.
type segment struct {
	Type, Offset, Size, Encryption string
	Tweak                          string `json:"iv_tweak"`
	SectorBytes                    int64  `json:"sector_size"`
	Integrity                      json.RawMessage
	Flags                          []string
}

// SectorBytes is the size of the units that are encrypted, of a header that Check has nothing
// against.
func (h *Header) SectorBytes() int64 { return h.Segments["0"].SectorBytes }

// restore ends the sentences about what nothing of ours and no cryptsetup has made.
const restore = "restore it from a backup or a snapshot of before, or remove the replicas that were changed"

// Check says what a header has that was not asked for, and what is to be done.
func (h *Header) Check(k Key) error {
	s := h.Segments["0"]
	switch {
	case len(h.Segments) != 1 || s.Type != "crypt" || s.Size != "dynamic" || s.Tweak != "0" || len(s.Flags) > 0 ||
		s.Offset != strconv.FormatInt(HeaderBytes, 10):
		return fmt.Errorf("%d segments, the first of type %q from byte %q, size %q, tweak %q, flags %q, and not one of "+
			"ciphertext from byte %d to the end of the device: end a reencryption that was begun on it, or %s",
			len(h.Segments), s.Type, s.Offset, s.Size, s.Tweak, s.Flags, HeaderBytes, restore)
	case s.Integrity != nil:
		return fmt.Errorf("a segment with integrity %s, which no driver makes: %s", s.Integrity, restore)
	case h.Config.Requirements != nil:
		return fmt.Errorf("requirements %s: end the reencryption that was begun on it, or %s", h.Config.Requirements, restore)
	case IsNullCipher(s.Encryption):
		return fmt.Errorf("cipher %s, which encrypts nothing: %s", s.Encryption, restore)
	case s.Encryption != fullCipher(k.Asked[OptionCipher]):
		return fmt.Errorf("cipher %s, and the Secret asks for %s: if it was made with the former, write it as %s "+
			"into the Secret; else %s", s.Encryption, fullCipher(k.Asked[OptionCipher]), SecretCipher, restore)
	case len(h.Tokens) > 0:
		return fmt.Errorf("tokens %v, and keys are in the Secret alone: cryptsetup token remove --token-id NUMBER DEVICE",
			slices.Sorted(maps.Keys(h.Tokens)))
	case len(h.Keyslots) != 1:
		return fmt.Errorf("key slots %v, and one is asked for: remove those that are not the Secret's, cryptsetup "+
			"luksKillSlot DEVICE NUMBER", slices.Sorted(maps.Keys(h.Keyslots)))
	}
	for _, slot := range h.Keyslots {
		return errors.Join(slot.checkArea(k), slot.checkCost(k))
	}
	return nil
}

// slotCipher is what cryptsetup encrypts a key slot with where the cipher of the data will not do.
const slotCipher = "aes-xts-plain64"

func (s *keySlot) checkArea(k Key) error {
	bits, err := strconv.Atoi(k.Asked[OptionSize])
	switch {
	case err != nil:
		return err
	case s.Type != "luks2":
		return fmt.Errorf("a key slot of type %q: %s", s.Type, restore)
	case s.Size*8 != bits:
		return fmt.Errorf("a key of %d bits, and the Secret asks for %d: if it was made with the former, write it "+
			"as %s into the Secret; else %s", s.Size*8, bits, SecretSize, restore)
	case s.Area.Encryption != fullCipher(k.Asked[OptionCipher]) && s.Area.Encryption != slotCipher:
		return fmt.Errorf("a key slot that is encrypted with %q: %s", s.Area.Encryption, restore)
	}
	return nil
}

// What cryptsetup makes at the least, and at the most where nothing else is asked for. A number of
// KiB is the most that it may take: it takes less on a slow machine, or one with little memory.
const (
	leastPBKDF2     = 1000
	leastTime       = 4
	leastMemoryKiB  = 64 << 10
	mostMemoryKiB   = 1 << 20
	changeKeyRemedy = "change the key with these numbers, cryptsetup luksChangeKey, or write those of the header into the " +
		"Secret"
)

// checkCost has what a passphrase is worth not fall below what was asked for. Kinds of argon2 are
// worth the same; they are above pbkdf2, which takes no memory.
func (s *keySlot) checkCost(k Key) error {
	asked, kind := k.Asked[OptionPBKDF], s.KDF.Type
	forced, most := k.Number(OptionIterations), max(k.Number(OptionMemory), mostMemoryKiB)
	times, least := s.KDF.Time, int64(leastTime)
	memory := int64(leastMemoryKiB)
	if given := k.Number(OptionMemory); given > 0 {
		memory = min(memory, given)
	}
	switch {
	case CheckPBKDF(kind) != nil:
		return fmt.Errorf("a key slot with PBKDF %q: %s", kind, restore)
	case kind == PBKDF2 && asked != PBKDF2:
		return fmt.Errorf("PBKDF %s, and the Secret asks for %s: %s", kind, asked, changeKeyRemedy)
	case kind == PBKDF2:
		times, least, memory = s.KDF.Iterations, leastPBKDF2, 0
	}
	if (kind == PBKDF2) == (asked == PBKDF2) {
		least = max(least, forced)
	}
	if times < least || s.KDF.Memory < memory || s.KDF.Memory > most {
		return fmt.Errorf("PBKDF %s with %d iterations and %d KiB, wanted are at least %d iterations and %d KiB, and at most "+
			"%d KiB: %s", kind, times, s.KDF.Memory, least, memory, most, changeKeyRemedy)
	}
	return nil
}

// fullCipher is what cryptsetup writes into a header for a cipher that it was given.
func fullCipher(asked string) string {
	name, mode, given := strings.Cut(asked, "-")
	if !given || mode == "plain" {
		return name + "-cbc-plain"
	}
	return asked
}
