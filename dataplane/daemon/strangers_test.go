package daemon

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
)

// counting is an engine that counts what reaches it.
type counting struct {
	enginev1.UnimplementedEngineServer
	calls, streams int
}

func (c *counting) CloneSource(context.Context, *enginev1.CloneSourceRequest) (*enginev1.CloneGrant, error) {
	c.calls++
	return &enginev1.CloneGrant{}, nil
}

func (c *counting) Watch(_ *enginev1.GetRequest, out grpc.ServerStreamingServer[enginev1.State]) error {
	c.streams++
	return out.Send(&enginev1.State{})
}

// TestStrangersAtAControlInterface: whoever has no certificate of the installation reaches no
// method of an engine, in plaintext, with a certificate of his own, or over a connection from
// before there were any.
func TestStrangersAtAControlInterface(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	dir, foreign := t.TempDir(), t.TempDir()
	mtlstest.NewAuthority(t).Write(t, foreign, mtlstest.Named(mtls.PeerName, ""))
	e, address := &counting{}, freeAddress(t)
	source := mtls.Open(dir, quiet)
	s, err := serveControl(address, identity{"vol", "e"}, source, true, func(s *grpc.Server) {
		enginev1.RegisterEngineServer(s, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cut)
	dial := func(how func(context.Context, string) (net.Conn, error)) enginev1.EngineClient {
		t.Helper()
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(how))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return enginev1.NewEngineClient(conn)
	}
	plain := func(ctx context.Context, a string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", a)
	}
	ask := func(c enginev1.EngineClient) error {
		_, err := c.CloneSource(t.Context(), &enginev1.CloneSourceRequest{Snapshot: "s", ForVolumeUuid: "u"})
		return err
	}
	watch := func(c enginev1.EngineClient) error {
		stream, err := c.Watch(t.Context(), &enginev1.GetRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	early, earlyWatch := dial(plain), dial(plain)
	if err := ask(early); err != nil || watch(earlyWatch) != nil {
		t.Fatal("without certificates everybody is answered: ", err)
	}
	before := *e
	source.Require() // as an engine is told that must not speak plaintext
	for _, how := range []func(context.Context, string) (net.Conn, error){plain, source.DialInstance,
		mtls.Open(foreign, quiet).DialInstance} {
		if err := ask(dial(how)); status.Code(err) != codes.Unavailable {
			t.Error("before there is a certificate: ", err)
		}
	}
	mtlstest.NewAuthority(t).Write(t, dir, mtlstest.Named(mtls.PeerName, ""))
	for name, c := range map[string]enginev1.EngineClient{
		"in plaintext": dial(plain), "with a certificate of his own": dial(mtls.Open(foreign, quiet).DialInstance),
		"over a connection from before": early, "over another one from before": earlyWatch,
	} {
		if err := ask(c); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if err := watch(c); status.Code(err) != codes.Unavailable {
			t.Errorf("%s, a stream: %v", name, err)
		}
	}
	if e.calls != before.calls || e.streams != before.streams {
		t.Errorf("%d calls and %d streams of strangers reached the engine", e.calls-before.calls, e.streams-before.streams)
	}
	peer := dial(mtls.Open(dir, quiet).DialInstance)
	if err := ask(peer); err != nil || watch(peer) != nil {
		t.Errorf("whoever belongs to the installation: %v", err)
	}
}

// TestOrdersOfAnotherNode is the table of what the processes of other nodes may call.
func TestOrdersOfAnotherNode(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	of := func(names ...string) *mtls.Source {
		dir := t.TempDir()
		authority.Write(t, dir, &x509.Certificate{DNSNames: names})
		return mtls.Open(dir, slog.New(slog.DiscardHandler))
	}
	node, users := of(mtls.PeerName, mtls.NodeName), of(mtls.PeerName)
	own := &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 10000}
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 40000} }
	for _, row := range []struct {
		name   string
		has    *mtls.Source
		from   net.Addr
		method string
		ok     bool
	}{
		{"this Pod", node, at("10.0.0.1"), enginev1.Engine_SnapshotCreate_FullMethodName, true},
		{"this machine", node, at("127.0.0.1"), enginev1.Engine_SnapshotCreate_FullMethodName, true},
		{"another node", node, at("10.0.0.2"), enginev1.Engine_SnapshotCreate_FullMethodName, false},
		{"another node reads", node, at("10.0.0.2"), enginev1.Engine_CloneSource_FullMethodName, false},
		{"another node watches", node, at("10.0.0.2"), enginev1.Engine_Watch_FullMethodName, false},
		{"another node asks for health", node, at("10.0.0.2"), healthv1.Health_Check_FullMethodName, true},
		{"a stand-in", node, at("10.0.0.2"), enginev1.Engine_StandIn_FullMethodName, true},
		{"an address of another kind", node, &net.UnixAddr{Name: "x"}, enginev1.Engine_Get_FullMethodName, false},
		{"a user's certificate, which is one for all", users, at("10.0.0.2"), enginev1.Engine_Get_FullMethodName, true},
		{"without certificates", nil, at("10.0.0.2"), enginev1.Engine_Get_FullMethodName, true},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: row.from, LocalAddr: own, AuthInfo: credentials.TLSInfo{}})
		err := admission{identity{"vol", "e"}, row.has}.admit(ctx, row.method)
		if row.ok && err != nil || !row.ok && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, want it admitted: %t", row.name, err, row.ok)
		}
	}
}
