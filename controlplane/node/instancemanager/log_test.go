package instancemanager

import (
	"fmt"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/rest/resttest"
)

// TestReadLog asks a real instance manager for the log of a process that has ended: its last lines,
// all of them, and none of a process that never was.
func TestReadLog(t *testing.T) {
	instances := resttest.StartInstances(t)
	instances.Run(t, "v-r-1", fmt.Sprintf("for i in $(seq %d); do echo line $i; done", 2*logLines))
	c := NewCallers(instances.Connect)
	im := &v1beta2.InstanceManager{}
	if err := c.readLog(t.Context(), im, "v-r-1", func(string) {}); err == nil {
		t.Error("an instance manager that does not run was asked")
	}
	im.Status.CurrentState, im.Status.IP = v1beta2.InstanceManagerStateRunning, "127.0.0.1"
	// Follow to the end of the process first: what it prints is in its log then.
	cl, err := c.client(im)
	if err != nil {
		t.Fatal(err)
	}
	ignore := func(string) error { return nil }
	if err := cl.ProcessLog(t.Context(), "v-r-1", imclient.LogOptions{Follow: true}, ignore); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"v-r-1": logLines, "v-r-2": 0} {
		var lines []string
		if err := c.readLog(t.Context(), im, name, func(line string) { lines = append(lines, line) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(lines) != want || want > 0 && lines[want-1] != fmt.Sprintf("line %d", 2*logLines) {
			t.Errorf("%s: %d lines, want %d: %.200q", name, len(lines), want, lines)
		}
	}
	if err := c.CopyLog(t.Context(), im, "v-r-1"); err != nil {
		t.Error(err)
	}
}
