package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	commands "ankole.storage/cli/offline"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/offline"
)

const replicaName = "demo-1a2b3c4d"

// replicaDirectory makes a closed directory of ours: 16 MiB, two snapshots, a record.
func replicaDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), replicaName)
	fs := osdisk.New(nil)
	uuid := chain.UUID{0x0a, 0x0b, 15: 1}
	must(t, chain.Create(fs, dir, chain.Spec{Size: 16 << 20, VolumeUUID: uuid, Self: "demo-1a2b3c4d",
		Created: "2026-11-21T08:00:00Z"}, chain.Options{}))
	c, err := chain.Open(fs, dir, chain.Options{})
	must(t, err)
	must(t, c.Snapshot("before-upgrade", true, "2026-11-21T09:00:00Z", map[string]string{"app": "db", "tier": "1"}))
	must(t, c.Snapshot("c0ffee", false, "2026-11-21T10:00:00Z", nil))
	must(t, c.MarkRemoved("c0ffee"))
	must(t, c.WriteRecord(chain.Record{VolumeUUID: uuid, Promised: 9, Epoch: 8, Generation: 7, State: chain.MemberRW,
		Self:   "demo-1a2b3c4d",
		Engine: "demo-e-0#5f", Members: []chain.Member{{Name: "demo-1a2b3c4d"}, {Name: "demo-2b3c4d5e"},
			{Name: "demo-3c4d5e6f", Flags: 2}}}))
	must(t, c.WriteDirty([]chain.Region{}))
	must(t, c.Close())
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// runIn runs a command in a directory, so that temporary ones are not in what it prints.
func runIn(t *testing.T, dir string, args ...string) result {
	t.Helper()
	back, err := os.Getwd()
	must(t, err)
	t.Chdir(dir)
	defer t.Chdir(back)
	return runArgs(t.Context(), args...)
}

func TestReplicaInspect(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"replica-inspect": func(*testing.T, string) {},
		"replica-inspect-dirty": func(t *testing.T, dir string) {
			c, err := chain.Open(osdisk.New(nil), dir, chain.Options{})
			must(t, err)
			must(t, c.WriteDirty([]chain.Region{1, 3}))
			must(t, c.Abandon())
		},
		"replica-inspect-void": func(t *testing.T, dir string) {
			data, err := os.ReadFile(dir + "/volume.meta")
			must(t, err)
			other := strings.NewReplacer("AnkoleStamp", "Gone", "AnkoleSeal", "GoneToo").Replace(string(data))
			must(t, os.WriteFile(dir+"/volume.meta", []byte(other), 0o600))
		},
		"replica-inspect-damaged": func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/volume-snap-before-upgrade.img"))
			must(t, os.Truncate(dir+"/volume-snap-c0ffee.img", 5000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := replicaDirectory(t)
			spoil(t, dir)
			r := runIn(t, filepath.Dir(dir), "replica", "inspect", replicaName)
			if r.status != exitOK || r.err != "" {
				t.Fatalf("status %d, %s", r.status, r.err)
			}
			golden(t, name, r.out)
			var report offline.Report
			if err := json.Unmarshal([]byte(runArgs(t.Context(), "replica", "inspect", dir, "-o", "json").out),
				&report); err != nil || len(report.Layers) != 3 {
				t.Errorf("JSON: %+v, %v", report, err)
			}
		})
	}
}

// aTime is when an image was written to.
var aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

func TestReplicaHashAndExport(t *testing.T) {
	dir := replicaDirectory(t)
	image := filepath.Join(t.TempDir(), "image")
	const zeroes = "080acf35a507ac9849cfcba47dc2ad83e01b75663a516279c8b9d243b719643e" // sha256 of 16 MiB of zeroes
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"hash DIR", exitOK, zeroes + "  volume-head\n"},
		{"hash DIR --all", exitOK, zeroes + "  before-upgrade\n" + zeroes + "  c0ffee\n" + zeroes + "  volume-head\n"},
		{"hash DIR --snapshot c0ffee -o json", exitOK, `"sha256": "` + zeroes + `"`},
		{"hash DIR --snapshot nope", exitError,
			`there is no snapshot "nope" in DIR; there are: before-upgrade, c0ffee, volume-head`},
		{"hash DIR --all --snapshot c0ffee", exitError, "[all snapshot]"},
		{"hash DIR -o wide", exitUsage, `unknown output format "wide"; use one of json, yaml`},
		{"hash", exitUsage, "the replica's directory is missing"},
		{"hash DIR/nowhere", exitError, "there is no directory DIR/nowhere"},
		{"hash DIR/volume.meta", exitError, "is no directory"},
		{"hash DIR --size 12x", exitUsage, `size "12x"`},
		{"export DIR IMAGE", exitOK, "IMAGE written: volume-head of DIR, 16Mi, occupies "},
		{"export DIR IMAGE", exitError, "--force"},
		{"export DIR IMAGE --force", exitOK, "written"},
		{"export DIR IMAGE --format vmdk", exitUsage, "use one of raw, qcow2"},
		{"check DIR", exitOK, "DIR: nothing wrong"},
		{"check DIR --compare DIR", exitOK, "volume-head      equal            0   -"},
	} {
		t.Run(c.args, func(t *testing.T) {
			names := strings.NewReplacer("DIR", dir, "IMAGE", image)
			r := runArgs(t.Context(), append([]string{"replica"}, strings.Fields(names.Replace(c.args))...)...)
			if r.status != c.status || !strings.Contains(r.out+r.err, names.Replace(c.says)) {
				t.Errorf("status %d, want %d\n%s%s\nwant %s", r.status, c.status, r.out, r.err, c.says)
			}
		})
	}
}

func TestReplicaCheck(t *testing.T) {
	dir, other := replicaDirectory(t), replicaDirectory(t)
	f, err := os.OpenFile(other+"/volume-snap-c0ffee.img", os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("rot"), 12345)
	must(t, err)
	must(t, f.Close())
	must(t, os.Remove(other+"/ankole.reserve"))
	must(t, os.Rename(other, filepath.Join(filepath.Dir(dir), "other")))
	r := runIn(t, filepath.Dir(dir), "replica", "check", replicaName, "--compare", "other")
	if r.status != exitError || !strings.Contains(r.err, commands.ErrFound.Error()) {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	golden(t, "replica-check", aTime.ReplaceAllString(r.out, "2026-11-21T10:00:00.000Z"))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if r := runArgs(ctx, "replica", "check", dir); r.status != exitError || !strings.Contains(r.err, "interrupted") {
		t.Errorf("stopped: status %d, %s", r.status, r.err)
	}
}
