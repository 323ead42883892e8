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

// builds returns two copies of the engine, which replace each other as two builds.
func builds(t *testing.T) (one, other string) {
	t.Helper()
	for _, path := range []*string{&one, &other} {
		*path = filepath.Join(t.TempDir(), "longhorn")
		if out, err := exec.Command("cp", rig.Program(t, "engine"), *path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return one, other
}

// between is how long the load runs undisturbed before and after each upgrade.
const between = 300 * time.Millisecond

// A volume under load goes back and forth between two builds. Whoever uses it sees no error and
// reads what it wrote; the table shows the longest time without any answer.
func TestUpgradesUnderLoad(t *testing.T) {
	one, other := builds(t)
	b := newBed(t, "fuse-loop", 3)
	endpoint := b.attach(one)
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
		b.upgrade([]string{other, one}[i%2])
		wait()
		w.to, w.machine = time.Now(), g.Take()
		windows = append(windows, w)
	}
	times := l.stop()
	b.detach()
	table(t, fmt.Sprintf("%s, %d requests at once", l.name(), depth), windows, times)
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
