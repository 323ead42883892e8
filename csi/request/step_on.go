//go:build stoppoints

package request

import (
	"os"
	"syscall"
)

// Step ends this process as SIGKILL does if ANKOLE_CSI_STOP_AT names this boundary between two
// steps. It is compiled into programs for tests only.
func Step(step string) {
	if os.Getenv("ANKOLE_CSI_STOP_AT") == step {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
