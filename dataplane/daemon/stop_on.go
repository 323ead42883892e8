//go:build stoppoints

package daemon

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// at does at the named place what ANKOLE_STOP_AT says: "place:die", "place:stop" (SIGSTOP) or
// "place:refuse". It is compiled into programs for tests only.
func at(place string) error {
	where, what, _ := strings.Cut(os.Getenv("ANKOLE_STOP_AT"), ":")
	if where != place {
		return nil
	}
	switch what {
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stop":
		// To this thread, so that it stops here and not a little later.
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
		runtime.UnlockOSThread()
	case "refuse":
		return fmt.Errorf("refused at %q for a test", place)
	}
	return nil
}
