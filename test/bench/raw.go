package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"ankole.storage/test/rig"
)

// raw is a file on the disk to measure.
type raw struct {
	cfg    config
	dir    string
	file   string
	engine string // of fio
}

// newRaw writes the file in full and finds out which of fio's engines works here.
func newRaw(ctx context.Context, cfg config) (*raw, error) {
	if _, err := exec.LookPath("fio"); err != nil {
		return nil, fmt.Errorf("fio is not installed (Debian package fio)")
	}
	dir, err := os.MkdirTemp(cfg.dir, "bench-raw-")
	if err != nil {
		return nil, fmt.Errorf("folder for the raw file: %w", err)
	}
	r := &raw{cfg: cfg, dir: dir, file: filepath.Join(dir, "file")}
	say("writing the raw file of %d MiB", cfg.size/mib)
	for _, r.engine = range []string{"io_uring", "libaio"} {
		if _, err = r.fio(ctx, "--rw=write", "--bs=1M", "--iodepth=8", "--end_fsync=1"); err == nil {
			return r, nil
		}
	}
	r.close()
	return nil, err
}

// device is the block device of a volume.
type device struct {
	*volume
	file *raw
}

// prepareDevice starts a volume of one replica that has a block device, for fio with an engine.
func prepareDevice(ctx context.Context, t *stand, cfg config, engine string) (*device, error) {
	v, err := start(ctx, t, rig.Config{Replicas: 1, Size: cfg.size, Transport: "fuse-loop"})
	if err != nil {
		return nil, err
	}
	at := filepath.Join(v.Engine().Host.Devices(), v.Name)
	return &device{volume: v, file: &raw{cfg: cfg, file: at, engine: engine}}, nil
}

// String says what it is of.
func (d *device) String() string { return "block device of " + d.volume.String() }

// measure is the volume's measure, by fio on the device.
func (d *device) measure(ctx context.Context, p pattern, each time.Duration) (result, error) {
	before, err := d.cpu()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	r, err := d.file.measure(ctx, p, each)
	if err != nil {
		return result{}, err
	}
	took := time.Since(began)
	after, err := d.cpu()
	if err == nil {
		r.cpu = (after - before) / time.Duration(max(1, r.perSecond*took.Seconds()))
	}
	return r, err
}

func (r *raw) close() { _ = os.RemoveAll(r.dir) }

// output is the part of fio's JSON that is looked at.
type output struct {
	Jobs []struct {
		Read, Write struct {
			IOPS float64 `json:"iops"`
			Clat struct {
				Percentile map[string]int64 `json:"percentile"`
			} `json:"clat_ns"`
		}
	} `json:"jobs"`
}

func (r *raw) fio(ctx context.Context, args ...string) (*output, error) {
	args = append([]string{"--name=raw", "--filename=" + r.file, "--ioengine=" + r.engine, "--direct=1",
		"--size=" + strconv.FormatInt(r.cfg.size, 10),
		"--output-format=json", "--randrepeat=0", "--norandommap", "--group_reporting"}, args...)
	c := exec.CommandContext(ctx, "fio", args...)
	c.Stderr = os.Stderr
	data, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("fio %v: %w", args, err)
	}
	o := &output{}
	if err := json.Unmarshal(data, o); err != nil || len(o.Jobs) != 1 {
		return nil, fmt.Errorf("fio said %.300q: %w", data, err)
	}
	return o, nil
}

// String is what tables call it.
func (r *raw) String() string { return "raw" }

func (r *raw) against() (subject, int) { return nil, 0 }

func (r *raw) measure(ctx context.Context, p pattern, each time.Duration) (result, error) {
	rw := map[[2]bool]string{{true, false}: "randread", {true, true}: "read", {false, false}: "randwrite",
		{false, true}: "write"}[[2]bool{p.read, p.sequential}]
	args := []string{"--rw=" + rw, "--bs=" + strconv.Itoa(p.blockSize), "--iodepth=" + strconv.Itoa(p.depth),
		"--time_based",
		fmt.Sprintf("--runtime=%dms", each.Milliseconds())}
	if p.flush {
		args = append(args, "--fdatasync=1")
	}
	o, err := r.fio(ctx, args...)
	if err != nil {
		return result{}, err
	}
	side := o.Jobs[0].Write
	if p.read {
		side = o.Jobs[0].Read
	}
	res := result{perSecond: side.IOPS, typical: time.Duration(side.Clat.Percentile["50.000000"])}
	if p.flush && res.perSecond > 0 {
		res.typical = time.Duration(1e9 / res.perSecond)
	}
	if res.perSecond == 0 {
		return res, fmt.Errorf("fio measured nothing for %s", p.name)
	}
	return res, nil
}
