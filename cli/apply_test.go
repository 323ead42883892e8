package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

const applyText = `# what is wanted
apiVersion: longhorn.io/v1beta2
kind: Setting
metadata: {name: default-replica-count}
value: "2"
---
apiVersion: longhorn.io/v1beta2
kind: Volume
metadata:
  name: fresh
  labels: {recurring-job-group.longhorn.io/nightly: enabled, other: x}
spec:
  size: 2147483648
  numberOfReplicas: 2
  dataLocality: best-effort
  nodeSelector: [fast]
  backupCompressionMethod: none
  nodeID: ""
---
---
apiVersion: longhorn.io/v1beta2
kind: Volume
metadata: {name: demo}
spec: {size: 2Gi, replicaAutoBalance: best-effort, numberOfReplicas: 1, frontend: blockdev, Standby: false, replicaRebuildingBandwidthLimit: 10}
---
apiVersion: longhorn.io/v1beta2
kind: Node
metadata: {name: node-1}
spec:
  allowScheduling: false
  tags: [fast, rack-1]
  disks:
    disk-1: {tags: [ssd, big]}
    second: {path: /srv/second, allowScheduling: true, storageReserved: 1024}
---
apiVersion: longhorn.io/v1beta2
kind: RecurringJob
metadata: {name: nightly}
spec: {task: snapshot, cron: "0 3 * * *", retain: 7, groups: [nightly], concurrency: 2}
---
apiVersion: v1
kind: List
items:
- {apiVersion: longhorn.io/v1beta2, kind: Snapshot, metadata: {name: before}, spec: {volume: demo, createSnapshot: true, labels: {a: b}}}
- {apiVersion: longhorn.io/v1beta2, kind: EngineImage, metadata: {name: any}, spec: {image: "ankole/engine:v9"}}
`

// apply runs apply with a text on standard input.
func (b *bed) apply(text string, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	var out, err strings.Builder
	args = append([]string{"--server", b.url, "apply", "-f", "-"}, args...)
	status := run(ctx, args, strings.NewReader(text), &out, &err)
	return result{status, out.String(), err.String()}
}

// TestApply: a dry run says what the real one does, and does nothing; the second real one finds
// nothing to do.
func TestApply(t *testing.T) {
	b := newBed(t, cluster()...)
	dry := b.apply(applyText, "--dry-run")
	if dry.status != exitOK || dry.err != "" {
		t.Fatalf("%+v", dry)
	}
	golden(t, "apply-dry-run", dry.out)
	if r := b.run("volume", "get", "fresh"); r.status != exitError {
		t.Errorf("the dry run made it: %+v", r)
	}
	if v := stored[lh.Volume](b, "demo"); v.Spec.Size != 1<<30 {
		t.Errorf("the dry run changed it: %+v", v.Spec)
	}
	done := b.apply(applyText)
	if done.status != exitOK || done.err != "" {
		t.Fatalf("%+v", done)
	}
	golden(t, "apply", done.out)
	v := stored[lh.Volume](b, "fresh")
	if v.Spec.Size != 2<<30 || v.Spec.NumberOfReplicas != 2 || v.Spec.DataLocality != lh.DataLocalityBestEffort ||
		len(v.Spec.NodeSelector) != 1 || v.Labels["recurring-job-group.longhorn.io/nightly"] != "enabled" {
		t.Errorf("%+v %v", v.Spec, v.Labels)
	}
	n := stored[lh.Node](b, "node-1")
	if n.Spec.AllowScheduling || len(n.Spec.Tags) != 2 || len(n.Spec.Disks) != 2 ||
		n.Spec.Disks["second"].StorageReserved != 1024 ||
		!n.Spec.Disks["disk-1"].AllowScheduling || len(n.Spec.Disks["disk-1"].Tags) != 2 {
		t.Errorf("%+v", n.Spec)
	}
	if j := stored[lh.RecurringJob](b, "nightly"); j.Spec.Retain != 7 || j.Spec.Concurrency != 2 {
		t.Errorf("%+v", j.Spec)
	}
	if v.Spec.BackupCompressionMethod != lh.BackupCompressionNone {
		t.Errorf("backups of it are compressed by %s", v.Spec.BackupCompressionMethod)
	}
	again := b.apply(applyText)
	golden(t, "apply-again", again.out)
	if r := b.apply(strings.ReplaceAll(applyText, "retain: 7", "retain: 9")); !strings.Contains(r.out,
		"recurring-job/nightly changed: retain 7 -> 9\n") || stored[lh.RecurringJob](b, "nightly").Spec.Concurrency != 2 {
		t.Errorf("%+v", r)
	}
}

// TestApplyFiles: files, the files of a directory in order, and JSON.
func TestApplyFiles(t *testing.T) {
	b := newBed(t, cluster()...)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":      "apiVersion: longhorn.io/v1beta2\nkind: Setting\nmetadata: {name: log-level}\nvalue: Debug\n",
		"a.json":      `{"apiVersion":"longhorn.io/v1beta2","kind":"Setting","metadata":{"name":"default-replica-count"},"value":"2"}`,
		"c.txt":       "not read",
		"single.yaml": "apiVersion: longhorn.io/v1beta2\nkind: Setting\nmetadata: {name: default-replica-count}\nvalue: 2\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := b.ok("apply", "-f", dir); out != "setting/default-replica-count changed: value {\"v1\":\"3\",\"v2\":\"3\"} -> 2\n"+
		"setting/log-level changed: value Info -> Debug\nsetting/default-replica-count unchanged\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("apply", "-f", filepath.Join(dir, "single.yaml")); out != "setting/default-replica-count unchanged\n" {
		t.Errorf("%q", out)
	}
}

// TestApplyLongFile: a file is read whole or not at all.
func TestApplyLongFile(t *testing.T) {
	head := "apiVersion: longhorn.io/v1beta2\nkind: Setting\nmetadata: {name: log-level}\nvalue: Debug\n#"
	text := head + strings.Repeat("x", maxManifest-len(head))
	if all, err := parseManifests("settings.yaml", strings.NewReader(text)); err != nil || len(all) != 1 {
		t.Errorf("%d objects, %v", len(all), err)
	}
	want := "settings.yaml is longer than 16777216 bytes"
	all, err := parseManifests("settings.yaml", strings.NewReader(text+"x"))
	if err == nil || err.Error() != want || all != nil {
		t.Errorf("%d objects, %v, want %q", len(all), err, want)
	}
}

// TestApplyRefuses: what is not understood refuses all before anything is done; what an object does
// not allow refuses that object, by name.
func TestApplyRefuses(t *testing.T) {
	b := newBed(t, cluster()...)
	head := "apiVersion: longhorn.io/v1beta2\n"
	volume := head + "kind: Volume\nmetadata: {name: demo}\n"
	for text, want := range map[string]string{
		"": "no objects in it",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: x}": `apiVersion is "v1"; apply takes longhorn.io/v1beta2`,
		head + "kind: Replica\nmetadata: {name: x}":      `apply does not know kind "Replica"; it knows EngineImage, Node`,
		head + "kind: Volume\nspec: {size: 1Gi}": "Volume has no " +
			"metadata.name",
		volume + "spec: {nodeID: node-1}": "volume/demo: apply cannot set spec.nodeID to node-1 (a volume is attached with: ankole volume attach)",
		volume + "spec: {sise: 1Gi}": "apply cannot set " +
			"spec.sise",
		volume + "spec: [":                     "document 1",
		volume + "spec: {size: 512Mi}":         "volume/demo: spec.size is 1Gi and cannot become smaller: 512Mi is wanted",
		volume + "spec: {size: lots}":          "spec.size: size \"lots\"",
		volume + "spec: {frontend: iscsi}":     "spec.frontend is blockdev and cannot be changed to iscsi: it is chosen when a volume is made",
		volume + "spec: {numberOfReplicas: 3}": "volume/demo: ",
		head + "kind: Volume\nmetadata: {name: none}": "without spec.size " +
			"none can be made",
		head + "kind: Node\nmetadata: {name: none}": "nodes appear when " +
			"the managers run",
		head + "kind: Node\nmetadata: {name: node-1}\nspec: {disks: {disk-1: {colour: red}}}": "apply does not know colour",
		head + "kind: Setting\nmetadata: {name: none}\nvalue: x": "list settings with: " +
			"ankole setting list",
		head + "kind: Setting\nmetadata: {name: log-level}":                                       "it has no value",
		head + "kind: Snapshot\nmetadata: {name: s}":                                              "it has no spec.volume",
		head + "kind: Snapshot\nmetadata: {name: s}\nspec: {volume: none}":                        "volume none not found",
		head + "kind: Snapshot\nmetadata: {name: s}\nspec: {volume: demo, createSnapshot: false}": "it describes one that is there",
		head + "kind: EngineImage\nmetadata: {name: s}":                                           "it has no spec.image",
		head + "kind: RecurringJob\nmetadata: {name: s}\nspec: {task: dance, cron: '@daily'}":     "recurring-job/s: ",
	} {
		r := b.apply(text)
		if r.status != exitError || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%s\n%+v, want %q", text, r, want)
		}
	}
	// The first is fine, the second is not understood: neither is done. The second fails: the first
	// stays.
	good := head + "kind: Setting\nmetadata: {name: log-level}\nvalue: Debug\n---\n"
	if r := b.apply(good + volume + "spec: {sise: 1Gi}"); r.status != exitError || strings.Contains(b.ok("setting",
		"get", "log-level"),
		"Debug") {
		t.Errorf("%+v", r)
	}
	if r := b.apply(good + volume + "spec: {size: 1Mi}"); r.status != exitError ||
		r.out != "setting/log-level changed: value Info -> Debug\n" ||
		!strings.Contains(r.err, "error: 1 of 2 failed\n") {
		t.Errorf("%+v", r)
	}
	if r := b.run("apply"); r.status != exitUsage || !strings.Contains(r.err, "the file is missing; add -f FILE") {
		t.Errorf("%+v", r)
	}
	if r := b.run("apply", "-f", "/nowhere.yaml"); r.status != exitError || !strings.Contains(r.err, "/nowhere.yaml") {
		t.Errorf("%+v", r)
	}
}

// TestApplyWhatTheServerShows: an object that was read from the cluster is unchanged.
func TestApplyWhatTheServerShows(t *testing.T) {
	b := newBed(t, cluster()...)
	text := `apiVersion: longhorn.io/v1beta2
kind: Volume
metadata: {name: demo, labels: {longhornvolume: demo}, resourceVersion: "12"}
spec:
  Standby: false
  accessMode: ""
  backingImage: ""
  backupBlockSize: "0"
  encrypted: false
  frontend: blockdev
  image: ` + resttest.Image + `
  nodeID: ""
  nodeSelector: []
  numberOfReplicas: 1
  size: "1073741824"
  snapshotMaxCount: 0
  snapshotMaxSize: "0"
status: {state: detached}
`
	if r := b.apply(text); r.status != exitOK || r.out != "volume/demo unchanged\n" {
		t.Errorf("%+v", r)
	}
}
