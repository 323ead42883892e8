package daemon

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
	"ankole.storage/test/wait"
)

// TestWhoMayOrder: controllers may everything; a node may have an image sent, and nothing else; a
// stranger, with another authority or without a certificate, is not answered.
func TestWhoMayOrder(t *testing.T) {
	t.Parallel()
	authority, other := mtlstest.NewAuthority(t), mtlstest.NewAuthority(t)
	of := func(a *mtlstest.Authority, role string) *mtls.Source {
		dir := t.TempDir()
		a.Write(t, dir, &x509.Certificate{DNSNames: []string{mtls.PeerName, role}})
		return mtls.Open(dir, quiet)
	}
	own := t.TempDir()
	authority.Write(t, own, &x509.Certificate{DNSNames: []string{mtls.PeerName, mtls.NodeName}})
	ip := newIP()
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- RunManager(ctx, Config{Listen: ip + ":8000", SyncListen: ip + ":8001", Root: t.TempDir(),
			PortRange: "30001-30008",
			TLSDir:    own}, quiet)
	}()
	for _, tt := range []struct {
		name          string
		dial          func(context.Context, string) (net.Conn, error)
		delete, send  codes.Code
		listed, first bool
	}{
		{name: "controller", dial: of(authority, mtls.ControllerName).DialInstance, delete: codes.OK, send: codes.NotFound,
			listed: true,
			first:  true},
		{name: "node", dial: of(authority, mtls.NodeName).DialInstance, delete: codes.PermissionDenied, send: codes.NotFound},
		{name: "stranger", dial: of(other, mtls.ControllerName).DialInstance, delete: codes.Unavailable,
			send: codes.Unavailable},
		{name: "plaintext", dial: (*mtls.Source)(nil).DialInstance, delete: codes.Unavailable, send: codes.Unavailable},
	} {
		conn, err := grpc.NewClient("passthrough:///"+ip+":8000", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(tt.dial))
		if err != nil {
			t.Fatal(err)
		}
		client := bimrpc.NewBackingImageManagerServiceClient(conn)
		remove := func() codes.Code {
			_, err := client.Delete(t.Context(), &bimrpc.DeleteRequest{Name: id.Name, Uuid: id.UUID})
			return status.Code(err)
		}
		if tt.first {
			wait.Until(t, "the manager answers", func() bool { return remove() == codes.OK })
		}
		if got := remove(); got != tt.delete {
			t.Errorf("%s: delete: %s, want %s", tt.name, got, tt.delete)
		}
		_, err = client.Send(t.Context(), &bimrpc.SendRequest{Name: id.Name, Uuid: id.UUID, ToAddress: ip + ":30001"})
		if status.Code(err) != tt.send {
			t.Errorf("%s: send: %v, want %s", tt.name, err, tt.send)
		}
		if got := lists(t, ip, tt.dial); got != tt.listed {
			t.Errorf("%s: files are listed: %v", tt.name, got)
		}
		_ = conn.Close()
	}
	stop()
	if err := wait.Receive(t, "the end", over); err != nil {
		t.Error(err)
	}
}

// lists tells whether the interface for files answers.
func lists(t *testing.T, ip string, dial func(context.Context, string) (net.Conn, error)) bool {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return dial(ctx, address)
	}}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get("http://" + ip + ":8001/v1/files")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// TestNoCertificateYet: nobody is answered before there is one.
func TestNoCertificateYet(t *testing.T) {
	t.Parallel()
	ip := newIP()
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	cfg := Config{Listen: ip + ":8000", SyncListen: ip + ":8001", Root: t.TempDir(), PortRange: "30001-30008",
		TLSDir: t.TempDir()}
	go func() { over <- RunManager(ctx, cfg, quiet) }()
	wait.For(t, "it listens", func() error {
		conn, err := net.Dial("tcp", ip+":8001")
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	if lists(t, ip, (*mtls.Source)(nil).DialInstance) {
		t.Error("files are listed")
	}
	stop()
	if err := wait.Receive(t, "the end", over); err != nil {
		t.Error(err)
	}
}
