package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

const (
	// healthEvery is how often a device is asked about its health; it changes over days.
	healthEvery = time.Hour
	// healthTimeout bounds one question.
	healthTimeout = 30 * time.Second
	// deepestDevice bounds the walk from a file system's device to the disks below it.
	deepestDevice = 8
	// maxHealthText bounds a report, in bytes: a longer one is not read.
	maxHealthText = 1 << 20
)

// smartPrograms are the places of the program of smartmontools on a host.
var smartPrograms = []string{"/usr/sbin/smartctl", "/sbin/smartctl", "/usr/bin/smartctl", "/usr/local/sbin/smartctl"}

// Health asks the devices below the directory at a path of the host how they are. It knows what the
// host's smartctl says; on a host without that program, and of a device that has no such report,
// the answer is UNKNOWN. A file system that is on no device of its own (memory, an overlay, a
// network) has none.
func (h Host) Health(ctx context.Context, path string) (map[string]v1beta2.DiskHealth, error) {
	devices, err := h.devicesOf(path)
	if err != nil {
		return nil, err
	}
	out := map[string]v1beta2.DiskHealth{}
	for _, device := range devices {
		text := h.smart(ctx, device)
		out[device] = v1beta2.DiskHealth{Source: v1beta2.HealthSourceSMART, HealthStatus: smartVerdict(text),
			Attributes: smartAttributes(text)}
	}
	return out, nil
}

// devicesOf names the disks that hold the file system of a directory, in order.
func (h Host) devicesOf(path string) ([]string, error) {
	var info unix.Stat_t
	dir := h.open(path)
	if err := unix.Stat(dir, &info); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if unix.Major(info.Dev) == 0 {
		return nil, nil
	}
	found := map[string]bool{}
	number := fmt.Sprintf("%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev))
	if err := h.walkDevices(filepath.Join(h.kernel, "/sys/dev/block", number), found, 0); err != nil {
		return nil, fmt.Errorf("devices below %s: %w", path, err)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// walkDevices follows a block device in /sys down to whole disks: a partition is on its parent, a
// mapped or RAID device on its slaves.
func (h Host) walkDevices(link string, found map[string]bool, depth int) error {
	if depth > deepestDevice {
		return fmt.Errorf("more than %d devices below each other", deepestDevice)
	}
	device, err := filepath.EvalSymlinks(link)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		return h.walkDevices(filepath.Dir(device), found, depth+1)
	}
	slaves, err := os.ReadDir(filepath.Join(device, "slaves"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, s := range slaves {
		if err := h.walkDevices(filepath.Join(device, "slaves", s.Name()), found, depth+1); err != nil {
			return err
		}
	}
	if len(slaves) == 0 {
		found[filepath.Base(device)] = true
	}
	return nil
}

// smart asks the host's smartctl about a device, and returns what it prints.
func (h Host) smart(ctx context.Context, device string) []byte {
	root := h.Resolve(naming.HostRootInPod)
	i := slices.IndexFunc(smartPrograms, func(p string) bool {
		info, err := os.Stat(filepath.Join(root, p))
		return err == nil && info.Mode().IsRegular()
	})
	if i < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	text, err := runInRoot(ctx, root, smartPrograms[i], "--json", "--health", "--attributes",
		"--nocheck=standby", "/dev/"+device)
	if err != nil && len(text) == 0 {
		slog.Info("no report of a device's health", "device", device, "err", err)
	}
	return text
}

// runInRoot executes a program of the host in the host's own root directory, and returns what it
// printed: smartctl tells bad news by its exit status too.
func runInRoot(ctx context.Context, root, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.WaitDelay = time.Second
	if root != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	return cmd.Output()
}

// smartReport is what of smartctl's JSON counts.
type smartReport struct {
	Smartctl struct {
		ExitStatus int `json:"exit_status"`
	} `json:"smartctl"`
	SmartStatus *struct {
		Passed bool `json:"passed"`
	} `json:"smart_status"`
}

// smartPrefail are the bits of smartctl's exit status by which a device that passes gives reason to
// worry: attributes that foretell a failure at or below their threshold, now or before.
const smartPrefail = 1<<4 | 1<<5

// smartVerdict is the table from smartctl's report to a health status.
func smartVerdict(text []byte) v1beta2.HealthStatus {
	var r smartReport
	if len(text) > maxHealthText || json.Unmarshal(text, &r) != nil || r.SmartStatus == nil {
		return v1beta2.HealthStatusUnknown
	}
	switch {
	case !r.SmartStatus.Passed:
		return v1beta2.HealthStatusFailed
	case r.Smartctl.ExitStatus&smartPrefail != 0:
		return v1beta2.HealthStatusWarning
	}
	return v1beta2.HealthStatusPassed
}
