package mtls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
)

// TestDialInstance is the table of what is spoken with an instance, by what the two sides have.
func TestDialInstance(t *testing.T) {
	ours, foreign := t.TempDir(), t.TempDir()
	mtlstest.NewAuthority(t).Write(t, ours, mtlstest.Named(mtls.PeerName, ""))
	mtlstest.NewAuthority(t).Write(t, foreign, mtlstest.Named(mtls.PeerName, ""))
	empty := t.TempDir()
	for _, row := range []struct {
		name, client, server, want string
	}{
		{"both", ours, ours, ""},
		{"nobody", empty, empty, ""},
		{"an instance of an older version, on this host", ours, empty, ""},
		{"only the instance", empty, ours, "connection"},
		{"another authority's", foreign, ours, "certificate"},
	} {
		source := mtls.Open(row.client, quiet)
		err := mtlstest.Call(t, address(t, row.server), insecure.NewCredentials(),
			grpc.WithContextDialer(source.DialInstance))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// TestPlaintextStaysOnThisHost: what speaks no TLS on another host may be anybody.
func TestPlaintextStaysOnThisHost(t *testing.T) {
	for _, row := range []struct {
		own, peer string
		want      bool
	}{
		{"10.42.0.7", "10.42.0.7", true},
		{"127.0.0.1", "127.0.1.2", true},
		{"fd00::7", "fd00::7", true},
		{"10.42.0.7", "10.42.1.7", false},
		{"fd00::7", "fd00::8", false},
	} {
		if got := mtls.SameHost(from(row.own, row.peer)); got != row.want {
			t.Errorf("from %s to %s: %t", row.own, row.peer, got)
		}
	}
	dir := t.TempDir()
	mtlstest.NewAuthority(t).Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	mtls.SetSameHost(t, func(net.Conn) bool { return false })
	source := mtls.Open(dir, quiet)
	older := address(t, t.TempDir())
	if c, err := source.DialInstance(t.Context(), older); !errors.Is(err, mtls.ErrPlaintext) || c != nil {
		t.Errorf("an instance of another host that speaks no TLS: %v", err)
	}
	c, err := source.DialAnyInstance(t.Context(), older)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

type between struct {
	net.Conn
	own, peer net.Addr
}

func (b between) LocalAddr() net.Addr  { return b.own }
func (b between) RemoteAddr() net.Addr { return b.peer }

func from(own, peer string) net.Conn {
	return between{nil, &net.TCPAddr{IP: net.ParseIP(own)}, &net.TCPAddr{IP: net.ParseIP(peer)}}
}

// TestPermit: a connection that was made before there was a certificate does nothing more.
func TestPermit(t *testing.T) {
	dir := t.TempDir()
	source := mtls.Open(dir, quiet)
	if err := source.Permit(context.Background()); err != nil {
		t.Error(err)
	}
	if err := (*mtls.Source)(nil).Permit(context.Background()); err != nil {
		t.Error(err)
	}
	mtlstest.NewAuthority(t).Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	if err := source.Permit(context.Background()); err == nil {
		t.Error("a plaintext connection goes on")
	}
}

// TestPermitOrder: where certificates tell nodes from controllers, who cannot show that he is a
// controller gives no order.
func TestPermitOrder(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	holding := func(names ...string) *mtls.Source {
		dir := t.TempDir()
		authority.Write(t, dir, &x509.Certificate{DNSNames: names})
		return mtls.Open(dir, quiet)
	}
	by := func(names ...string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{
			State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: names}}}}})
	}
	node, users := holding(mtls.PeerName, mtls.NodeName), holding(mtls.PeerName)
	nameless := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{}})
	for _, tt := range []struct {
		name string
		own  *mtls.Source
		ctx  context.Context
		want codes.Code
	}{
		{"a controller", node, by(mtls.PeerName, mtls.ControllerName), codes.OK},
		{"another node", node, by(mtls.PeerName, mtls.NodeName), codes.PermissionDenied},
		{"a user's certificate", node, by(mtls.PeerName), codes.PermissionDenied},
		{"no certificate shown", node, nameless, codes.PermissionDenied},
		{"a peer that is not known", node, t.Context(), codes.Unavailable},
		{"a user's certificate for all", users, by(mtls.PeerName), codes.OK},
		{"no certificate anywhere", mtls.Open(t.TempDir(), quiet), t.Context(), codes.OK},
		{"nothing looked for", nil, t.Context(), codes.OK},
	} {
		if got := status.Code(tt.own.PermitOrder(tt.ctx)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
