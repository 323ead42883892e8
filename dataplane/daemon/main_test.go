package daemon

import (
	"fmt"
	"os"
	"testing"

	"ankole.storage/host/hostpath"
)

// TestMain gives the tests a folder for NBD sockets: that of Pods is one of the host.
func TestMain(m *testing.M) { os.Exit(inFolder(m.Run)) }

func inFolder(run func() int) int {
	dir, err := os.MkdirTemp("", "daemon")
	if err == nil {
		err = os.Setenv(hostpath.Variable, fmt.Sprintf(`{%q: %q}`, socketDir, dir))
	}
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	return run()
}
