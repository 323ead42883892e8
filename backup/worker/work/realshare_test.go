package work

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/object"
	"ankole.storage/backup/target"
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

// lives backs up twice to a share, restores, verifies, and deletes.
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
	verify := job(url, nil)
	verify.Order.Do, verify.Order.Volume = worker.Verify, "vol"
	var found VerifyInfo
	result, err = worker.Run(t.Context(), verify)
	if err != nil || json.Unmarshal(result, &found) != nil || len(found.Backups) != 2 || found.FaultCount > 0 {
		t.Errorf("%s, %v", result, err)
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

// refused: a job on a share fails, and why.
func refused(t *testing.T, j worker.Job, says string) {
	t.Helper()
	_, err := worker.Run(t.Context(), j)
	if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%s: %v, want %s", j.Order.Target, err, says)
	}
}

// stops: a server that stops to answer, before it is asked for anything and while it takes a
// backup, is given up, and nobody else waits for it meanwhile. It begins again. The variable names
// its process, or the group of its processes by a negative number.
func stops(t *testing.T, url, variable string) {
	t.Helper()
	server, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		t.Fatal(err)
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(server, s); err != nil {
			t.Error(err)
		}
	}
	defer signal(syscall.SIGCONT)
	signal(syscall.SIGSTOP)
	waits, given := make(chan struct{}), make(chan error, 1)
	j := listing(url)
	j.Order.GiveUp = 10 * time.Second
	j.Report = func(_ context.Context, r worker.Report) error {
		if r.Waits > 0 && waits != nil {
			close(waits)
			waits = nil
		}
		return nil
	}
	begun := waits
	go func() {
		_, err := worker.Run(t.Context(), j)
		given <- err
	}()
	select {
	case <-begun:
	case err := <-given:
		t.Fatalf("a server that is stopped: %v", err)
	}
	beside := listing(url)
	beside.Order.GiveUp = time.Second
	if _, err := worker.Run(t.Context(), beside); !errors.Is(err, worker.ErrHeld) {
		t.Errorf("beside a worker that waits: %v", err)
	}
	if err := <-given; !errors.Is(err, worker.ErrGivenUp) {
		t.Errorf("a server that is stopped: %v", err)
	}
	signal(syscall.SIGCONT)
	lives(t, url)

	v := newMemory()
	v.reads = func() { signal(syscall.SIGSTOP) }
	j = creating(url, v, "first", "s1")
	j.Order.GiveUp = 3 * time.Second
	_, err = worker.Run(t.Context(), j)
	t.Logf("a server that is stopped while it takes a backup: %v", err)
	if !errors.Is(err, worker.ErrGivenUp) {
		t.Errorf("%v is not that it is given up", err)
	}
	signal(syscall.SIGCONT)
	if _, err := create(t, url, v, "first", "s1"); err != nil { // no deletion: that waits for the lock of who was ended
		t.Fatal(err)
	}
	if got, err := restore(t, url, "first", nil); err != nil || !bytes.Equal(got.data, v.data) {
		t.Errorf("restored otherwise, or not: %v", err)
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
	stops(t, url, "ANKOLE_NFS_SERVER")
}

// TestSMB: the same by SMB, with a user and a password that has commas.
func TestSMB(t *testing.T) {
	server := real(t, "ANKOLE_SMB")
	url := server + "/store"
	lives(t, url)
	for _, version := range []string{"2.1", "3.0", "3.1.1"} {
		if _, err := worker.Run(t.Context(), listing(url+"?cifsOptions=soft,vers="+version)); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
	refused(t, listing(url+"?cifsOptions=soft,vers=2.0"), "no version of the protocol in common")
	refused(t, listing(server+"/absent"), "no such path")
	refused(t, listing(url+"/absent"), "no such path")
	refused(t, listing(url+"?cifsOptions=soft,dance=1"), "does not take an option")
	for key, value := range map[string]string{target.KeyCIFSUser: "nobody", target.KeyCIFSPassword: "hunter22"} {
		j := listing(url)
		j.Order.Credentials[key] = value
		refused(t, j, "its user and password")
	}
	for share, mark := range map[string]error{"/small": object.ErrNoSpace, "/fixed": object.ErrRefused} {
		v := newMemory()
		rand.Read(v.data)
		if _, err := create(t, server+share, v, "first", "s1"); !errors.Is(err, mark) {
			t.Errorf("%s: %v, want %v", share, err, mark)
		}
	}
	stops(t, url, "ANKOLE_SMB_SERVER")
}
