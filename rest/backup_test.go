package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

// oneOfEach is one object of each kind that is shown by itself; labels say what the backups are of.
func oneOfEach() []client.Object {
	meta := func(name string, labels ...string) metav1.ObjectMeta {
		m := resttest.Meta(name)
		m.Labels = map[string]string{}
		for i := 0; i+1 < len(labels); i += 2 {
			m.Labels[labels[i]] = labels[i+1]
		}
		return m
	}
	backup := func(name, volume, target string) *lh.Backup {
		return &lh.Backup{ObjectMeta: meta(name, "backup-volume", volume, "backup-target", target)}
	}
	failed := func(kind string) []lh.Condition {
		return []lh.Condition{{Type: kind, Status: lh.ConditionTrue, Reason: "Why", Message: "no room"}}
	}
	return []client.Object{
		&lh.BackupTarget{ObjectMeta: meta("default"), Spec: lh.BackupTargetSpec{PollInterval: "300s"},
			Status: lh.BackupTargetStatus{Conditions: failed("Unavailable")}},
		&lh.BackupVolume{ObjectMeta: meta("demo-1a2b3c4d"),
			Spec: lh.BackupVolumeSpec{VolumeName: "demo", BackupTargetName: "default"}},
		backup("backup-2", "demo", "default"), backup("backup-1", "demo", "default"),
		backup("backup-3", "demo", "second"), backup("backup-4", "other", "default"),
		&lh.BackupBackingImage{ObjectMeta: meta("image-1a2b3c4d")},
		&lh.BackingImage{ObjectMeta: meta("image")},
		&lh.SystemBackup{ObjectMeta: meta("whole"), Status: lh.SystemBackupStatus{Conditions: failed("Error")}},
		&lh.SystemRestore{ObjectMeta: meta("again"), Status: lh.SystemRestoreStatus{Conditions: failed("Error")}},
		&lh.SupportBundle{ObjectMeta: meta("support-bundle-1"), Status: lh.SupportBundleStatus{OwnerID: "node-1",
			Progress: 40, State: "Generating"}},
	}
}

// TestKindsShownByThemselves: list and object of each kind that no controller looks after yet, and
// what their schemas promise beyond what is served.
func TestKindsShownByThemselves(t *testing.T) {
	f := newFixture(t, oneOfEach()...)
	empty := newFixture(t)
	for _, tt := range []struct{ kind, path, name string }{
		{"backupTarget", "backuptargets", "default"}, {"backupVolume", "backupvolumes", "demo-1a2b3c4d"},
		{"backupBackingImage", "backupbackingimages", "image-1a2b3c4d"}, {"backingImage", "backingimages", "image"},
		{"systemBackup", "systembackups", "whole"}, {"systemRestore", "systemrestores", "again"},
		{"supportBundle", "supportbundles", "node-1/support-bundle-1"},
	} {
		list := f.Get("/v1/" + tt.path)
		data := list["data"].([]any)
		if list["resourceType"] != tt.kind || len(data) != 1 {
			t.Fatalf("%s: %v", tt.path, list)
		}
		one := f.Get("/v1/" + tt.path + "/" + tt.name)
		if !reflect.DeepEqual(one, data[0]) || one["type"] != tt.kind {
			t.Errorf("%s: alone %v, in the list %v", tt.path, one, data[0])
		}
		if self := one["links"].(map[string]any)["self"]; self != f.URL+"/v1/"+tt.path+"/"+fmt.Sprint(one["id"]) {
			t.Errorf("%s: link %v", tt.path, self)
		}
		none := empty.Get("/v1/" + tt.path)
		if data, ok := none["data"].([]any); !ok || len(data) != 0 || none["resourceType"] != tt.kind {
			t.Errorf("%s: %v, want an empty list", tt.path, none)
		}
		if tt.kind != resource.TypeBackupTarget && tt.kind != resource.TypeBackingImage {
			want := http.StatusMethodNotAllowed
			if apitest.Tables().Later["POST /v1/"+tt.path] != "" {
				want = http.StatusInternalServerError // with the name of what is missing
			}
			if a := f.Do("POST", "/v1/"+tt.path, "{}"); a.Status != want {
				t.Errorf("POST %s: %d %s", tt.path, a.Status, a.Text)
			}
		}
		if tt.kind == resource.TypeBackupVolume {
			continue // which is there whatever its name
		}
		f.Refused(f.Do("GET", "/v1/"+tt.path+"/"+tt.name+"x", ""), 404, "failed to get")
	}
}

// TestViewsThatSay has the fields that are worded for clients.
func TestViewsThatSay(t *testing.T) {
	f := newFixture(t, oneOfEach()...)
	for path, want := range map[string]map[string]any{
		"backuptargets/default": {"pollInterval": "5m0s", "available": false, "message": "no room"},
		"systembackups/whole":   {"error": "no room", "createdAt": "0001-01-01 00:00:00 +0000 UTC"},
		"systemrestores/again":  {"error": "no room", "createdAt": "2026-05-03 09:57:48 +0000 UTC"},
		"supportbundles/node-1/support-bundle-1": {"id": "node-1", "nodeID": "node-1", "name": "support-bundle-1",
			"errorMessage": ": ", "progressPercentage": 40.0, "state": "Generating"},
	} {
		have := f.Get("/v1/" + path)
		for key, value := range want {
			if have[key] != value {
				t.Errorf("%s: %s = %v, want %v", path, key, have[key], value)
			}
		}
	}
}

// TestBackupsOfAVolume: the backups that a backup volume stands for, and those of a volume by its
// own name.
func TestBackupsOfAVolume(t *testing.T) {
	volume := resttest.Volume("demo")
	volume[0].(*lh.Volume).Spec.BackupTargetName = "second"
	f := newFixture(t, append(oneOfEach(), volume...)...)
	post := func(of, action, body string) apitest.Answer {
		return f.Do("POST", "/v1/backupvolumes/"+of+"?action="+action, body)
	}
	names := func(a apitest.Answer) string {
		t.Helper()
		if a.Status != http.StatusOK || a.JSON["type"] != "collection" || a.JSON["resourceType"] != resource.TypeBackup {
			t.Fatalf("%d %s", a.Status, a.Text)
		}
		var out []string
		for _, b := range a.JSON["data"].([]any) {
			out = append(out, fmt.Sprint(b.(map[string]any)["name"]))
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct{ of, action, body, want string }{
		{"demo-1a2b3c4d", "backupList", "", "backup-1 backup-2"},
		{"nope", "backupList", "", ""},
		{"demo-1a2b3c4d", "backupListByVolume", `{"name":"demo"}`, "backup-1 backup-2"},
		{"demo-1a2b3c4d", "backupListByVolume", `{"name":"other"}`, "backup-4"},
		{"nope", "backupListByVolume", `{"name":"demo"}`, "backup-3"},
		{"nope", "backupListByVolume", `{"name":"nope"}`, ""},
	} {
		if have := names(post(tt.of, tt.action, tt.body)); have != tt.want {
			t.Errorf("%s %s of %s: %q, want %q", tt.action, tt.body, tt.of, have, tt.want)
		}
	}
	f.Refused(post("demo-1a2b3c4d", "backupListByVolume", `{}`), 500, "no volume named")
	f.Refused(post("demo-1a2b3c4d", "backupListByVolume", ""), 500, "EOF")
	a := post("demo-1a2b3c4d", "backupGet", `{"name":"backup-3"}`)
	if a.Status != http.StatusOK || a.JSON["type"] != resource.TypeBackup || a.JSON["id"] != "backup-3" ||
		a.JSON["volumeName"] != "demo" || a.JSON["backupTargetName"] != "second" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(post("demo-1a2b3c4d", "backupGet", `{}`), 500, "empty backup name is not allowed")
	f.Refused(post("demo-1a2b3c4d", "backupGet", `{"name":"nope"}`), 404, "failed to get backup nope")
	f.Refused(post("demo-1a2b3c4d", "backupGet", ""), 500, "EOF")
	if actions := f.Get("/v1/backupvolumes/demo-1a2b3c4d")["actions"].(map[string]any); len(actions) != 5 {
		t.Errorf("actions %v", actions)
	}
	// Clients that provision volumes read a backup volume before there is one.
	none := f.Get("/v1/backupvolumes/nope")
	if none["id"] != "nope" || none["name"] != "nope" || none["volumeName"] != "" || none["created"] != "" {
		t.Errorf("a backup volume that does not exist: %v", none)
	}
	if a := f.Do("GET", "/v1/backups", ""); a.Status != http.StatusNotFound {
		t.Errorf("backups have a route: %d", a.Status)
	}
}

// TestBackupFaults: what cannot be read is an error, and not an empty list or volume.
func TestBackupFaults(t *testing.T) {
	down := errors.New("down")
	f := newFixtureWith(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}, func(*rest.Config) {}, oneOfEach()...)
	const of = "/v1/backupvolumes/demo-1a2b3c4d"
	f.Refused(f.Do("GET", of, ""), 500, "failed to get backup volume demo-1a2b3c4d: down")
	f.Refused(f.Do("POST", of+"?action=backupList", ""), 500, "failed to get backup volume demo-1a2b3c4d: down")
	f.Refused(f.Do("POST", of+"?action=backupListByVolume", `{"name":"demo"}`), 500,
		"failed to find the backup target of volume demo: down")
	f.Refused(f.Do("POST", of+"?action=backupGet", `{"name":"backup-1"}`), 500, "failed to get backup backup-1: down")
	g := newFixtureWith(t, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
	}, func(*rest.Config) {}, oneOfEach()...)
	g.Refused(g.Do("POST", of+"?action=backupList", ""), 500, "listing backups: down")
	g.Refused(g.Do("GET", "/v1/backingimages", ""), 500, "listing backing images: down")
}

// TestLooksThatAreAskedFor: an action has a backup target or a backup volume compared with its
// store, once in ten seconds; a look at all of them leaves out those that were looked at just now.
func TestLooksThatAreAskedFor(t *testing.T) {
	f := newFixture(t, oneOfEach()...)
	asked := func() (target, volume bool) {
		var b lh.BackupTarget
		var v lh.BackupVolume
		f.Read("default", &b)
		f.Read("demo-1a2b3c4d", &v)
		return !b.Spec.SyncRequestedAt.IsZero(), !v.Spec.SyncRequestedAt.IsZero()
	}
	for _, tt := range []struct {
		method, path, body, refusal string
		target, volume              bool
	}{
		{"POST", "/v1/backuptargets/default?action=backupTargetSync", `{"syncBackupTarget":false}`, "", false, false},
		{"POST", "/v1/backuptargets/default?action=backupTargetSync", `{"syncBackupTarget":true}`, "", true, false},
		{"POST", "/v1/backuptargets/default?action=backupTargetSync", `{"syncBackupTarget":true}`,
			"cannot synchronize backup target default in 10 seconds", true, false},
		{"PUT", "/v1/backuptargets", `{"syncAllBackupTargets":true}`, "", true, false},
		{"PUT", "/v1/backupvolumes", `{"syncAllBackupVolumes":true}`, "", true, true},
		{"POST", "/v1/backupvolumes/demo-1a2b3c4d?action=backupVolumeSync", `{"syncBackupVolume":true}`,
			"cannot synchronize backup volume demo-1a2b3c4d in 10 seconds", true, true},
	} {
		a := f.Do(tt.method, tt.path, tt.body)
		if (a.Status == http.StatusOK) != (tt.refusal == "") || !strings.Contains(a.Text, tt.refusal) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.Status, a.Text)
		}
		if target, volume := asked(); target != tt.target || volume != tt.volume {
			t.Errorf("%s %s: asked for looks at the target %v, at the backup volume %v", tt.method, tt.path, target, volume)
		}
	}
}
