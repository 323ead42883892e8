package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	raw := result{perSecond: 30000, typical: 100 * time.Microsecond}
	for _, tt := range []struct {
		p        pattern
		r        result
		replicas int
		want     string
	}{
		{pattern{read: true}, result{perSecond: 15000}, 3, "0.50"},
		{pattern{}, result{perSecond: 15000}, 1, "0.50"},
		{pattern{}, result{perSecond: 5000}, 3, "0.50"}, // of a third of raw
		{pattern{latency: true}, result{typical: 250 * time.Microsecond}, 3, "+150 µs"},
		{pattern{latency: true}, result{typical: 90 * time.Microsecond}, 1, "-10 µs"},
	} {
		if got := tt.p.compare(raw, tt.r, tt.replicas); got != tt.want {
			t.Errorf("%+v against raw with %d replicas: %s, want %s", tt.r, tt.replicas, got, tt.want)
		}
	}
}

// TestAgainst: a row has the medians of both sides, and their ratio.
func TestAgainst(t *testing.T) {
	t.Parallel()
	many := func(perSecond ...float64) (s series) {
		for _, r := range perSecond {
			s = append(s, result{perSecond: r, typical: time.Duration(1e9 / r), cpu: time.Duration(1e8 / r)})
		}
		return s
	}
	before, now := many(20000, 1, 10000), many(20000, 40000, 15000)
	for p, want := range map[pattern]string{
		{name: "read", blockSize: 4096}:                "| v | read | 10.0k IOPS | 20.0k IOPS | 2.00 | 10.0 µs | 5.0 µs | 0.50 |",
		{name: "read", blockSize: 4096, latency: true}: "| v | read | 100 µs | 50 µs | 0.50 | 10.0 µs | 5.0 µs | 0.50 |",
	} {
		if got := p.against("v", before, now); got != want {
			t.Errorf("row\n%s, want\n%s", got, want)
		}
	}
}

func TestPatternsAreChosen(t *testing.T) {
	t.Parallel()
	if got := (&config{only: "random read, qd(16|64)"}).patterns(); len(got) != 2 || got[0].depth != 16 {
		t.Errorf("%+v", got)
	}
	if got := (&config{}).patterns(); len(got) != len(patterns) {
		t.Errorf("%d patterns, want %d", len(got), len(patterns))
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, tt := range []struct {
		cfg  config
		want string
	}{
		{config{size: mib, each: time.Second, rounds: 1, dir: "."}, "-size"},
		{config{size: 1 << 30, rounds: 1, dir: "."}, "-time"},
		{config{size: 1 << 30, each: time.Second, rounds: 1, dir: ".", only: "("}, "-only"},
		{config{size: 1 << 30, each: time.Second, dir: "."}, "-rounds"},
		{config{size: 1 << 30, each: time.Second, rounds: 1, dir: "/nonexistent"}, "-dir"},
	} {
		t.Setenv("TMPDIR", t.TempDir())
		if err := tt.cfg.validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want something about %s", tt.cfg, err, tt.want)
		}
	}
}

// stub is a subject whose results are given.
type stub struct {
	name  string
	base  subject
	share int
	gives []float64
}

func (s *stub) String() string          { return s.name }
func (s *stub) against() (subject, int) { return s.base, s.share }
func (s *stub) measure(context.Context, pattern, time.Duration) (result, error) {
	r := result{perSecond: s.gives[0], typical: time.Duration(1e9 / s.gives[0])}
	s.gives = s.gives[1:]
	return r, nil
}

// TestRow: a row has the median and the spread of all rounds, and what the medians are worth; of a
// machine that others keep busy rates are not compared.
func TestRow(t *testing.T) {
	raw := &stub{name: "raw", gives: []float64{60000, 30000, 90000}}
	three := &stub{name: "3 replicas", base: raw, share: 3, gives: []float64{10000, 40000, 15000}}
	r := newReport("fio", raw, three)
	if err := r.measure(t.Context(), config{rounds: 3}, pattern{name: "write", blockSize: 4096}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		busy float64
		want string
	}{
		{0.05, "| write | 60.0k IOPS (30.0k to 90.0k) | 15.0k IOPS (10.0k to 40.0k) | 0.75 |"},
		{0.25, "| write | 60.0k IOPS (30.0k to 90.0k) | 15.0k IOPS (10.0k to 40.0k) | busy |"},
	} {
		r.idle.busy = []float64{tt.busy}
		if got := r.row(&r.rows[0]); got != tt.want {
			t.Errorf("row\n%s, want\n%s", got, tt.want)
		}
	}
}

func TestProcessorTimes(t *testing.T) {
	busy, all, err := processorTimes("cpu  10 1 20 100 5 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if err != nil || busy != 40 || all != 145 {
		t.Errorf("%d of %d, %v", busy, all, err)
	}
	if _, _, err := processorTimes("intr 1 2"); err == nil {
		t.Error("anything is taken for processor times")
	}
}
