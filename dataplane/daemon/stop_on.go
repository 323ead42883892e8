//go:build stoppoints

package daemon

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// at does at the named place what ANKOLE_STOP_AT says: "place:die", "place:stop" (SIGSTOP) or "place:refuse". It is compiled
// into programs for tests only.
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
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "refuse":
		return fmt.Errorf("refused at %q for a test", place)
	}
	return nil
}
