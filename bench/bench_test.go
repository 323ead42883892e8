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

func TestConfigIsChecked(t *testing.T) {
	for _, tt := range []struct {
		cfg  config
		want string
	}{
		{config{size: mib, each: time.Second, dir: "."}, "-size"},
		{config{size: 1 << 30, dir: "."}, "-time"},
		{config{size: 1 << 30, each: time.Second, dir: "/nonexistent"}, "-dir"},
	} {
		t.Setenv("TMPDIR", t.TempDir())
		if err := tt.cfg.validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want something about %s", tt.cfg, err, tt.want)
		}
	}
}
