package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/qcow2"
	"ankole.storage/host/listener"
)

// Parameters of exports and clones, and the types of file that exports make.
const (
	parameterVolume     = "volume-name"
	parameterSnapshot   = "snapshot-name"
	parameterFileType   = "file-type"
	parameterImage      = "backing-image"
	parameterEncryption = "encryption"

	fileRaw   = "raw"
	fileQCOW2 = "qcow2"
)

// received says whether somebody sends the file here.
func (cfg *SourceConfig) received() bool { return cfg.Type == TypeExport || cfg.Type == TypeClone }

// Receiver is where the file is to be sent, and the token that its sender has to show.
type Receiver struct {
	Address string `json:"address"`
	Token   string `json:"token"`
}

// checkSent says what is missing for a file that somebody sends.
func (cfg *SourceConfig) checkSent() error {
	switch t := cfg.Parameters[parameterFileType]; {
	case cfg.Type == TypeExport && t != fileRaw && t != fileQCOW2:
		return fmt.Errorf("source type %s: parameter %s is %.40q; %s and %s are possible", TypeExport, parameterFileType, t,
			fileRaw, fileQCOW2)
	case cfg.Type == TypeClone && !slices.Contains([]string{"", encryptionIgnore, encryptionEncrypt, encryptionDecrypt},
		cfg.Parameters[parameterEncryption]):
		return fmt.Errorf("source type %s: parameter %s is %.40q; %s, %s and %s are possible", TypeClone, parameterEncryption,
			cfg.Parameters[parameterEncryption], encryptionIgnore, encryptionEncrypt, encryptionDecrypt)
	case cfg.Receive == "":
		return fmt.Errorf("source type %s needs an address where the content is received", cfg.Type)
	}
	return nil
}

// sent names what comes.
func (cfg *SourceConfig) sent() string {
	if cfg.Type == TypeClone {
		return "backing image " + cfg.Parameters[parameterImage]
	}
	return "snapshot " + cfg.Parameters[parameterSnapshot] + " of volume " + cfg.Parameters[parameterVolume]
}

// receiveFile is the maker of a file that a volume's engine or another disk's manager sends, once
// somebody has ordered it to. What is cloned stays in the format that it has, but for encryption.
func (s *Source) receiveFile(ctx context.Context, run files.Run) (backingimage.Record, error) {
	run.Waits(s.cfg.sent() + " is to be sent")
	making, err := s.disk.Create(backingimage.InSource(s.disk.Root(), s.cfg.ID), s.cfg.ID.UUID)
	if err != nil {
		return backingimage.Record{}, err
	}
	defer s.key.Store(nil) // whatever becomes of the file
	to, finish := ssync.Target(making), func() error { return nil }
	if s.cfg.Parameters[parameterFileType] == fileQCOW2 {
		w := qcow2.NewWriter(making)
		to, finish = w, w.Finish
	}
	sum, err := s.await(ctx, run, to)
	if err == nil {
		err = finish()
	}
	if err == nil && s.cfg.recoded() {
		sum, err = "", s.recode(ctx, making, sum)
	}
	if err != nil {
		return backingimage.Record{}, errors.Join(fmt.Errorf("%s: %w", s.cfg.sent(), err), making.Abort())
	}
	return making.PublishRead(cmp.Or(s.cfg.Checksum, sum), func(int64) error { return ctx.Err() })
}

// await receives what is sent, and returns the checksum that the sender tells, if it tells one.
// When it returns nothing writes to the file.
func (s *Source) await(ctx context.Context, run files.Run, to ssync.Target) (string, error) {
	l, err := listener.Listen(ctx, "tcp", s.cfg.Receive)
	if err != nil {
		return "", fmt.Errorf("listen at %s: %w", s.cfg.Receive, err)
	}
	at := Receiver{Address: l.Addr().String(), Token: rand.Text()}
	r := ssync.NewReceiver(to, at.Token, 0, func(done, total int64) {
		run.Begun()
		run.Received(done, total)
	})
	r.Patient = true
	sum, err := receive(ctx, l, r, s.cfg.Log, func() error {
		s.receiver.Store(&at)
		return nil
	})
	s.receiver.Store(nil)
	return sum, err
}

// receive tells where the content is to be sent. Who orders that brings the key of a clone that is
// encrypted or decrypted.
func (s *Source) receive(w http.ResponseWriter, q *http.Request) error {
	if !s.cfg.received() {
		return fmt.Errorf("%w: this image is made by a %s, and nobody sends it", source.ErrRefused, s.cfg.Type)
	}
	r, state := s.receiver.Load(), s.status()
	if r == nil {
		return fmt.Errorf("%w: nothing is received: the file is %s %s", files.ErrConflict, state.State, state.Message)
	}
	if s.cfg.recoded() {
		if err := s.takeKey(w, q); err != nil {
			return err
		}
	}
	writeJSON(w, r)
	return nil
}
