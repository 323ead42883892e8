package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/source"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/qcow2"
	"ankole.storage/host/listener"
)

// Parameters of exports, and the types of file that they make.
const (
	parameterVolume   = "volume-name"
	parameterSnapshot = "snapshot-name"
	parameterFileType = "file-type"

	fileRaw   = "raw"
	fileQCOW2 = "qcow2"
)

// Receiver is where a volume's engine sends a snapshot, and the token that it has to show.
type Receiver struct {
	Address string `json:"address"`
	Token   string `json:"token"`
}

// checkExport says what is missing for an export.
func (cfg *SourceConfig) checkExport() error {
	switch t := cfg.Parameters[parameterFileType]; {
	case t != fileRaw && t != fileQCOW2:
		return fmt.Errorf("source type %s: parameter %s is %.40q; %s and %s are possible", TypeExport, parameterFileType, t,
			fileRaw, fileQCOW2)
	case cfg.Receive == "":
		return errors.New("an export needs an address where the volume's content is received")
	}
	return nil
}

// export is the maker of a file that a volume's engine sends, once somebody has ordered it to.
func (s *Source) export(ctx context.Context, run files.Run) (backingimage.Record, error) {
	run.Waits(fmt.Sprintf("the engine of volume %s is to send snapshot %s", s.cfg.Parameters[parameterVolume],
		s.cfg.Parameters[parameterSnapshot]))
	making, err := s.disk.Create(backingimage.InSource(s.disk.Root(), s.cfg.ID), s.cfg.ID.UUID)
	if err != nil {
		return backingimage.Record{}, err
	}
	to, finish := ssync.Target(making), func() error { return nil }
	if s.cfg.Parameters[parameterFileType] == fileQCOW2 {
		w := qcow2.NewWriter(making)
		to, finish = w, w.Finish
	}
	err = s.await(ctx, run, to)
	if err == nil {
		err = finish()
	}
	if err != nil {
		return backingimage.Record{}, errors.Join(fmt.Errorf("snapshot %s of volume %s: %w",
			s.cfg.Parameters[parameterSnapshot], s.cfg.Parameters[parameterVolume], err), making.Abort())
	}
	return making.PublishRead(s.cfg.Checksum, func(int64) error { return ctx.Err() })
}

// await receives what an engine sends. When it returns nothing writes to the file.
func (s *Source) await(ctx context.Context, run files.Run, to ssync.Target) error {
	l, err := listener.Listen(ctx, "tcp", s.cfg.Receive)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", s.cfg.Receive, err)
	}
	at := Receiver{Address: l.Addr().String(), Token: rand.Text()}
	r := ssync.NewReceiver(to, at.Token, 0, func(done, total int64) {
		run.Begun()
		run.Received(done, total)
	})
	r.Patient = true
	_, err = receive(ctx, l, r, s.cfg.Log, func() error {
		s.receiver.Store(&at)
		return nil
	})
	s.receiver.Store(nil)
	return err
}

// receive tells where the content is to be sent.
func (s *Source) receive() (*Receiver, error) {
	if s.cfg.Type != TypeExport {
		return nil, fmt.Errorf("%w: this image is made by a %s, not of a volume", source.ErrRefused, s.cfg.Type)
	}
	r, state := s.receiver.Load(), s.status()
	if r == nil {
		return nil, fmt.Errorf("%w: nothing is received: the file is %s %s", files.ErrConflict, state.State, state.Message)
	}
	return r, nil
}
