package environ

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// stat is the file of that name of a process, whose name may be anything.
func stat(state string, flags, code, envStart, envEnd uint64) string {
	fields := strings.Fields(strings.Repeat("0 ", 50))
	fields[statState], fields[statFlags] = state, fmt.Sprint(flags)
	fields[statCode] = fmt.Sprint(code)
	fields[statEnvStart], fields[statEnvEnd] = fmt.Sprint(envStart), fmt.Sprint(envEnd)
	return "7 (a) R 1 (b) " + strings.Join(fields, " ") + "\n"
}

// shown makes a process with a number that no real one has, with an empty environment.
func shown(t *testing.T, statText string) (r *Reader, pid int) {
	t.Helper()
	r, pid = &Reader{Root: t.TempDir()}, 2_000_000_000
	if err := os.Mkdir(filepath.Dir(r.file(pid, "stat")), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, r.file(pid, "environ"), "")
	if statText != "" {
		put(t, r.file(pid, "stat"), statText)
	}
	return r, pid
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A process in the middle of an execve has an environment when that is over; one that has none is
// not waited for, and none is for ever.
func TestReadingDuringExec(t *testing.T) {
	t.Run("ends", func(t *testing.T) {
		r, pid := shown(t, "")
		if err := unix.Mkfifo(r.file(pid, "stat"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		go r.Each([]int{pid}, func(_ int, environment []byte) { got <- string(environment) })
		// It is opened when the environment was found empty.
		f, err := os.OpenFile(r.file(pid, "stat"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		put(t, r.file(pid, "environ"), "NEW=1")
		if _, err := f.WriteString(stat("R", 0, 0, 0, 0)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if text := <-got; text != "NEW=1" {
			t.Errorf("environment %q", text)
		}
	})
	for _, row := range []struct {
		name, stat string
		waits      time.Duration
	}{
		{"does not end", stat("R", 0, 0, 0, 0), execTime},
		{"is over, and nothing comes", stat("R", 0, 512, 4096, 4100), execTime},
		{"about to have one", stat("R", 0, 0, 4096, 4096), execTime},
		{"without an environment", stat("S", 0, 512, 4096, 4096), 0},
		{"ended", stat("Z", 0, 0, 0, 0), 0},
		{"about to end", stat("R", exiting, 0, 0, 0), 0},
		{"the kernel's", stat("S", kernelThread|1, 0, 0, 0), 0},
		{"gone", "", 0},
		{"cut short", stat("R", 0, 0, 0, 0)[:40], 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, pid := shown(t, row.stat)
			synctest.Test(t, func(t *testing.T) {
				began, calls := time.Now(), 0
				r.Each([]int{pid}, func(_ int, environment []byte) {
					calls++
					if len(environment) > 0 {
						t.Errorf("environment %q", environment)
					}
				})
				if took := time.Since(began); took != row.waits || calls != 1 {
					t.Errorf("%d environments after %s, want one after %s", calls, took, row.waits)
				}
			})
		})
	}
}

// An environment is read to its end, however long it is.
func TestLongEnvironment(t *testing.T) {
	r, pid := shown(t, "")
	for _, length := range []int{1, atFirst - 1, atFirst, atFirst + 1, 10 * atFirst} {
		want := strings.Repeat("x", length-1) + "\x00"
		put(t, r.file(pid, "environ"), want)
		got := ""
		r.Each([]int{pid}, func(_ int, environment []byte) { got = string(environment) })
		if got != want {
			t.Errorf("%d bytes of %d", len(got), length)
		}
	}
}

// Two look at the same time at a process in the middle of an execve: both see it.
func TestTwoReadDuringExec(t *testing.T) {
	r, pid := shown(t, stat("R", 0, 0, 0, 0))
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 2)
		for range 2 {
			go func() {
				text := "left out"
				r.Each([]int{pid}, func(_ int, environment []byte) { text = string(environment) })
				got <- text
			}()
			synctest.Wait() // it waits for the end of the execve
		}
		put(t, r.file(pid, "environ"), "NEW=1")
		for range 2 {
			if text := <-got; text != "NEW=1" {
				t.Errorf("environment: %s", text)
			}
		}
	})
}
