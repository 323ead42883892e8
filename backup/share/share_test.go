package share

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/lack"
)

const variable = "ANKOLE_TEST_SHARE"

// TestMain plays a worker where a test has started it as one.
func TestMain(m *testing.M) {
	if os.Getenv(variable) == "" {
		os.Exit(m.Run())
	}
	if err := inOwnRoot(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// inOwnRoot prints what file system this process sees then, and its mounts.
func inOwnRoot() error {
	if err := alone(); err != nil {
		return err
	}
	if err := ownRoot(); err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fmt.Println("entry", e.Name())
	}
	if err := unix.Mount("proc", folder, "proc", 0, ""); err != nil {
		return err
	}
	mounts, err := os.ReadFile(folder + "/self/mountinfo")
	fmt.Print(string(mounts))
	return err
}

// TestOwnRoot: a process that mounts a share has that and an empty root, and nobody else has it.
func TestOwnRoot(t *testing.T) {
	if os.Getuid() != 0 {
		lack.Skip(t, "root, to give a process mounts of its own")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), variable+"=1"), Namespace()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 3 || lines[0] != "entry store" || !strings.Contains(lines[1], " / / rw,nosuid,nodev,noexec") ||
		!strings.Contains(lines[2], " / /store ") || strings.Contains(string(out), "shared:") {
		t.Errorf("a worker sees:\n%s", out)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), " /store ") {
		t.Errorf("others see its mounts, or %v:\n%s", err, mounts)
	}
	if err := alone(); err == nil {
		t.Error("this process takes the mounts of all for its own")
	}
}
