// Command bench measures volumes against the raw disk, side by side in one run, and prints a
// Markdown table with ratios. With -against it measures them beside those of another engine
// program, such as an earlier commit's, in alternating rounds.
//
// "Raw" is fio with io_uring (libaio where that is not allowed), direct, on a file of the same file
// system. Volumes are real engine and replica processes on loopback with a witness in memory
// (package rig), reached by the lean NBD client: one with one replica and one with three. Every
// pattern is measured on all three within the same seconds, on files and volumes that were written
// in full before. Replicas share one disk here, so the fair limit of a write with three replicas is
// a third of raw, and its ratio is of that.
//
// Nothing is asserted: figures depend on the machine and on what else it does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"ankole.storage/test/rig"
)

// config of a run.
type config struct {
	size    int64
	each    time.Duration
	dir     string
	results string
	// against is another engine program that is measured beside this one, in rounds; "" for the raw
	// disk. With backups its worker is beside it.
	against string
	rounds  int
	// backups has backups and restores measured instead, in rounds.
	backups bool
	// images has downloads of an image measured instead, in rounds.
	images bool
	// only are the patterns that are measured, by name.
	only string
}

const (
	mib = 1 << 20
	// minSize keeps random offsets from being served by a handful of blocks.
	minSize = 64
)

func main() {
	cfg := config{}
	sizeMiB := flag.Int64("size", 1024, "size of the file and of each volume in MiB, at least 64")
	flag.DurationVar(&cfg.each, "time", 3*time.Second, "duration of each measurement")
	flag.StringVar(&cfg.dir, "dir", os.TempDir(), "folder on the disk to measure; needs five times the size")
	flag.StringVar(&cfg.results, "results", "", "folder that also gets the table")
	flag.StringVar(&cfg.against, "against", "", "another engine program that is measured beside this one, not the raw disk")
	flag.BoolVar(&cfg.backups, "backups", false, "measure backups and restores to a directory, beside a copy and restic")
	flag.BoolVar(&cfg.images, "images", false, "measure the download of a backing image, beside curl and sha512sum")
	flag.IntVar(&cfg.rounds, "rounds", 3, "how often each is measured")
	flag.StringVar(&cfg.only, "only", "", "regular expression of the patterns to measure, such as 'random read'")
	flag.Parse()
	cfg.size = *sizeMiB * mib
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cfg.validate(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if err := run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (c *config) validate() error {
	if c.size < minSize*mib {
		return fmt.Errorf("-size %d MiB is less than %d", c.size/mib, minSize)
	}
	if c.rounds < 1 {
		return fmt.Errorf("-rounds %d measures nothing", c.rounds)
	}
	if _, err := regexp.Compile(c.only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if c.each <= 0 {
		return fmt.Errorf("-time %s is not a duration to measure in", c.each)
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return fmt.Errorf("-dir: %w", err)
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return fmt.Errorf("-dir %s is not a folder", dir)
	}
	c.dir = dir
	return os.Setenv("TMPDIR", dir) // where package rig makes its folders
}

// run measures everything and prints the table.
func run(ctx context.Context, cfg config) (err error) {
	t := &stand{}
	defer func() {
		t.end()
		if p := recover(); p != nil {
			f, ok := p.(failure)
			if !ok {
				panic(p)
			}
			err = errors.New(string(f))
		}
	}()
	switch {
	case cfg.backups:
		return backups(ctx, cfg, t)
	case cfg.images:
		return images(ctx, cfg, t)
	case cfg.against != "":
		return runAgainst(ctx, cfg, t)
	}
	r, err := newRaw(ctx, cfg)
	if err != nil {
		return err
	}
	defer r.close()
	one, err := prepare(ctx, t, 1, cfg.size, "")
	if err != nil {
		return err
	}
	three, err := prepare(ctx, t, 3, cfg.size, "")
	if err != nil {
		return err
	}
	device, err := prepareDevice(ctx, t, cfg, r.engine)
	if err != nil {
		return err
	}
	one.base, three.base, device.base = r, r, one
	report := newReport(r.engine, r, one, three, device)
	report.memory("fresh", one, three)
	for _, v := range []*volume{one, three, device.volume} {
		if err := v.fill(ctx); err != nil {
			return err
		}
	}
	for _, p := range cfg.patterns() {
		if err := report.measure(ctx, cfg, p); err != nil {
			return err
		}
	}
	report.memory("after the run", one, three)
	report.rebuild(three, cfg.size)
	small, err := prepare(ctx, t, 2, 16*mib, "")
	if err != nil {
		return err
	}
	if err := small.fill(ctx); err != nil {
		return err
	}
	report.rebuild(small, 16*mib)
	return report.print(cfg)
}

// stand plays the test for package rig, which starts the processes: what would fail a test ends the
// run.
type stand struct {
	testing.TB
	cleanups []func()
	failed   bool
}

type failure string

// Helper implements testing.TB.
func (s *stand) Helper() {}

// Cleanup implements testing.TB.
func (s *stand) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Failed implements testing.TB.
func (s *stand) Failed() bool { return s.failed }

// Logf implements testing.TB.
func (s *stand) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatal implements testing.TB.
func (s *stand) Fatal(args ...any) { s.fail(fmt.Sprint(args...)) }

// Fatalf implements testing.TB.
func (s *stand) Fatalf(format string, args ...any) { s.fail(fmt.Sprintf(format, args...)) }

func (s *stand) fail(text string) {
	s.failed = true
	panic(failure(text))
}

// end runs the cleanups, last one first.
func (s *stand) end() {
	for len(s.cleanups) > 0 {
		f := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		f()
	}
}

// say tells how far the run is.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// prepare starts a volume with an engine program, "" for the present one.
func prepare(ctx context.Context, t *stand, replicas int, size int64, program string) (*volume, error) {
	return start(ctx, t, rig.Config{Replicas: replicas, Size: size, Program: program})
}

func start(ctx context.Context, t *stand, cfg rig.Config) (*volume, error) {
	replicas := cfg.Replicas
	say("starting a volume of %d MiB with %d replicas", cfg.Size/mib, replicas)
	cfg.Shares = true // as on a node that has a replica
	r, err := rig.Open(t, cfg)
	if err != nil {
		return nil, err
	}
	v := &volume{Volume: r, replicas: replicas}
	v.StartEngine()
	return v, ctx.Err()
}
