package daemon

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/dataplane/backingimage/service"
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

// TestWhoMayUpload: a controller. A node, whose manager takes the file over, neither makes it nor
// ends the data source before.
func TestWhoMayUpload(t *testing.T) {
	t.Parallel()
	authority := mtlstest.NewAuthority(t)
	own, ip := t.TempDir(), newIP()
	authority.Write(t, own, &x509.Certificate{DNSNames: []string{mtls.PeerName, mtls.NodeName}})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- RunSource(ctx, Config{Listen: ip + ":8000", SyncListen: ip + ":8001", Root: t.TempDir(), TLSDir: own,
			Source: service.SourceConfig{ID: id, Type: service.TypeUpload}}, quiet)
	}()
	as := func(role string) *http.Client {
		dir := t.TempDir()
		authority.Write(t, dir, &x509.Certificate{DNSNames: []string{mtls.PeerName, role}})
		tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return mtls.Open(dir, quiet).DialInstance(ctx, address)
		}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	controller, node := as(mtls.ControllerName), as(mtls.NodeName)
	wait.Until(t, "the data source answers", func() bool {
		r, err := controller.Get("http://" + ip + ":8000/v1/file")
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
	for _, tt := range []struct {
		name   string
		client *http.Client
		action string
		status int
	}{
		{"a node uploads", node, "upload&size=4096", http.StatusForbidden},
		{"a controller uploads", controller, "upload&size=4096", http.StatusOK},
		{"a node has it transferred", node, "transfer", http.StatusConflict},
	} {
		form, contentType := chunk(t, 4096)
		r, err := tt.client.Post("http://"+ip+":8000/v1/file?action="+tt.action, contentType, form)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		_ = r.Body.Close()
		if r.StatusCode != tt.status {
			t.Errorf("%s: %s, want %d", tt.name, r.Status, tt.status)
		}
	}
	stop()
	if err := wait.Receive(t, "the end", over); err != nil {
		t.Error(err)
	}
}

// chunk is the form of an upload.
func chunk(t *testing.T, size int) (form io.Reader, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("chunk", "blob")
	if err == nil {
		_, err = part.Write(make([]byte, size))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &b, w.FormDataContentType()
}

// TestHandshakeIsEnded: a server that ends does not wait for a connection that says nothing.
func TestHandshakeIsEnded(t *testing.T) {
	t.Parallel()
	authority, own := mtlstest.NewAuthority(t), t.TempDir()
	authority.Write(t, own, &x509.Certificate{DNSNames: []string{mtls.PeerName, mtls.NodeName}})
	client, server := net.Pipe()
	defer client.Close()
	h := &handshaking{Conn: patient{server}, secure: mtls.Open(own, quiet).Server()}
	reads := make(chan error, 1)
	go func() {
		_, err := h.Read(make([]byte, 1))
		reads <- err
	}()
	// The server is in the handshake once it has read a byte.
	if _, err := client.Write([]byte{22}); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	if err := wait.Receive(t, "the connection is closed", closed); err != nil {
		t.Error(err)
	}
	if err := wait.Receive(t, "the end of the read", reads); err == nil {
		t.Error("something was read")
	}
}

// patient is a connection that waits for ever.
type patient struct{ net.Conn }

// SetDeadline implements net.Conn.
func (patient) SetDeadline(time.Time) error { return nil }

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
