package mtls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
	"ankole.storage/instancemanager/server"
	"ankole.storage/test/descriptors"
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
		if err := mtlstest.CallBy(t, address(t, good), mtlstest.Dialer(dir)); (err == nil) != row.ok {
			t.Errorf("%s as a client: %v", row.name, err)
		}
		if err := mtlstest.CallBy(t, address(t, dir), mtlstest.Dialer(good)); (err == nil) != row.ok {
			t.Errorf("%s as a server: %v", row.name, err)
		}
	}
	if err := mtlstest.Call(t, address(t, good), insecure.NewCredentials()); err == nil {
		t.Error("plaintext was served")
	}
	if err := mtlstest.CallBy(t, address(t, good), mtlstest.Dialer(t.TempDir())); err == nil {
		t.Error("a dialer without a certificate was served")
	}
	if err := mtlstest.Call(t, address(t, good), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})); err == nil {
		t.Error("a client without a certificate was served")
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if err := mtlstest.Call(t, address(t, good), credentials.NewTLS(old)); err == nil {
		t.Error("TLS 1.2 was served")
	}
}

// TestRenewedWithoutDescriptors: files that are renewed at a moment at which the process cannot
// open any are taken up when it can again. Nobody writes them a second time.
func TestRenewedWithoutDescriptors(t *testing.T) {
	first, second := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t)
	dir, renewed := t.TempDir(), t.TempDir()
	first.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	second.Write(t, renewed, mtlstest.Named(mtls.PeerName, ""))
	source, addr := serve(t, dir)
	second.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	restore := descriptors.None(t)
	problem := source.Problem()
	restore()
	if !errors.Is(problem, unix.EMFILE) {
		t.Fatalf("without descriptors: %v", problem)
	}
	if err := source.Problem(); err != nil {
		t.Error(err)
	}
	if err := mtlstest.CallBy(t, addr, mtlstest.Dialer(renewed)); err != nil {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
}

// TestRenewal: a running server takes up new files, and keeps the old ones while the new ones are
// unusable or gone.
func TestRenewal(t *testing.T) {
	first, second := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t)
	dir, old, renewed := t.TempDir(), t.TempDir(), t.TempDir()
	first.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	first.Write(t, old, mtlstest.Named(mtls.PeerName, ""))
	second.Write(t, renewed, mtlstest.Named(mtls.PeerName, ""))
	source, addr := serve(t, dir)
	expect := func(when string, ok bool, d string) {
		t.Helper()
		if err := mtlstest.CallBy(t, addr, mtlstest.Dialer(d)); (err == nil) != ok {
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
	told := func(want int) {
		t.Helper()
		if got := len(source.Changed()); got != want {
			t.Errorf("%d notices of a problem that has come or gone, want %d", got, want)
		}
	}
	told(1)
	<-source.Changed()
	if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	expect("with a file that is gone", true, old)
	if err := source.Problem(); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a secret that is gone is no problem, and the next start speaks plaintext: %v", err)
	}
	expect("plaintext, with a file that is gone", false, t.TempDir())
	second.Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	expect("renewed", true, renewed)
	expect("renewed, with what the old authority signed", false, old)
	if err := source.Problem(); err != nil {
		t.Errorf("good again: %v", err)
	}
	told(1)
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
	d := mtlstest.Dialer(mine)
	if err := mtlstest.CallBy(t, addr, d); err != nil {
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
	if err := mtlstest.CallBy(t, addr, d); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	if err := mtlstest.Call(t, addr, insecure.NewCredentials()); err == nil {
		t.Error("plaintext is still served")
	}
}

// TestNeverPlainAgain: a Pod that has shown a certificate, to whomever, is not spoken to in
// plaintext by anybody; another Pod at its address may be.
func TestNeverPlainAgain(t *testing.T) {
	a, good := mtlstest.NewAuthority(t), t.TempDir()
	a.Write(t, good, mtlstest.Named(mtls.PeerName, ""))
	secure, plain := address(t, good), address(t, t.TempDir())
	pods := &mtlstest.Pods{}
	pods.Replace("old")
	if err := mtlstest.CallBy(t, plain, mtlstest.Dialer(good, pods)); err != nil {
		t.Fatalf("a peer without TLS that never had it: %v", err)
	}
	pods.Replace("pod")
	if err := mtlstest.CallBy(t, secure, mtlstest.Dialer(good, pods)); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"the secret": good, "no secret": t.TempDir()} {
		_, err := mtlstest.Dialer(dir, pods).Dial(t.Context(), plain)
		if !errors.Is(err, mtls.ErrPlaintext) || !strings.Contains(err.Error(), plain) ||
			!strings.Contains(err.Error(), "Pod im (pod)") {
			t.Errorf("plaintext with a Pod that has shown a certificate to another dialer, by one with %s: %v", name, err)
		}
	}
	pods.Replace("another")
	d := mtlstest.Dialer(good, pods)
	if err := mtlstest.CallBy(t, plain, d); err != nil {
		t.Errorf("another Pod: %v", err)
	}
	// A certificate that is refused is no reason for plaintext: the peer speaks TLS.
	stranger := t.TempDir()
	mtlstest.NewAuthority(t).Write(t, stranger, mtlstest.Named(mtls.PeerName, ""))
	if c, err := d.Dial(t.Context(), address(t, stranger)); err == nil || errors.Is(err, mtls.ErrPlaintext) ||
		!strings.Contains(err.Error(), "certificate of the peer") {
		t.Errorf("a stranger's certificate: %v %v", c, err)
	}
}

// TestNotedBeforeItIsUsed: what cannot be judged is not dialled, and a first certificate that
// cannot be noted is not used.
func TestNotedBeforeItIsUsed(t *testing.T) {
	a, good := mtlstest.NewAuthority(t), t.TempDir()
	a.Write(t, good, mtlstest.Named(mtls.PeerName, ""))
	secure, plain := address(t, good), address(t, t.TempDir())
	broken := errors.New("the API server is down")
	expect := func(what, addr string, pods *mtlstest.Pods, want error) {
		t.Helper()
		c, err := mtlstest.Dialer(good, pods).Dial(t.Context(), addr)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if err == nil {
			_ = c.Close() // nothing was said on it
		}
	}
	expect("a Pod that cannot be looked up", secure, &mtlstest.Pods{AtErr: broken}, broken)
	expect("a Pod that cannot be looked up, plaintext", plain, &mtlstest.Pods{AtErr: broken}, broken)
	pods := &mtlstest.Pods{NoteErr: broken}
	expect("a first certificate that cannot be noted", secure, pods, broken)
	expect("plaintext is nothing to note", plain, pods, nil)
	pods.NoteErr = nil
	expect("when it can be noted", secure, pods, nil)
	pods.NoteErr = broken
	expect("what is noted need not be noted again", secure, pods, nil)
	expect("what is noted, plaintext", plain, pods, mtls.ErrPlaintext)
}

func TestFiles(t *testing.T) {
	empty, broken := t.TempDir(), t.TempDir()
	mtlstest.NewAuthority(t).Write(t, broken, mtlstest.Named(mtls.PeerName, ""))
	if err := os.WriteFile(filepath.Join(broken, "ca.crt"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": "", empty: "", filepath.Join(empty, "missing"): "",
		broken: "ca.crt holds no certificate"} {
		source, addr := serve(t, dir)
		if err := source.Problem(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", dir, err, want)
		}
		if err := mtlstest.CallBy(t, addr, mtlstest.Dialer(dir)); err != nil {
			t.Errorf("%q: plaintext: %v", dir, err)
		}
	}
	if err := mtlstest.CallBy(t, address(t, empty), nil); err != nil {
		t.Errorf("no dialer: %v", err)
	}
}
