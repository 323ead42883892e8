package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ankole.storage/host/mountinfo"
)

// parameters of the kernel that a kubelet sets, for the whole machine.
var parameters = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// SaveParameters notes the kernel's parameters in a file, unless it is there: then a bed before
// this one was killed, and the file tells of the time before that.
func SaveParameters(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	values := map[string]string{}
	for _, p := range parameters {
		text, err := os.ReadFile(filepath.Join("/proc/sys", p))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("kernel parameters: %w", err)
		}
		values[p] = strings.TrimSpace(string(text))
	}
	text, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("kernel parameters: %w", err)
	}
	return os.WriteFile(file, text, 0o600)
}

// RestoreParameters writes back what SaveParameters has noted, and removes the file.
func RestoreParameters(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	values := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	for p, v := range values {
		err = errors.Join(err, os.WriteFile(filepath.Join("/proc/sys", p), []byte(v), 0))
	}
	if err != nil {
		return fmt.Errorf("kernel parameters of %s: %w", file, err)
	}
	return os.Remove(file)
}

// MakeDisk makes a sparse file with an ext4 file system, unless it is there.
func MakeDisk(file string, size int64) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, nil, 0o600); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if err := os.Truncate(tmp, size); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", tmp).CombinedOutput(); err != nil {
		return fmt.Errorf("disk: mkfs.ext4 %s: %w: %s", tmp, err, out)
	}
	return os.Rename(tmp, file)
}

// MountsBelow lists what is mounted in the folder, the last mounted first.
func MountsBelow(dir string) ([]string, error) {
	all, err := mountinfo.Table(func() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") })
	if err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	var list []string
	for _, m := range all {
		if strings.HasPrefix(m.Target, dir+"/") {
			list = append([]string{m.Target}, list...)
		}
	}
	return list, nil
}
