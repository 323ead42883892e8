package powerloss

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/hostpath"
	"ankole.storage/test/powerdisk"
)

// run is the directory of this process's disks, nil where there can be none; unavailable says why.
var (
	run         *powerdisk.Run
	unavailable error
)

func TestMain(m *testing.M) {
	if unavailable = powerdisk.Available(); unavailable == nil {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	status := m.Run()
	if run != nil {
		if err := run.End(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	os.Exit(status)
}

// prepare makes the run's directory and lets engines inside this process put their sockets there.
func prepare() (err error) {
	if run, err = powerdisk.Begin(); err != nil {
		return err
	}
	mounts, err := json.Marshal(map[string]string{"/host/var/lib/longhorn/unix-domain-socket": filepath.Join(run.Dir(), "s")})
	if err != nil {
		return err
	}
	return os.Setenv(hostpath.Variable, string(mounts))
}

func needDisks(t *testing.T) {
	t.Helper()
	if unavailable != nil {
		t.Skip(unavailable)
	}
}
