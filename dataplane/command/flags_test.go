package command

import (
	"strings"
	"testing"
)

// TestInertFlags is the table of flags that other engines need: accepted where that is honest,
// refused where something would be expected that does not happen. A process that gets past its
// flags complains about the environment it lacks.
func TestInertFlags(t *testing.T) {
	const past = "ANKOLE_VOLUME_UUID is not set"
	for _, row := range []struct{ args, says string }{
		{"controller v --disableRevCounter", past},
		{"controller v --salvageRequested", past},
		{"controller v --enable-backend tcp --enable-backend tcp", past},
		{"controller v --enable-backend file", `"file" is none of tcp`},
		{"controller v --data-server-protocol unix", past},
		{"controller v --data-server-protocol tcp", past},
		{"controller v --data-server-protocol rdma", `"rdma" is none of tcp, unix`},
		{"controller v --file-sync-http-client-timeout 30", past},
		{"controller v --file-sync-http-client-timeout soon", "not a number"},
		{"controller v --unmap-mark-snap-chain-removed", past},
		{"replica dir --disableRevCounter", past},
		{"replica dir --unmap-mark-disk-chain-removed", past},
		{"replica dir --data-server-protocol unix", past},
		{"replica dir --data-server-protocol rdma", "is none of tcp, unix"},
		{"replica dir --sync-agent=false --sync-agent-port-count 7", past},
		{"replica dir --sync-agent", past},
		{"replica dir --sync-agent-port-count many", "not a number"},
		{"replica dir --restore-from s3://x", "backup and restore are not built yet"},
		{"replica dir --restore-name x", "backup and restore are not built yet"},
		{"replica dir --encrypted", past}, {"replica dir --encrypted=true", past},
		{"replica dir --encrypted=perhaps", "invalid"},
		{"replica dir --volume-name v", past}, // after the verb, as CLI API 7 and 8 have it
	} {
		args := strings.Fields(row.args)
		if args[0] == "controller" {
			args = append(args, "--size", "1g", "--replica", "tcp://127.0.0.1:1")
		}
		t.Setenv("ANKOLE_VOLUME_UUID", "")
		out, errs, ok := run(t, args...)
		if ok || out != "" || !strings.Contains(errs, row.says) {
			t.Errorf("%s: %q %q, want an error that says %q", row.args, out, errs, row.says)
		}
	}
}
