package daemon_test

import (
	"testing"

	"ankole.storage/instancemanager/daemon"
	"ankole.storage/instancemanager/process"
)

// TestPortsOfInstances: others count on instances getting their ports from here on, unless told
// otherwise.
func TestPortsOfInstances(t *testing.T) {
	command, _, err := daemon.Command().Find([]string{"daemon"})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := process.ParsePortRange(command.Flags().Lookup("port-range").DefValue)
	if err != nil || ports.Start != 10000 || ports.End != 20000 {
		t.Errorf("ports %+v, %v; want 10000 to 20000", ports, err)
	}
}
