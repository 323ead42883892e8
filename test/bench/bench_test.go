package main

import (
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
		{config{size: mib, each: time.Second, dir: "."}, "-size"},
		{config{size: 1 << 30, dir: "."}, "-time"},
		{config{size: 1 << 30, each: time.Second, dir: ".", only: "("}, "-only"},
		{config{size: 1 << 30, each: time.Second, dir: ".", against: "engine"}, "-rounds"},
		{config{size: 1 << 30, each: time.Second, dir: "/nonexistent"}, "-dir"},
	} {
		t.Setenv("TMPDIR", t.TempDir())
		if err := tt.cfg.validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want something about %s", tt.cfg, err, tt.want)
		}
	}
}
