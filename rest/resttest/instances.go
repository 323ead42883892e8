package resttest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	lh "ankole.storage/api/longhorn/v1beta2"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/process"
	"ankole.storage/instancemanager/server"
)

// Instances is a real instance manager whose processes a test starts.
type Instances struct {
	*process.Manager
	// Connect leads to it, whatever the address.
	Connect func(address string) (*imclient.Client, error)
	// Stop ends the server, as when the Pod is killed; it may be called again.
	Stop func()
}

// StartInstances starts an instance manager; the end of the test ends it.
func StartInstances(t *testing.T) *Instances {
	t.Helper()
	m, err := process.New(process.Config{LogsDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(nil, server.Processes(m, ""))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // its error is that it was stopped
	}()
	stop := func() {
		s.Stop()
		<-ended
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		stop()
	})
	connect := func(string) (*imclient.Client, error) { return imclient.Dial(l.Addr().String(), nil) }
	return &Instances{Manager: m, Connect: connect, Stop: stop}
}

// Run starts a shell command as an instance.
func (i *Instances) Run(t *testing.T, name, command string) {
	t.Helper()
	p, err := i.Create(process.Spec{Name: name, Binary: "/bin/sh", Args: []string{"-c", command}})
	if err != nil || p.State == process.Error {
		t.Fatalf("%s: %v %s", name, err, p.ErrorMsg)
	}
}

// InstanceManager is a running instance manager of a node.
func InstanceManager(name, node string) *lh.InstanceManager {
	return &lh.InstanceManager{ObjectMeta: Meta(name),
		Spec: lh.InstanceManagerSpec{Image: "ankole/instance-manager:dev", NodeID: node,
			Type: lh.InstanceManagerTypeAllInOne},
		Status: lh.InstanceManagerStatus{CurrentState: lh.InstanceManagerStateRunning, IP: "127.0.1.1"}}
}
