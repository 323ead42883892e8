package access

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// SessionLife is the longest life of a session: a working day.
	SessionLife = 12 * time.Hour
	// maxSessionToken keeps the cookie below the 4,096 bytes that browsers keep.
	maxSessionToken = 2800

	sessionID    = 16
	sessionStart = sessionID + 8
	// sessionPurpose is bound into every cookie, so that nothing else sealed with the key passes for
	// one.
	sessionPurpose = "ankole session 1"
	// pagePurpose is in every proof of a page, for the same reason.
	pagePurpose = "ankole page 1"
)

// Sessions make cookies out of tokens and back. A cookie is the token with an end, sealed with a
// key that only managers can read (Keyring): every manager can open it, nobody else can make or
// read one, and the API server judges the token at every use, so that a session ends with its
// token.
type Sessions struct {
	Keys *Keyring
	// Now gives the time; nil: time.Now.
	Now func() time.Time
}

func (s *Sessions) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// Begin returns the value of a cookie for a token that was found good, and when it ends.
func (s *Sessions) Begin(ctx context.Context, token string) (cookie string, end time.Time, err error) {
	if len(token) > maxSessionToken {
		return "", end, fmt.Errorf("%w: the token has %d bytes, a session can hold %d; take a smaller one, such as that "+
			"of a service account", ErrUnauthenticated, len(token), maxSessionToken)
	}
	now := s.now()
	end = now.Add(SessionLife)
	if expiry := Expiry(token); !expiry.IsZero() && expiry.Before(end) {
		end = expiry
	}
	end = end.Truncate(time.Second)
	keys, err := s.Keys.get(ctx, now, "")
	if err != nil {
		return "", end, err
	}
	aead, err := sealer(keys.key)
	if err != nil {
		return "", end, err
	}
	plain := make([]byte, sessionStart, sessionStart+len(token))
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+cap(plain)+aead.Overhead())
	for _, random := range [][]byte{plain[:sessionID], nonce} {
		_, _ = rand.Read(random) // it never fails
	}
	binary.BigEndian.PutUint64(plain[sessionID:], uint64(end.Unix()))
	plain = append(plain, token...)
	sealed := aead.Seal(nonce, nonce, plain, []byte(sessionPurpose))
	return base64.RawURLEncoding.EncodeToString(sealed), end, nil
}

// session is an opened cookie.
type session struct {
	id    string
	end   time.Time
	token string
}

// Token returns the token of a session that goes on, and when it ends.
func (s *Sessions) Token(ctx context.Context, cookie string) (token string, end time.Time, err error) {
	o, keys, err := s.open(ctx, cookie)
	if err != nil {
		return "", end, err
	}
	switch {
	case !s.now().Before(o.end):
		err = fmt.Errorf("%w: the session has expired; log in again", ErrUnauthenticated)
	case !keys.ended[o.id].IsZero():
		err = fmt.Errorf("%w: the session was ended; log in again", ErrUnauthenticated)
	}
	return o.token, o.end, err
}

// End ends a session on every manager, within keysFresh. One that cannot be opened has ended.
func (s *Sessions) End(ctx context.Context, cookie string) error {
	o, _, err := s.open(ctx, cookie)
	if err != nil || !s.now().Before(o.end) {
		return ignoreUnauthenticated(err)
	}
	return s.Keys.end(ctx, s.now(), o.id, o.end)
}

// Page returns what a page of this server shows when it opens a stream: only who may read answers
// has it, and pages of other sites may not. It holds for one cookie, or for requests without one,
// until the key of sessions changes.
func (s *Sessions) Page(ctx context.Context, cookie string) (string, error) {
	k, err := s.Keys.get(ctx, s.now(), "")
	if err != nil {
		return "", err
	}
	return pageProof(k.key, cookie), nil
}

// IsPage tells whether a proof is what Page returns for a cookie. A key that another manager has
// just made is looked for once.
func (s *Sessions) IsPage(ctx context.Context, cookie, proof string) (bool, error) {
	now, tried := s.now(), ""
	for {
		k, err := s.Keys.get(ctx, now, tried)
		if err != nil {
			return false, err
		}
		if hmac.Equal([]byte(pageProof(k.key, cookie)), []byte(proof)) {
			return true, nil
		}
		if tried != "" || k.version == "" {
			return false, nil
		}
		tried = k.version
	}
}

func pageProof(key []byte, cookie string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(pagePurpose + "\x00" + cookie))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// open unseals a cookie. A key that another manager has just made is looked for once.
func (s *Sessions) open(ctx context.Context, cookie string) (session, keys, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return session{}, keys{}, errNoSession
	}
	now, tried := s.now(), ""
	for {
		k, err := s.Keys.get(ctx, now, tried)
		if err != nil {
			return session{}, keys{}, err
		}
		if o, ok := unseal(k.key, sealed); ok {
			return o, k, nil
		}
		if tried != "" || k.version == "" {
			return session{}, keys{}, errNoSession
		}
		tried = k.version
	}
}

var errNoSession = fmt.Errorf("%w: the session is not known; log in again", ErrUnauthenticated)

func unseal(key, sealed []byte) (o session, ok bool) {
	aead, err := sealer(key)
	if err != nil || len(sealed) < aead.NonceSize() {
		return o, false
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(sessionPurpose))
	if err != nil || len(plain) < sessionStart {
		return o, false
	}
	end := binary.BigEndian.Uint64(plain[sessionID:sessionStart])
	return session{id: hex.EncodeToString(plain[:sessionID]), end: time.Unix(int64(end), 0),
		token: string(plain[sessionStart:])}, true
}

func sealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key of sessions: %w", err)
	}
	return cipher.NewGCM(block)
}
