package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// inStates are commands that fail because of the state in which the cluster is, each with what
// makes it so of the cluster of troubled; FILE is a file with the text of manifest.
var inStates = []struct {
	command  string
	manifest string
	state    func(client.Object) (keep bool)
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
	{command: "apply -f FILE", manifest: "kind: [Volume"},
	{command: "apply -f FILE", manifest: "---"},
	{command: "apply -f FILE", manifest: "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Node\nspec: {}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Node\nmetadata: {name: node-9}\nspec: {tags: [a]}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Setting\nmetadata: {name: log-level}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: EngineImage\nmetadata: {name: new}\nspec: {}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Volume\nmetadata: {name: new}\nspec: {numberOfReplicas: 2}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Volume\nmetadata: {name: demo}\nspec: {colour: red}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Volume\nmetadata: {name: demo}\nspec: {size: lots}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Volume\nmetadata: {name: demo}\nspec: {size: 1Mi}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Volume\nmetadata: {name: demo}\nspec: {frontend: nvmf}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Nothing\nmetadata: {name: x}\n"},
	{command: "apply -f FILE", manifest: node1 + "spec: {disks: [disk-1]}\n"},
	{command: "apply -f FILE", manifest: node1 + "spec: {disks: {disk-1: {colour: red}}}\n"},
	{command: "apply -f FILE", manifest: node1 + "spec: {disks: {disk-1: {storageReserved: lots}}}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: RecurringJob\nmetadata: {name: nightly}\nspec: {task: snapshot-delete}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Snapshot\nmetadata: {name: s1}\nspec: {volume: demo}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Snapshot\nmetadata: {name: new}\nspec: {}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Snapshot\nmetadata: {name: new}\nspec: {volume: nope}\n"},
	{command: "apply -f FILE", manifest: v1beta2 + "kind: Snapshot\nmetadata: {name: new}\nspec: {volume: demo, labels: [a]}\n"},
	{command: "apply -f FILE",
		manifest: v1beta2 + "kind: Snapshot\nmetadata: {name: new}\nspec: {volume: demo, createSnapshot: false}\n"},
}

const (
	v1beta2 = "apiVersion: longhorn.io/v1beta2\n"
	node1   = v1beta2 + "kind: Node\nmetadata: {name: node-1}\n"
)

// TestErrorsOfStates compares what commands say that the state of the cluster refuses with the
// golden file.
func TestErrorsOfStates(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "manifest.yaml")
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
		if err := os.WriteFile(file, []byte(s.manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		r := b.run(strings.Fields(strings.ReplaceAll(s.command, "FILE", file))...)
		if r.status == exitOK || r.err == "" {
			t.Errorf("%s: %+v", s.command, r)
		}
		fmt.Fprintf(&all, "$ ankole %s\n", s.command)
		for line := range strings.Lines(s.manifest) {
			fmt.Fprintf(&all, "  | %s\n", strings.TrimSuffix(line, "\n"))
		}
		fmt.Fprintf(&all, "%s[%d]\n\n", strings.ReplaceAll(r.err, b.url, "http://SERVER"), r.status)
	}
	golden(t, "errors-of-states", strings.ReplaceAll(all.String(), file, "FILE"))
}
