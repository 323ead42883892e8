package filesystem

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ankole.storage/host/patience"
	"ankole.storage/test/fsx"
	"ankole.storage/test/wait"
)

// Environment of the programs that this test binary turns into.
const (
	childVariable = "ANKOLE_FILESYSTEM_CHILD"
	dirVariable   = "ANKOLE_FILESYSTEM_DIR"
	seedVariable  = "ANKOLE_FILESYSTEM_SEED"
)

// files is how many files are exercised side by side.
const files = 3

// exercise works on files until its input ends, and tells how many operations it has made every now
// and then.
func exercise() int {
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that matters
		close(stop)
	}()
	errs := make([]error, files)
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() { errs[i] = exerciseOne(seed+uint64(i), stop) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func exerciseOne(seed uint64, stop <-chan struct{}) (err error) {
	debug.SetPanicOnFault(true) // an I/O error below a memory map
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("seed %d: %v", seed, p)
		}
	}()
	x, err := fsx.Open(filepath.Join(os.Getenv(dirVariable), fmt.Sprintf("fsx-%d", seed)), seed)
	if err != nil {
		return err
	}
	for {
		select {
		case <-stop:
			return x.Close()
		default:
		}
		if err := x.Step(); err != nil {
			return err
		}
		if x.Count()%20 == 0 {
			fmt.Println("20")
		}
	}
}

// syncFiles makes one file after the other, syncs each and its directory, and then says its number.
func syncFiles() int {
	dir := os.Getenv(dirVariable)
	d, err := os.Open(dir)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	for i := 0; ; i++ {
		err := writeSynced(filepath.Join(dir, numbered(i)), content(i))
		if err == nil {
			err = d.Sync()
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(i)
	}
}

func numbered(i int) string { return fmt.Sprintf("file-%06d", i) }

func content(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%08d", i)), 1+i*37%3000) }

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// child is a program at work.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan error

	mu    sync.Mutex
	total int      // the sum of what it said
	last  int      // the last number
	said  []string // what was no number
}

// start turns this test binary into one of the programs.
func start(t *testing.T, what, dir string, seed uint64) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0]), done: make(chan error, 1), last: -1}
	c.cmd.Env = append(os.Environ(), childVariable+"="+what, dirVariable+"="+dir, fmt.Sprintf("%s=%d", seedVariable, seed))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = in
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.hear(s.Text())
		}
		c.done <- c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it has ended where all went well
	})
	return c
}

func (c *child) hear(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := strconv.Atoi(line)
	if err != nil {
		c.said = append(c.said, line)
		return
	}
	c.total += n
	c.last = n
}

func (c *child) heard() (total, last int, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total, c.last, strings.Join(c.said, "\n")
}

// childWait bounds every wait for a program.
const childWait = 3 * time.Minute

// awaitTotal waits until it has made n more operations.
func (c *child) awaitTotal(n int) {
	c.t.Helper()
	before, _, _ := c.heard()
	c.await(func() bool { total, _, _ := c.heard(); return total >= before+n })
}

func (c *child) await(cond func() bool) {
	c.t.Helper()
	wait.Within(c.t, childWait, "progress of the program", func() error {
		if cond() {
			return nil
		}
		select {
		case err := <-c.done:
			c.done <- err
			_, _, said := c.heard()
			c.t.Fatalf("the program ended: %v\n%s", err, said)
		default:
		}
		return errors.New("it has made too little")
	})
}

// finish lets it end by itself.
func (c *child) finish() {
	c.t.Helper()
	if err := c.stdin.Close(); err != nil {
		c.t.Fatal(err)
	}
	select {
	case err := <-c.done:
		if _, _, said := c.heard(); err != nil {
			c.t.Fatalf("%v\n%s", err, said)
		}
	case <-time.After(patience.Of(childWait)):
		wait.RanOut(c.t, "end of the program")
		c.t.Fatalf("the program did not end within %v", childWait)
	}
}
