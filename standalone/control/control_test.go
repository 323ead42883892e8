package control

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// exchange sends raw bytes to the socket of a folder and returns the answer.
func exchange(t *testing.T, dir, raw string) Response {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	c, err := net.Dial("unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())), SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	var r Response
	if err := json.NewDecoder(c).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRequests(t *testing.T) {
	// Longer than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var got []Request
	s, err := Listen(dir, func(_ context.Context, r Request) error {
		got = append(got, r)
		if r.Node == "unknown" {
			return errors.New("no such node")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := exchange(t, dir, `{"command":"node-kill","node":"node-2"}`+"\n"); !r.OK || r.Error != "" {
		t.Errorf("answer %+v", r)
	}
	if r := exchange(t, dir, `{"command":"node-kill","node":"unknown"}`); r.OK || r.Error != "no such node" {
		t.Errorf("answer %+v", r)
	}
	if r := exchange(t, dir, "hello"); r.OK || r.Error == "" {
		t.Errorf("garbage was answered with %+v", r)
	}
	s.Close()
	if len(got) != 2 || got[0] != (Request{Command: NodeKill, Node: "node-2"}) {
		t.Errorf("handled %+v", got)
	}
	// A socket left behind by a killed instance is no obstacle.
	if err := os.WriteFile(filepath.Join(dir, SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Listen(dir, func(context.Context, Request) error { return nil }); err != nil {
		t.Fatal(err)
	}
	s.Close()
}
