package rig

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ankole.storage/test/wait"
)

// Fio is the load that everybody knows: it writes blocks of 4 KiB, reads each back and compares it,
// until it is stopped.
type Fio struct {
	t    testing.TB
	dir  string
	cmd  *exec.Cmd
	said bytes.Buffer
	done chan struct{}
}

// FioResult is what fio has done.
type FioResult struct {
	Written, Verified int           // blocks
	Longest           time.Duration // the slowest write, from its submission to its completion
}

// StartFio runs fio on an endpoint of a volume, a block device or an NBD socket, with further
// arguments. Its files are in dir, of which each fio has its own. It returns nil if fio is not here
// or lacks what the endpoint needs.
func StartFio(t testing.TB, dir, endpoint string, args ...string) *Fio {
	t.Helper()
	at := []string{"--ioengine=libaio", "--direct=1", "--filename=" + endpoint}
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		at = []string{"--ioengine=nbd", "--uri=" + endpoint}
	}
	if out, err := exec.Command("fio", "--enghelp").Output(); err != nil ||
		!strings.Contains(string(out), strings.TrimPrefix(at[0], "--ioengine=")) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &Fio{t: t, dir: dir, done: make(chan struct{})}
	f.cmd = exec.Command("fio", append(append(at, "--name=load", "--rw=randwrite", "--bs=4k", "--verify=crc32c",
		"--verify_fatal=1", "--time_based", "--runtime=1800", "--output-format=json", "--output="+f.output()), args...)...)
	f.cmd.Dir = dir
	f.cmd.Stdout, f.cmd.Stderr = &f.said, &f.said
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		_ = f.cmd.Wait() // stopped by a signal, it says so; Stop reads what it has written
	}()
	t.Cleanup(func() { _ = f.cmd.Process.Kill(); <-f.done })
	return f
}

func (f *Fio) output() string { return filepath.Join(f.dir, "fio.json") }

// Ended is closed when fio has ended, by itself or stopped.
func (f *Fio) Ended() <-chan struct{} { return f.done }

// Check fails the test if fio has ended by itself.
func (f *Fio) Check() {
	f.t.Helper()
	select {
	case <-f.done:
		wait.Final(f.t, "fio has ended by itself")
		f.t.Fatalf("fio has ended by itself: %s", &f.said)
	default:
	}
}

// Stop ends fio and fails the test if any request did, if a block had other content, or if nothing
// was verified.
func (f *Fio) Stop() FioResult {
	f.t.Helper()
	_ = f.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-f.done:
	case <-wait.Late():
		wait.RanOut(f.t, "end of fio")
		f.t.Fatalf("fio does not end\n%s", &f.said)
	}
	text, err := os.ReadFile(f.output())
	if err != nil {
		f.t.Fatal(err)
	}
	var result struct {
		Jobs []struct {
			Error    int `json:"error"`
			TotalErr int `json:"total_err"`
			Read     struct {
				IOs int `json:"total_ios"`
			} `json:"read"`
			Write struct {
				IOs     int `json:"total_ios"`
				Latency struct {
					Max int64 `json:"max"`
				} `json:"lat_ns"`
			} `json:"write"`
		} `json:"jobs"`
	}
	if i := bytes.IndexByte(text, '{'); i >= 0 {
		err = json.Unmarshal(text[i:], &result)
	}
	if err != nil || len(result.Jobs) != 1 {
		f.t.Fatalf("fio's result cannot be read: %v, %d jobs\n%s\n%s", err, len(result.Jobs), text, &f.said)
	}
	j := result.Jobs[0]
	if j.Error != 0 || j.TotalErr != 0 || j.Read.IOs == 0 {
		wait.Final(f.t, "fio failed")
		f.t.Fatalf("fio: error %d, %d errors, %d writes, %d blocks verified\n%s", j.Error, j.TotalErr, j.Write.IOs,
			j.Read.IOs, &f.said)
	}
	return FioResult{Written: j.Write.IOs, Verified: j.Read.IOs, Longest: time.Duration(j.Write.Latency.Max)}
}
