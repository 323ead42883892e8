package powerloss

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/host/hostpath"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
)

// run is the directory of this process's disks, nil where there can be none; unavailable says why.
var (
	run         *powerdisk.Run
	unavailable error
)

func TestMain(m *testing.M) { os.Exit(powerdisk.Main(m, prepare)) }

// prepare lets engines inside this process put their sockets into the run's directory.
func prepare(r *powerdisk.Run, why error) error {
	run, unavailable = r, why
	if r == nil {
		return nil
	}
	mounts, err := json.Marshal(map[string]string{"/host/var/lib/longhorn/unix-domain-socket": filepath.Join(run.Dir(),
		"s")})
	if err != nil {
		return err
	}
	return os.Setenv(hostpath.Variable, string(mounts))
}

func needDisks(t *testing.T) {
	t.Helper()
	if unavailable != nil {
		lack.Skip(t, unavailable)
	}
}
