package proxy_test

import (
	"fmt"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/instancemanager/proxy"
)

// TestConnectionIsKeptForWhoIsAboutToUseIt: there are so many connections that those to engines
// that are gone are looked for. One that a call has got and not used yet looks like them, and
// stays.
func TestConnectionIsKeptForWhoIsAboutToUseIt(t *testing.T) {
	r := newRig(t)
	engines := &proxy.Engines{}
	defer engines.Close()
	conn, done, err := engines.Conn(r.address)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * proxy.SweepAt {
		_, done, err := engines.Conn(fmt.Sprintf("127.0.0.1:%d", 1+i))
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	if n := engines.Kept(); n > proxy.SweepAt {
		t.Errorf("%d connections are kept", n)
	}
	if _, err := enginev1.NewEngineClient(conn).Get(t.Context(), &enginev1.GetRequest{}); err != nil {
		t.Errorf("the connection was closed under a call: %v", err)
	}
	done()
}
