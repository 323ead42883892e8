package daemon

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/host/mtls"
	"ankole.storage/host/mtls/mtlstest"
)

const (
	// controlAnswer is the most that a control interface says to bytes that prove nothing: alerts of
	// TLS with its certificate, frames of HTTP/2 with refusals.
	controlAnswer = 64 << 10
	controlEnd    = 10 * time.Second
)

// FuzzControlInterface: whatever a stranger sends to the control interface of an engine, in
// plaintext or in the middle of a handshake, reaches no method of one that wants a certificate. He
// is told little, and the connection ends when he ends it, whether certificates are wanted or not.
func FuzzControlInterface(f *testing.F) {
	quiet, dir := slog.New(slog.DiscardHandler), f.TempDir()
	mtlstest.NewAuthority(f).Write(f, dir, mtlstest.Named(mtls.PeerName, ""))
	secured := &counting{}
	serve := func(dir string, e *counting) string {
		address := freeAddress(f)
		s, err := serveControl(address, identity{"vol", "e"}, mtls.Open(dir, quiet), true, func(s *grpc.Server) {
			enginev1.RegisterEngineServer(s, e)
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(s.cut)
		return address
	}
	addresses := []string{serve(f.TempDir(), &counting{}), serve(dir, secured)}
	hello, call := clientHello(f), cloneCall()
	for _, start := range [][]byte{nil, call, call[:len(call)-3], []byte(preface), hello, hello[:len(hello)/2],
		append(bytes.Clone(hello), call...), []byte("GET / HTTP/1.1\r\n\r\n")} {
		f.Add(start)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, address := range addresses {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.SetDeadline(time.Now().Add(controlEnd)); err != nil {
				t.Fatal(err)
			}
			// The end may come before all is written, and with it a reset.
			_, _ = c.Write(sent)
			_ = c.(*net.TCPConn).CloseWrite()
			n, err := io.Copy(io.Discard, c)
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				t.Errorf("the connection goes on after %d bytes", n)
			}
			if n > controlAnswer {
				t.Errorf("%d bytes are answered to %d", n, len(sent))
			}
			c.Close()
		}
		if secured.calls+secured.streams > 0 {
			t.Error("a stranger has reached the engine")
		}
	})
}

// clientHello is how TLS begins.
func clientHello(f *testing.F) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		c := tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is not carried on
		_ = c.Handshake()                                              // ends with the pipe
		client.Close()
	}()
	p := make([]byte, 4096)
	n, err := server.Read(p)
	if err != nil {
		f.Fatal(err)
	}
	return p[:n]
}

// preface is how HTTP/2 begins.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// cloneCall is a call of CloneSource in plaintext: settings, headers as literals, an empty message.
func cloneCall() []byte {
	frame := func(kind, flags, stream byte, payload []byte) []byte {
		return append([]byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, stream}, payload...)
	}
	var headers []byte
	for _, text := range []string{":method", "POST", ":scheme", "http", ":authority", "engine", ":path",
		enginev1.Engine_CloneSource_FullMethodName, "content-type", "application/grpc", "te", "trailers"} {
		if len(headers) == 0 || text[0] == ':' || text == "content-type" || text == "te" {
			headers = append(headers, 0) // a literal that is not remembered
		}
		headers = append(append(headers, byte(len(text))), text...)
	}
	const settings, head, data, endStream, endHeaders = 4, 1, 0, 1, 4
	return bytes.Join([][]byte{[]byte(preface), frame(settings, 0, 0, nil), frame(head, endHeaders, 1, headers),
		frame(data, endStream, 1, make([]byte, 5))}, nil)
}
