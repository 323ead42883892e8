package mtls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/instancemanager/mtls"
	"ankole.storage/instancemanager/mtls/mtlstest"
	"ankole.storage/instancemanager/server"
)

var quiet = slog.New(slog.DiscardHandler)

// serve serves health with the certificates of dir and returns the address.
func serve(t *testing.T, dir string) (*mtls.Source, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	source := mtls.Open(dir, quiet)
	s := server.New(source.Server())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
	return source, l.Addr().String()
}

func address(t *testing.T, dir string) string {
	t.Helper()
	_, a := serve(t, dir)
	return a
}

// check makes one connection and one call.
func check(t *testing.T, addr string, d *mtls.Dialer) error {
	t.Helper()
	return call(t, addr, insecure.NewCredentials(), grpc.WithContextDialer(d.Dial))
}

func call(t *testing.T, addr string, c credentials.TransportCredentials, options ...grpc.DialOption) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options, grpc.WithTransportCredentials(c))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func dialer(dir string) *mtls.Dialer { return mtls.NewDialer(mtls.Open(dir, quiet), quiet) }

// TestPeers is the table of who may talk to whom; each row is tried in both directions.
func TestPeers(t *testing.T) {
	ours, foreign := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t)
	good := t.TempDir()
	ours.Write(t, good, mtlstest.Named(mtls.PeerName, ""))
	for _, row := range []struct {
		name string
		by   *mtlstest.Authority
		ca   *mtlstest.Authority // in ca.crt; nil: by
		cert *x509.Certificate
		ok   bool
	}{
		{"DNS name", ours, nil, mtlstest.Named(mtls.PeerName, ""), true},
		{"common name", ours, nil, mtlstest.Named("", mtls.PeerName), true},
		{"another name", ours, nil, mtlstest.Named("example.com", "example.com"), false},
		{"another authority", foreign, nil, mtlstest.Named(mtls.PeerName, ""), false},
		{"signed by another authority", foreign, ours, mtlstest.Named(mtls.PeerName, ""), false},
		{"expired", ours, nil, mtlstest.Expired(mtls.PeerName), false},
	} {
		dir := t.TempDir()
		row.by.Write(t, dir, row.cert)
		if row.ca != nil {
			row.ca.Trust(t, dir)
		}
		if err := check(t, address(t, good), dialer(dir)); (err == nil) != row.ok {
			t.Errorf("%s as a client: %v", row.name, err)
		}
		if err := check(t, address(t, dir), dialer(good)); (err == nil) != row.ok {
			t.Errorf("%s as a server: %v", row.name, err)
		}
	}
	if err := call(t, address(t, good), insecure.NewCredentials()); err == nil {
		t.Error("plaintext was served")
	}
	if err := check(t, address(t, good), dialer(t.TempDir())); err == nil {
		t.Error("a dialer without a certificate was served")
	}
	if err := call(t, address(t, good), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})); err == nil {
		t.Error("a client without a certificate was served")
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if err := call(t, address(t, good), credentials.NewTLS(old)); err == nil {
		t.Error("TLS 1.2 was served")
	}
}

// TestRenewal: a running server takes up new files, and keeps the old ones while the new ones are unusable or gone.
func TestRenewal(t *testing.T) {
	first, second := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t)
	dir, old, renewed := t.TempDir(), t.TempDir(), t.TempDir()
	first.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	first.Write(t, old, mtlstest.Named(mtls.PeerName, ""))
	second.Write(t, renewed, mtlstest.Named(mtls.PeerName, ""))
	source, addr := serve(t, dir)
	expect := func(when string, ok bool, d string) {
		t.Helper()
		if err := check(t, addr, dialer(d)); (err == nil) != ok {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("at first", true, old)
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("with half renewed files", true, old)
	if err := source.Problem(); err == nil || !strings.Contains(err.Error(), "tls.key") {
		t.Errorf("half renewed files are no problem: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	expect("with a file that is gone", true, old)
	expect("plaintext, with a file that is gone", false, t.TempDir())
	second.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	expect("renewed", true, renewed)
	expect("renewed, with what the old authority signed", false, old)
	if err := source.Problem(); err != nil {
		t.Errorf("good again: %v", err)
	}
}

// TestAppears: a secret that comes later is used from then on, and ends what was plaintext.
func TestAppears(t *testing.T) {
	a, dir, mine := mtlstest.NewAuthority(t), t.TempDir(), t.TempDir()
	source, addr := serve(t, dir)
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatalf("plaintext without a secret: %v", err)
	}
	// One side has it first: its peer goes on in plaintext until it has it too.
	a.Write(t, mine, mtlstest.Named(mtls.PeerName, ""))
	d := dialer(mine)
	if err := check(t, addr, d); err != nil {
		t.Errorf("the server has no certificate yet: %v", err)
	}
	a.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	if source.Problem() != nil {
		t.Error("a problem with a good secret")
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if ctx.Err() != nil {
		t.Error("the connection of before goes on")
	}
	if err := check(t, addr, d); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	if err := call(t, addr, insecure.NewCredentials()); err == nil {
		t.Error("plaintext is still served")
	}
}

// TestNeverPlainAgain: a Pod that has shown a certificate is not spoken to in plaintext, another Pod at its address may be.
func TestNeverPlainAgain(t *testing.T) {
	a, good := mtlstest.NewAuthority(t), t.TempDir()
	a.Write(t, good, mtlstest.Named(mtls.PeerName, ""))
	secure, plain := address(t, good), address(t, t.TempDir())
	d := dialer(good)
	d.Pod("127.0.0.1", "old")
	if err := check(t, plain, d); err != nil {
		t.Fatalf("a peer without TLS that never had it: %v", err)
	}
	d.Pod("127.0.0.1", "pod")
	if err := check(t, secure, d); err != nil {
		t.Fatal(err)
	}
	d.Pod("127.0.0.1", "pod")
	if _, err := d.Dial(t.Context(), plain); !errors.Is(err, mtls.ErrPlaintext) || !strings.Contains(err.Error(), plain) {
		t.Errorf("plaintext with a Pod that has shown a certificate: %v", err)
	}
	d.Pod("127.0.0.1", "another")
	if err := check(t, plain, d); err != nil {
		t.Errorf("another Pod: %v", err)
	}
	// A certificate that is refused is no reason for plaintext: the peer speaks TLS.
	stranger := t.TempDir()
	mtlstest.NewAuthority(t).Write(t, stranger, mtlstest.Named(mtls.PeerName, ""))
	if c, err := d.Dial(t.Context(), address(t, stranger)); err == nil || errors.Is(err, mtls.ErrPlaintext) || !strings.Contains(err.Error(), "certificate of the peer") {
		t.Errorf("a stranger's certificate: %v %v", c, err)
	}
}

func TestFiles(t *testing.T) {
	empty, broken := t.TempDir(), t.TempDir()
	mtlstest.NewAuthority(t).Write(t, broken, mtlstest.Named(mtls.PeerName, ""))
	if err := os.WriteFile(filepath.Join(broken, "ca.crt"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": "", empty: "", filepath.Join(empty, "missing"): "", broken: "ca.crt holds no certificate"} {
		source, addr := serve(t, dir)
		if err := source.Problem(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", dir, err, want)
		}
		if err := check(t, addr, dialer(dir)); err != nil {
			t.Errorf("%q: plaintext: %v", dir, err)
		}
	}
	if err := check(t, address(t, empty), nil); err != nil {
		t.Errorf("no dialer: %v", err)
	}
}
