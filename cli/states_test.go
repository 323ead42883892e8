package cli

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// inStates are commands that fail because of the state in which the cluster is, each with what
// makes it so of the cluster of troubled.
var inStates = []struct {
	command string
	state   func(client.Object) (keep bool)
}{
	{command: "volume attach demo --node node-2"}, // faulted
	{command: "volume attach wide", state: func(o client.Object) bool {
		if n, ok := o.(*lh.Node); ok {
			n.Status.Conditions = []lh.Condition{{Type: lh.NodeConditionReady, Status: lh.ConditionFalse}}
		}
		return true
	}},
	{command: "disk scheduling on node-2 disk-1", state: func(o client.Object) bool {
		if n, ok := o.(*lh.Node); ok {
			d := n.Spec.Disks["disk-1"]
			d.EvictionRequested = true
			n.Spec.Disks["disk-1"] = d
		}
		return true
	}},
	{command: "volume upgrade busy"}, // has the default image already
	{command: "volume upgrade busy", state: func(o client.Object) bool {
		s, ok := o.(*lh.Setting)
		if ok && s.Name == "default-engine-image" {
			s.Value = ""
		}
		return true
	}},
	{command: "volume upgrade busy", state: func(o client.Object) bool { _, ok := o.(*lh.EngineImage); return !ok }},
	{command: "snapshot get demo s1"}, // it is busy's
	{command: "engine logs demo", state: func(o client.Object) bool { _, ok := o.(*lh.Engine); return !ok }},
	{command: "volume accept-data-loss busy --yes"},
}

// TestErrorsOfStates compares what commands say that the state of the cluster refuses with the
// golden file.
func TestErrorsOfStates(t *testing.T) {
	var all strings.Builder
	for _, s := range inStates {
		job := &lh.RecurringJob{ObjectMeta: resttest.Meta("nightly"), Spec: lh.RecurringJobSpec{Name: "nightly",
			Task: "snapshot", Cron: "@daily", Retain: 1, Concurrency: 1}}
		snapshot := &lh.Snapshot{ObjectMeta: resttest.Meta("s1"), Spec: lh.SnapshotSpec{Volume: "busy"}}
		var objects []client.Object
		for _, o := range append(troubled(), job, snapshot) {
			if s.state == nil || s.state(o) {
				objects = append(objects, o)
			}
		}
		b := newBed(t, objects...)
		r := b.run(strings.Fields(s.command)...)
		if r.status == exitOK || r.err == "" {
			t.Errorf("%s: %+v", s.command, r)
		}
		fmt.Fprintf(&all, "$ ankole %s\n%s[%d]\n\n", s.command, strings.ReplaceAll(r.err, b.url, "http://SERVER"), r.status)
	}
	golden(t, "errors-of-states", all.String())
}
