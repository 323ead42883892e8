package mtls_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
)

// TestFetchedBeforeItsFiles: an instance manager has the secret's files, the manager has not yet.
// It fetches the secret instead of being refused, and tells of no problem; later its files count.
func TestFetchedBeforeItsFiles(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	theirs, mine := t.TempDir(), filepath.Join(t.TempDir(), "files")
	authority.Write(t, theirs, mtlstest.Named(mtls.PeerName, ""))
	secured, plain := address(t, theirs), address(t, t.TempDir())
	files := authority.Files(t, mtlstest.Named(mtls.PeerName, ""))

	source := mtls.Open(mine, quiet)
	var there bool
	var failure error
	source.FetchWith(func(context.Context) (authorities, cert, key []byte, err error) {
		if !there {
			return nil, nil, nil, failure
		}
		return files["ca.crt"], files["tls.crt"], files["tls.key"], nil
	})
	dialer := mtls.NewDialer(source, &mtlstest.Pods{}, quiet)
	if err := mtlstest.CallBy(t, plain, dialer); err != nil {
		t.Errorf("without a secret anywhere: %v", err)
	}
	if err := mtlstest.CallBy(t, secured, dialer); err == nil {
		t.Error("a server with a certificate was spoken to without one")
	}
	failure = errors.New("no API server")
	if _, err := dialer.Dial(t.Context(), plain); !errors.Is(err, failure) {
		t.Errorf("while nobody can say whether there is a secret: %v", err)
	}
	there = true
	if err := mtlstest.CallBy(t, secured, dialer); err != nil || source.Problem() != nil {
		t.Errorf("fetched: %v; problem %v", err, source.Problem())
	}

	// What comes by files takes its place: here, of an authority that the server does not know.
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	mtlstest.NewAuthority(t).Write(t, mine, mtlstest.Named(mtls.PeerName, ""))
	if err := mtlstest.CallBy(t, secured, dialer); err == nil || source.Problem() != nil {
		t.Errorf("with files of another authority: %v; problem %v", err, source.Problem())
	}
}

// TestFetchedUseless: a secret that cannot be used changes nothing, as with its files.
func TestFetchedUseless(t *testing.T) {
	source := mtls.Open(t.TempDir(), quiet)
	source.FetchWith(func(context.Context) (authorities, cert, key []byte, err error) {
		return []byte("x"), []byte("y"), []byte("z"), nil
	})
	if err := mtlstest.CallBy(t, address(t, t.TempDir()), mtls.NewDialer(source, &mtlstest.Pods{}, quiet)); err != nil {
		t.Error(err)
	}
}
