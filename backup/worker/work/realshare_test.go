package work

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/worker"
	"ankole.storage/test/lack"
)

// real is the URL of a share of a server, which test/vm has.
func real(t *testing.T, variable string) string {
	t.Helper()
	url := os.Getenv(variable)
	if url == "" {
		lack.Later(t, "tools/hunt.sh vm")
	}
	return url
}

// lives backs up twice to a share, restores, and deletes.
func lives(t *testing.T, url string) {
	t.Helper()
	v := newMemory()
	if _, err := create(t, url, v, "first", "s1"); err != nil {
		t.Fatal(err)
	}
	first := bytes.Clone(v.data)
	v.data[5<<20] ^= 1
	v.changed["s1"] = []backup.Extent{{Offset: 5 << 20, Length: 4096}}
	result, err := create(t, url, v, "second", "s2")
	var made worker.Created
	if err != nil || json.Unmarshal(result, &made) != nil || !made.Incremental {
		t.Fatalf("%s, %v", result, err)
	}
	for name, want := range map[string][]byte{"first": first, "second": v.data} {
		if got, err := restore(t, url, name, nil); err != nil || !bytes.Equal(got.data, want) {
			t.Errorf("%s is restored otherwise, or not: %v", name, err)
		}
	}
	remove := job(url, nil)
	remove.Order.Do, remove.Order.Volume = worker.DeleteVolume, "vol"
	if _, err := worker.Run(t.Context(), remove); err != nil {
		t.Error(err)
	}
	if out, err := worker.Run(t.Context(), listing(url)); err != nil || string(out) != "{}" {
		t.Errorf("%s is left, %v", out, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), " nfs4 ") || strings.Contains(string(mounts), " cifs ") {
		t.Errorf("%v, others see the share:\n%s", err, mounts)
	}
}

// refused: a share that cannot be mounted, and why.
func refused(t *testing.T, j worker.Job, says string) {
	t.Helper()
	if _, err := worker.Run(t.Context(), j); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %s", j.Order.Target, err, says)
	}
}

// TestNFS: a store on a share by NFS, in each version; what the server says; and a server that
// stops to answer and begins again.
func TestNFS(t *testing.T) {
	url := real(t, "ANKOLE_NFS")
	lives(t, url)
	for _, version := range []string{"4.0", "4.1", "4.2"} {
		if _, err := worker.Run(t.Context(), listing(url+"?nfsOptions=soft,actimeo=1,vers="+version)); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
	refused(t, listing(url+"/absent"), "no such path")
	refused(t, listing(url+"?nfsOptions=soft,dance=1"), "does not take an option")

	server, err := strconv.Atoi(os.Getenv("ANKOLE_NFS_SERVER"))
	if err != nil {
		t.Fatal(err)
	}
	j := listing(url)
	j.Order.GiveUp = 3 * time.Second
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err = worker.Run(t.Context(), j)
	if kill := syscall.Kill(server, syscall.SIGCONT); kill != nil {
		t.Fatal(kill)
	}
	if !errors.Is(err, worker.ErrGivenUp) {
		t.Errorf("a server that is stopped: %v", err)
	}
	lives(t, url)
}
