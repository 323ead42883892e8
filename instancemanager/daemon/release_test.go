package daemon_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// TestDevicesAreReleasedWithTheEngines: an instance manager that ends leaves its devices to the
// next engines when the last of its engines has ended. A replica that takes long, of whichever
// volume, keeps nobody waiting.
func TestDevicesAreReleasedWithTheEngines(t *testing.T) {
	dir, err := os.MkdirTemp("", "im") // short: unix sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	second := filepath.Join(dir, filepath.Base(keeper.SecondSocket))
	l, err := keeper.Listen(second)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		keeper.NewServer(slog.New(slog.DiscardHandler), 0).Serve(t.Context(), l)
	}()
	t.Cleanup(func() { l.Close(); <-served })
	p := launch(t, instancetest.Installed(t, filepath.Dir(keeper.SecondSocket), dir))
	p.create(t, "demo-e-0", instancetest.Serve)
	engines := p.instances(t)
	p.create(t, "other-r-1", instancetest.Stubborn)
	replica := slices.DeleteFunc(p.instances(t), func(pid int) bool { return slices.Contains(engines, pid) })
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	owner := keeper.Owner{Volume: "demo", Engine: "demo-e-0", Wait: time.Hour}
	if _, err := keeper.Keep(strings.TrimSuffix(p.socket, ".sock")+".dev", owner, nil, int(null.Fd())); err != nil {
		t.Fatal(err)
	}
	take := func() error {
		h, _, fds, err := keeper.Take(second, owner)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			syscall.Close(fd)
		}
		return h.Leave()
	}
	wait.Until(t, "the second holder has the device of the first", func() bool {
		err := take()
		return err != nil && strings.Contains(err.Error(), keeper.ErrInUse.Error())
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the device can be had", take)
	if instancetest.Alive(engines[0]) || !instancetest.Alive(replica[0]) {
		t.Errorf("the device can be had; the engine lives: %v, the other volume's replica lives: %v",
			instancetest.Alive(engines[0]), instancetest.Alive(replica[0]))
	}
	_ = syscall.Kill(replica[0], syscall.SIGKILL)
	if err := p.awaitEnd(t); err != nil {
		t.Error(err)
	}
}
