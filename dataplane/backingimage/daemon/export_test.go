package daemon

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/service"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/wait"
)

// startExport runs a data source that a volume is sent to, and returns where.
func startExport(t *testing.T, root, ip, fileType string) (*program, service.Receiver) {
	t.Helper()
	p := start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type", "export-from-volume",
		"--parameters", "volume-name=v", "--parameters", "snapshot-name=s", "--parameters", "file-type="+fileType)
	var at service.Receiver
	wait.Until(t, "the data source receives", func() bool {
		a, err := http.Post("http://"+ip+":8000/v1/file?action=receive", "", nil)
		if err != nil {
			return false
		}
		defer a.Body.Close()
		return a.StatusCode == http.StatusOK && json.NewDecoder(a.Body).Decode(&at) == nil
	})
	if at.Address != ip+":8002" {
		t.Errorf("it receives at %s, not at %s:8002", at.Address, ip)
	}
	return p, at
}

// TestExportIsKilled at each step of an export, ten times: what has a name is whole, and the next
// process is sent the volume anew, or has it.
func TestExportIsKilled(t *testing.T) {
	t.Parallel()
	want, name := image(4<<20), filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := osdisk.New(nil).Open(name, disk.ReadOnly|disk.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			for range kills {
				root, ip := t.TempDir(), newIP()
				at := backingimage.InSource(root, id)
				p, to := startExport(t, root, ip, "raw")
				sent := make(chan error, 1)
				go func() { sent <- ssync.Send(t.Context(), to.Address, to.Token, f, "") }()
				if !seen(p, at, step) {
					t.Fatalf("the data source has ended:\n%s", &p.output)
				}
				p.kill()
				<-sent // it may have come to its end
				var next *program
				if whole(t, root, at, want) {
					next = start(t, root, ip, "data-source", "--name", id.Name, "--uuid", id.UUID, "--source-type",
						"export-from-volume", "--parameters", "file-type=raw")
				} else {
					next, to = startExport(t, root, ip, "raw")
					if err := ssync.Send(t.Context(), to.Address, to.Token, f, ""); err != nil {
						t.Fatal(err)
					}
				}
				next.await("ready-for-transfer")
				if !whole(t, root, at, want) {
					t.Fatal("ready, and no file")
				}
				next.kill()
				if names, err := os.ReadDir(at.Dir); err != nil || len(names) != 2 {
					t.Fatalf("%v, %v", names, err)
				}
			}
		})
	}
}
