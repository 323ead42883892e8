package rig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ankole.storage/test/lack"
)

// Commits of this project that tests build programs of, to meet what is older.
const (
	// BeforeProxy is the last commit whose instance manager served neither the proxy nor the
	// instance service.
	BeforeProxy = "4269badcc592cb3fd761b42d8f3127f33119d567"
	// FirstLeave is the first commit whose engines leave a volume to the next one with the keeper of
	// its device (controller API 7): the oldest that a live upgrade goes on from.
	FirstLeave = "fd35c560981a3b019c2605bbcb2605a37b4362db"
)

// exitUnavailable is tools/frozen.sh's way to say that this clone cannot give a commit.
const exitUnavailable = 3

// Frozen builds programs (of cmd/) as they were at an earlier commit of this project, or finds them
// built, and returns the directory they are in. In a clone that does not have the commit the test
// is skipped and says so.
func Frozen(t testing.TB, commit string, programs ...string) string {
	t.Helper()
	script, err := fromRoot("tools/frozen.sh")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(filepath.Dir(filepath.Dir(script)), "bin", "frozen", commit)
	c := exec.Command("sh", append([]string{script, commit, out}, programs...)...)
	var said bytes.Buffer
	c.Stderr = &said
	dir, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitUnavailable {
		lack.Skip(t, fmt.Sprintf("not tested: %s", strings.TrimSpace(said.String())))
	}
	if err != nil {
		t.Fatalf("programs of commit %s: %v\n%s", commit, err, &said)
	}
	return strings.TrimSpace(string(dir))
}

// Program returns a program of cmd/ as it is now: that of ANKOLE_BIN, or one that is built in one
// place for all tests of this user.
func Program(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv("ANKOLE_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	out, err := Build(name)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// StopPoints is a build tag: programs have places at which the environment stops or ends them.
const StopPoints = "stoppoints"

var building sync.Mutex

// Build makes a program of cmd/ with build tags, in one place for all tests of this user, so that
// nothing piles up; renaming it there disturbs nobody who runs the one before. Where nothing can be
// built, ANKOLE_PROGRAMS of the environment is a folder that has them.
func Build(name string, tags ...string) (string, error) {
	if dir := os.Getenv("ANKOLE_PROGRAMS"); dir != "" && len(tags) == 0 {
		return filepath.Join(dir, name), nil
	}
	building.Lock()
	defer building.Unlock()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("ankole-engine-%d", os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	out := filepath.Join(dir, strings.Join(append([]string{name}, tags...), "-"))
	own := fmt.Sprintf("%s.%d", out, os.Getpid())
	args := []string{"build", "-o", own}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	if msg, err := exec.Command("go", append(args, "ankole.storage/cmd/"+name)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, msg)
	}
	return out, os.Rename(own, out)
}

// fromRoot finds a file of the repository from a test's folder, in whichever module that is.
func fromRoot(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New(name + " is in no folder above the test's")
		}
		dir = up
	}
}
