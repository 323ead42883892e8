package manager

import (
	"context"
	"net"
	"testing"
)

// TestListenAlso: REST is served at the further address too; a manager that cannot have it is
// served at its own.
func TestListenAlso(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for _, tt := range []struct {
		name, also string
		want       int
	}{
		{"none", "", 1},
		{"free", "127.0.0.1:0", 2},
		{"taken", taken.Addr().String(), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &control{cfg: Config{Common: Common{Listen: "127.0.0.1:0"}, ListenAlso: tt.also}}
			listeners, err := p.listen(t.Context())
			if err != nil || len(listeners) != tt.want {
				t.Errorf("%d listeners, %v; want %d", len(listeners), err, tt.want)
			}
			for _, l := range listeners {
				_ = l.Close()
			}
		})
	}
	p := &control{cfg: Config{Common: Common{Listen: taken.Addr().String()}}}
	if _, err := p.listen(t.Context()); err == nil {
		t.Error("an own address that is taken is no error")
	}
}
