package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/rig"
)

// volume is a running volume and its processes.
type volume struct {
	*rig.Volume
	replicas int
	// base is what it is compared with.
	base subject
}

func (v *volume) against() (subject, int) { return v.base, v.replicas }

// String says how many replicas it has.
func (v *volume) String() string {
	if v.replicas == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", v.replicas)
}

func (v *volume) load() nbdclient.Load {
	return nbdclient.Load{Addr: v.Engine().NBDAddress(), Export: v.Name, Seed: 1}
}

// fill writes the whole volume.
func (v *volume) fill(ctx context.Context) error {
	say("writing the volume with %s in full", v)
	if v.Engine().HasDevice() {
		return v.fillDevice()
	}
	l := v.load()
	l.Depth, l.BlockSize, l.Sequential, l.Requests = 8, mib, true, v.Size/mib
	r, err := l.Run(ctx)
	if err == nil && r.Errors > 0 {
		err = fmt.Errorf("%d requests failed", r.Errors)
	}
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return v.Dial().Flush()
}

// fillDevice writes the whole volume through its block device.
func (v *volume) fillDevice() error {
	c, err := v.Engine().Target()
	if err != nil {
		return err
	}
	p := rig.Aligned(mib)
	for i := range p {
		p[i] = byte(i>>9 + i)
	}
	for off := int64(0); err == nil && off < v.Size; off += mib {
		_, err = c.WriteAt(p, off)
	}
	if err == nil {
		err = c.Flush()
	}
	return errors.Join(err, c.Close())
}

func (v *volume) measure(ctx context.Context, p pattern, each time.Duration) (result, error) {
	l := v.load()
	l.Depth, l.BlockSize, l.Sequential, l.Duration = p.depth, p.blockSize, p.sequential, each
	if p.read {
		l.ReadPercent = 100
	}
	if p.flush {
		l.FlushEvery = 1
	}
	before, err := v.cpu()
	if err != nil {
		return result{}, err
	}
	r, err := l.Run(ctx)
	if err != nil {
		return result{}, err
	}
	after, err := v.cpu()
	if err != nil {
		return result{}, err
	}
	if r.Errors > 0 || r.Requests == 0 {
		return result{}, fmt.Errorf("%s with %s: %d requests, %d failed", p.name, v, r.Requests, r.Errors)
	}
	res := result{perSecond: r.PerSecond(), typical: r.Latency.Quantile(0.5),
		cpu: (after - before) / time.Duration(r.Requests)}
	if p.flush {
		res.typical = r.Latency.Mean()
	}
	return res, nil
}

// pids are the volume's processes, the engine first.
func (v *volume) pids() []int {
	pids := []int{v.EnginePid()}
	for _, r := range v.Replicas {
		pids = append(pids, r.Pid())
	}
	return pids
}

// tick is the unit of processor times in /proc: USER_HZ, the same on every Linux.
const tick = 10 * time.Millisecond

// cpu is the processor time that all processes of the volume have used.
func (v *volume) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, pid := range v.pids() {
		used, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// cpuOf is the processor time that a process has used, and those of its children that have ended.
func cpuOf(pid int) (sum time.Duration, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	// The second field, the name, may hold spaces; the four times are the 12th after it and on.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of %d: %w", pid, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// pss is the memory of a process in bytes, shared pages counted by share.
func pss(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("memory: no Pss of process %d", pid)
}
