package upgrade_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/wire"
	"ankole.storage/test/rig"
)

// upgrades is how many there are of each kind; UPGRADES says otherwise.
func upgrades(t *testing.T) int {
	text := os.Getenv("UPGRADES")
	if text == "" {
		return 4
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("UPGRADES=%s: not a number of upgrades", text)
	}
	return n
}

// builds returns the engines that replace each other: an earlier one of this project, and the
// present one.
func builds(t *testing.T) (old, present string) {
	present = filepath.Join(t.TempDir(), "longhorn")
	if out, err := exec.Command("cp", rig.Program(t, "engine"), present).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(rig.Frozen(t, rig.FirstHandOver, "engine"), "engine"), present
}

// between is how long the load runs undisturbed before and after each upgrade.
const between = 300 * time.Millisecond

// A volume under load goes back and forth between two builds that speak different versions of the
// protocol between engine and replica. Whoever uses it sees no error and reads what it wrote; the
// table shows the longest time without any answer.
func TestUpgradesUnderLoad(t *testing.T) {
	for _, transport := range []string{"nbd-unix", "fuse-loop"} {
		t.Run(transport, func(t *testing.T) {
			old, present := builds(t)
			b := newBed(t, transport, 3)
			endpoint := b.attach(old)
			l := startLoad(t, b.dir, endpoint)
			wait := func() {
				t.Helper()
				select {
				case <-l.ended():
					l.stop()
					t.Fatalf("%s has ended by itself", l.name())
				case <-time.After(between):
				}
			}
			g := rig.StartGauge(t, b.dir)
			wait()
			var windows []window
			for i := range upgrades(t) {
				g.Take()
				w := window{from: time.Now()}
				b.upgrade([]string{present, old}[i%2])
				wait()
				w.to, w.machine = time.Now(), g.Take()
				windows = append(windows, w)
				if newest := strings.Contains(b.log(b.replicas[0]),
					fmt.Sprintf("protocol version %d", wire.Version)); newest != (i%2 == 0) {
					t.Fatalf("upgrade %d: version %d of the protocol is in use: %v; the builds should differ in it", i,
						wire.Version, newest)
				}
			}
			times := l.stop()
			b.detach()
			table(t, fmt.Sprintf("%s, %s, %d requests at once", transport, l.name(), depth), windows, times)
		})
	}
}

// window is the time of one upgrade, and what the machine cost in it.
type window struct {
	from, to time.Time
	machine  time.Duration
}

// pauseBound is the promise of P7. An upgrade starts a process and has some ten syncs and changes
// of hands in a row, each of which waits its turn on a busy machine.
var pauseBound = rig.Bound{Promised: time.Second, Ratio: 25}

// table prints the pauses: for each upgrade the longest time in which no request was completed.
func table(t *testing.T, title string, windows []window, times []time.Time) {
	t.Helper()
	var pauses []time.Duration
	for i, w := range windows {
		pause, n := longest(times, w)
		if n == 0 {
			t.Fatalf("upgrade %d: no request was completed in %s", i, w.to.Sub(w.from))
		}
		pauses = append(pauses, pause)
		if err := pauseBound.Check(pause, w.machine); err != nil {
			t.Errorf("P7, a live upgrade: upgrade %d: %v", i, err)
		}
	}
	slices.Sort(pauses)
	at := func(share float64) time.Duration { return pauses[min(len(pauses)-1, int(share*float64(len(pauses))))] }
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d upgrades, %d requests, no error\n", title, len(pauses), len(times))
	fmt.Fprintf(&b, "  longest time without an answer: median %s, p90 %s, p99 %s, most %s\n", at(0.5), at(0.9),
		at(0.99), pauses[len(pauses)-1])
	t.Log(b.String())
	if name := os.Getenv("UPGRADES_TABLE"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(b.String()); err != nil {
			t.Fatal(err)
		}
	}
}

// longest returns the longest time between two completions that touches w, and how many there were
// in w.
func longest(times []time.Time, w window) (most time.Duration, n int) {
	for i := 1; i < len(times); i++ {
		if times[i].Before(w.from) || times[i-1].After(w.to) {
			continue
		}
		n++
		most = max(most, times[i].Sub(times[i-1]))
	}
	return most, n
}
