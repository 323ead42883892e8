package nbd_test

import (
	"path/filepath"
	"testing"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/nbd"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/dataplane/loop/posix"
)

// transport is the NBD server with the lean client, over a unix socket or TCP.
type transport struct {
	network string
	addr    string
	server  *nbd.Server
	inspect func(cfg *nbd.Config)
}

func (tr *transport) Frontend(t *testing.T, env frontendtest.Env) frontend.Frontend {
	want := "127.0.0.1:0"
	if tr.network == "unix" {
		want = filepath.Join(t.TempDir(), "nbd.sock")
	}
	h, bound, err := posix.Listen(tr.network, want)
	if err != nil {
		t.Fatal(err)
	}
	tr.addr = tr.network + ":" + bound
	cfg := nbd.Config{Owner: env.Owner, Arena: env.Arena, Listener: h, Export: env.Name, Size: env.Size}
	if tr.inspect != nil {
		tr.inspect(&cfg)
	}
	if tr.server, err = nbd.New(cfg); err != nil {
		t.Fatal(err)
	}
	return tr.server
}

func (tr *transport) Open(t *testing.T) frontendtest.Client {
	c, err := nbdclient.Dial(t.Context(), tr.addr, nbdclient.Options{Export: "vol"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (tr *transport) Down(*testing.T) {}

func (tr *transport) Caps() frontendtest.Caps {
	return frontendtest.Caps{FUA: true, Kill: true, NoSpace: true, Depth: 100}
}

func TestConformance(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			frontendtest.Run(t, func(*testing.T) frontendtest.Transport { return &transport{network: network} })
		})
	}
}
