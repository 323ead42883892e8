package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
)

// changedShare is the part of a volume that is written anew before an incremental backup, and
// changedRun how much of it lies together.
const (
	changedShare = 100
	changedRun   = 2 * mib
	// lookEvery is how often the memory of a worker is looked at.
	lookEvery = 200 * time.Millisecond
	// concurrentLimit is the default of the settings for backups and restores.
	concurrentLimit = "2"
)

// backups measures backups and restores of a volume of incompressible content to a directory, and
// in the same rounds a copy of a file with the same content, and restic on it. With another engine
// program, which has its backup worker beside it, that one's come first.
func backups(ctx context.Context, cfg config, t *stand) error {
	began, load := time.Now().UTC(), loadAverage()
	b := &backupBench{cfg: cfg, t: t, jobs: jobs{results: map[string][]job{}}}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	do := []func(context.Context, int) error{b.copy, b.restic}
	for _, s := range b.sides {
		do = append(do, s.volume)
	}
	for round := range cfg.rounds {
		for k := range do { // who is first changes with the round
			if err := do[(k+round)%len(do)](ctx, round); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(b.work); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%s\nBackups of %d MiB of incompressible content to a directory, medians of %d rounds by turns.\n\n%s\n",
		machine(began, load), cfg.size/mib, cfg.rounds, b.jobs.table("copy"))
	fmt.Print(text)
	return keep(cfg, began, ".md", text)
}

type backupBench struct {
	cfg   config
	t     *stand
	sides []*backupSide
	file  string
	work  string
	seed  uint64
	jobs  jobs
}

// backupSide is an engine program and its worker, with a volume.
type backupSide struct {
	*backupBench
	// label is what the names of its jobs end in.
	label           string
	program, worker string
	v               *volume
}

func (b *backupBench) prepare(ctx context.Context) error {
	program, err := rig.EngineProgram()
	if err != nil {
		return err
	}
	worker, err := rig.Build("backup-worker")
	if err != nil {
		return err
	}
	b.sides = []*backupSide{{backupBench: b, program: program, worker: worker}}
	if other := b.cfg.against; other != "" {
		before := &backupSide{backupBench: b, label: ", before", program: other,
			worker: filepath.Join(filepath.Dir(other), "backup-worker")}
		b.sides = []*backupSide{before, b.sides[0]}
	}
	dir, err := os.MkdirTemp(b.cfg.dir, "bench-backup-")
	if err != nil {
		return err
	}
	b.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.file, b.work = filepath.Join(dir, "file"), filepath.Join(dir, "work")
	f, err := os.Create(b.file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, s := range b.sides {
		if s.v, err = s.open(ctx, false); err != nil {
			return err
		}
		if err := s.fill(0, b.cfg.size, f); err != nil {
			return err
		}
	}
	return nil
}

// open starts a volume of one replica.
func (b *backupSide) open(ctx context.Context, restored bool) (*volume, error) {
	r, err := rig.Open(b.t, rig.Config{Replicas: 1, Size: b.cfg.size, NoFrontend: restored, Program: b.program,
		Shares: true, EngineEnv: []string{"ANKOLE_BACKUP_WORKER=" + b.worker}})
	if err != nil {
		return nil, err
	}
	v := &volume{Volume: r, replicas: 1}
	if !restored {
		v.StartEngine()
		return v, ctx.Err()
	}
	v.SpawnEngine()
	v.Await("the volume serves", func(s *enginev1.State) bool {
		return rig.Modes(s)[enginev1.Mode_MODE_RW] == 1 && s.GetSnapshots() != nil
	})
	return v, ctx.Err()
}

// fill writes content that cannot be compressed to the volume, and the same to a file.
func (b *backupSide) fill(at, n int64, f io.WriterAt) error {
	d := b.v.Dial()
	p := make([]byte, mib)
	for end := at + n; at < end; at += mib {
		var seed [32]byte
		b.seed++
		seed[0], seed[1], seed[2], seed[3] = byte(b.seed), byte(b.seed>>8), byte(b.seed>>16), byte(b.seed>>24)
		_, _ = rand.NewChaCha8(seed).Read(p)
		if _, err := d.WriteAt(p, at); err != nil {
			return err
		}
		if _, err := f.WriteAt(p, at); err != nil {
			return err
		}
	}
	return d.Flush()
}

// copy is what any program would have to do at least.
func (b *backupBench) copy(context.Context, int) error {
	if err := os.MkdirAll(b.work, 0o700); err != nil {
		return err
	}
	began := time.Now()
	in, err := os.Open(b.file)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(b.work, "copy"))
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	b.jobs.note(job{name: "copy of the file, with fsync", of: b.cfg.size, took: time.Since(began)})
	return nil
}

// restic backs the file up and restores it, where restic is installed.
func (b *backupBench) restic(ctx context.Context, _ int) error {
	program, err := exec.LookPath("restic")
	if err != nil {
		say("restic is not installed (Debian package restic): left out")
		return nil
	}
	repository := filepath.Join(b.work, "restic")
	run := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, program, append([]string{"--repo", repository, "--no-cache", "--quiet"}, args...)...)
		c.Env = append(os.Environ(), "RESTIC_PASSWORD=measured")
		began := time.Now()
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("restic %v: %w: %s", args, err, out)
		}
		if name != "" {
			usage, _ := c.ProcessState.SysUsage().(*syscall.Rusage)
			b.jobs.note(job{name: name, of: b.cfg.size, took: time.Since(began), memory: usage.Maxrss << 10,
				cpu: c.ProcessState.UserTime() + c.ProcessState.SystemTime()})
		}
		return nil
	}
	if err := run("", "init"); err != nil {
		return err
	}
	if err := run("restic backup", "backup", "--compression", "off", b.file); err != nil {
		return err
	}
	return run("restic restore", "restore", "latest", "--target", filepath.Join(b.work, "restored"))
}

// volume backs the volume up, in full and after a change, and restores it.
func (b *backupSide) volume(ctx context.Context, round int) error {
	if err := os.MkdirAll(b.work, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(b.work, "store-")
	if err != nil {
		return err
	}
	full := "full" + strconv.Itoa(round)
	if err := b.backUp("backup of the volume", full, dir, b.cfg.size); err != nil {
		return err
	}
	v, err := b.open(ctx, true)
	if err != nil {
		return err
	}
	err = b.measure(v, "restore of the volume", b.cfg.size, func() error {
		_, err := b.command(v, "restore", "vfs://"+dir+"?backup="+full+"&volume="+b.v.Name)
		return err
	}, func() (bool, error) {
		s, err := v.State()
		r := s.GetRestore()
		if r.GetError() != "" {
			err = fmt.Errorf("restore: %s", r.GetError())
		}
		return r != nil && !r.GetRunning(), err
	})
	if err != nil {
		return err
	}
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Kill()
	}
	f, err := os.OpenFile(b.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := int64(0); at+changedRun <= b.cfg.size; at += changedRun * changedShare {
		if err := b.fill(at, changedRun, f); err != nil {
			return err
		}
	}
	return b.backUp("backup after 1 % has changed", "next"+strconv.Itoa(round), dir, b.cfg.size/changedShare)
}

func (b *backupSide) backUp(name, backup, dir string, of int64) error {
	q := &enginev1.SnapshotCreateRequest{Name: backup}
	if _, err := b.v.Control().SnapshotCreate(context.Background(), q); err != nil {
		return err
	}
	return b.measure(b.v, name, of, func() error {
		_, err := b.command(b.v, "create", backup, "--dest", "vfs://"+dir, "--backup-name", backup)
		return err
	}, func() (bool, error) {
		s, err := b.v.State()
		j := s.GetBackups()[backup]
		if j.GetError() != "" {
			err = fmt.Errorf("backup: %s", j.GetError())
		}
		return j.GetState() == "complete", err
	})
}

// measure orders something of a volume's engine and waits until it is done. The processor time is
// that of engine, replica and worker.
func (b *backupSide) measure(v *volume, name string, of int64, order func() error, done func() (bool, error)) error {
	before, err := v.cpu()
	if err != nil {
		return err
	}
	j := job{name: name + b.label, of: of}
	began := time.Now()
	if err := order(); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var looked time.Time
	for ended := false; !ended; <-tick.C {
		if j.took = time.Since(began); time.Since(looked) > lookEvery { // it walks through the pages of a process
			looked = time.Now()
			for _, pid := range children(v.EnginePid()) {
				if n, err := pss(pid); err == nil {
					j.memory = max(j.memory, n)
				}
			}
		}
		if ended, err = done(); err != nil {
			return err
		}
	}
	after, err := v.cpu()
	if err != nil {
		return err
	}
	j.cpu = after - before
	b.jobs.note(j)
	return nil
}

// children are the processes that a process has started.
func children(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// command runs a verb of the engine program.
func (b *backupSide) command(v *volume, args ...string) ([]byte, error) {
	var errs bytes.Buffer
	args = append(args, "--concurrent-limit", concurrentLimit)
	c := exec.Command(b.program, append([]string{"--url", v.Addr, "--volume-name", v.Name, "backup"}, args...)...)
	c.Env, c.Stderr = append(os.Environ(), "ANKOLE_BACKUP_WORKER="+b.worker), &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("backup %v: %w: %s", args, err, errs.String())
	}
	return out, err
}
