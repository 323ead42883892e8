package service

import (
	"context"
	"fmt"
	"net/http"

	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/backingimage/crypt"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/host/luks"
)

// What becomes of a clone's encryption.
const (
	encryptionIgnore  = "ignore"
	encryptionEncrypt = "encrypt"
	encryptionDecrypt = "decrypt"
)

// recoded says whether the file is to be encrypted or decrypted, once it has come.
func (cfg *SourceConfig) recoded() bool {
	e := cfg.Parameters[parameterEncryption]
	return cfg.Type == TypeClone && (e == encryptionEncrypt || e == encryptionDecrypt)
}

// takeKey takes the key from an order. Nobody can send before: the order's answer has the token.
func (s *Source) takeKey(w http.ResponseWriter, q *http.Request) error {
	var order struct {
		Credentials map[string]string `json:"credentials"`
	}
	if err := readOrder(w, q, &order); err != nil {
		return err
	}
	k, err := crypt.Key(order.Credentials)
	if err != nil {
		return fmt.Errorf("%w: %w", source.ErrRefused, err)
	}
	s.key.Store(&k)
	return nil
}

// recode encrypts or decrypts a file that has come, after it was found to be what was sent.
func (s *Source) recode(ctx context.Context, making *store.Making, sent string) error {
	told := func(int64) error { return ctx.Err() }
	k := s.key.Load()
	sum, size, info, err := making.Inspect(told)
	switch {
	case err != nil:
		return err
	case sent != "" && sum != sent:
		return fmt.Errorf("%w: it has SHA-512 %s, and not %s as its sender has it", store.ErrDamaged, sum, sent)
	case s.cfg.Parameters[parameterEncryption] == encryptionDecrypt:
		return decrypt(ctx, making, size, *k, told)
	case info.Format != content.Raw:
		return fmt.Errorf("%w: it has format %s, and a volume on it would read that and not its content; encrypt a raw image",
			content.ErrRefused, info.Format)
	}
	return encrypt(ctx, making, *k, told)
}

func encrypt(ctx context.Context, making *store.Making, k luks.Key, told func(int64) error) error {
	header, c, err := crypt.Format(ctx, k)
	if err != nil {
		return err
	}
	defer header.Close() // it is memory
	if err := making.Move(luks.HeaderBytes, c.Encrypt, told); err != nil {
		return err
	}
	return making.SetHead(header.Reader(), luks.HeaderBytes)
}

func decrypt(ctx context.Context, making *store.Making, size int64, k luks.Key, told func(int64) error) error {
	if size <= luks.HeaderBytes {
		return fmt.Errorf("%w: it has %d bytes, and a LUKS2 header takes %d", content.ErrRefused, size,
			int64(luks.HeaderBytes))
	}
	c, err := crypt.Open(ctx, k, making)
	if err != nil {
		return err
	}
	if err := c.Fits(size - luks.HeaderBytes); err != nil {
		return fmt.Errorf("%w: %w", content.ErrRefused, err)
	}
	return making.Move(-luks.HeaderBytes, c.Decrypt, told)
}
