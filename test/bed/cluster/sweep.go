package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"ankole.storage/standalone/statedir"
	"ankole.storage/test/bed/host"
	"ankole.storage/test/bed/plan"
)

const (
	parametersFile = "kernel-parameters.json"
	lockFile       = "lock"
	pidFile        = "pid"
	// deviceDir is where nodes mount a directory of their own.
	deviceDir = "/dev/longhorn"
	// downTimeout bounds the end of a bed that was asked to end; then it is killed.
	downTimeout = 90 * time.Second
)

// Down ends the bed in a folder, whether it runs or was killed, and removes all that it had on the
// machine. The folder stays.
func Down(p plan.Plan) error {
	if _, err := os.Stat(p.Path(lockFile)); errors.Is(err, os.ErrNotExist) {
		return Sweep(p)
	}
	deadline := time.Now().Add(downTimeout)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for asked := false; ; <-tick.C {
		lock, pid, err := statedir.Lock(p.Dir)
		if err == nil {
			defer func() { _ = lock.Close() }()
			return Sweep(p)
		}
		if !errors.Is(err, statedir.ErrInUse) {
			return fmt.Errorf("bed's folder: %w", err)
		}
		switch {
		case pid <= 0: // it begins, and is about to note itself
		case !asked:
			_ = syscall.Kill(pid, syscall.SIGTERM)
			asked = true
		case time.Now().After(deadline):
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Sweep removes what a bed has on the machine outside its folder.
func Sweep(p plan.Plan) error {
	// First the processes: whatever they use can be removed after them.
	gone := host.RemoveCgroup(p.Cgroup())
	if gone != nil { // one may wait for a device that nobody serves any more
		gone = errors.Join(host.AbortUnmounted(), host.RemoveCgroup(p.Cgroup()))
	}
	errs := []error{gone, host.RemoveInterfaces(p.InterfacePrefix()),
		host.RestoreParameters(p.Path(parametersFile))}
	disks, err := host.LoopsBelow(p.Dir)
	errs = append(errs, err)
	for _, d := range disks {
		errs = append(errs, host.DetachLoop(d))
	}
	errs = append(errs, detachDead())
	// Directory deviceDir stays: the kernel removes an empty one although nodes of another bed have
	// mounted theirs there, and their mounts with it.
	return errors.Join(errs...)
}

// detachDead detaches the loop devices of volumes that killed nodes have left.
func detachDead() error {
	dead, err := host.DeadLoops()
	errs := []error{err}
	for _, d := range dead {
		errs = append(errs, host.DetachLoop(d))
	}
	return errors.Join(errs...)
}

// Left lists what a bed has on the machine: nothing after its end.
func Left(p plan.Plan) (list []string, err error) {
	pids, err := host.Processes(p.Cgroup())
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		list = append(list, fmt.Sprintf("process %d", pid))
	}
	groups, err := host.Cgroups(p.Cgroup())
	if err != nil {
		return nil, err
	}
	links, err := host.Interfaces(p.InterfacePrefix())
	if err != nil {
		return nil, err
	}
	disks, err := host.LoopsBelow(p.Dir)
	if err != nil {
		return nil, err
	}
	dead, err := host.DeadLoops()
	if err != nil {
		return nil, err
	}
	mounts, err := host.MountsBelow(p.Dir)
	if err != nil {
		return nil, err
	}
	for _, part := range [][]string{groups, links, disks, dead, mounts} {
		list = append(list, part...)
	}
	return list, nil
}
