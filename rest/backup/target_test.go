package backup_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

func TestBackupTargetCreate(t *testing.T) {
	f := newFixture(t)
	const body = `{"name":"mine","backupTargetURL":"s3://b@r/p","credentialSecret":"s","pollInterval":"90"}`
	a := f.Do("POST", "/v1/backuptargets", body)
	if a.Status != http.StatusOK || a.JSON["type"] != resource.TypeBackupTarget || a.JSON["id"] != "mine" ||
		a.JSON["backupTargetURL"] != "s3://b@r/p" || a.JSON["credentialSecret"] != "s" || a.JSON["pollInterval"] != "1m30s" ||
		a.JSON["available"] != false {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	if url := a.JSON["actions"].(map[string]any)["backupTargetUpdate"]; url !=
		f.URL+"/v1/backuptargets/mine?action=backupTargetUpdate" {
		t.Errorf("action %v", url)
	}
	// The same name again is the target there is.
	a = f.Do("POST", "/v1/backuptargets", `{"name":"mine","backupTargetURL":"nfs://h:/a","pollInterval":"0"}`)
	if a.Status != http.StatusOK || a.JSON["backupTargetURL"] != "s3://b@r/p" || a.JSON["pollInterval"] != "1m30s" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	for body, why := range map[string]string{
		`{"name":"other"}`:                          "invalid backup target polling interval",
		`{"name":"other","pollInterval":"5m"}`:      "invalid backup target polling interval",
		`{"name":"other","pollInterval":"-1"}`:      "invalid backup target polling interval",
		`{"name":"other","pollInterval":300}`:       "pollInterval is a number; write a string",
		`{"name":"Other One","pollInterval":"300"}`: "invalid name",
		"": "EOF",
	} {
		f.Refused(f.Do("POST", "/v1/backuptargets", body), 500, why)
	}
}

func TestBackupTargetUpdate(t *testing.T) {
	asked := metav1.NewTime(resttest.Created)
	f := newFixture(t, &lh.BackupTarget{ObjectMeta: resttest.Meta("default"),
		Spec: lh.BackupTargetSpec{PollInterval: "300s", SyncRequestedAt: asked}},
		&lh.BackupTarget{ObjectMeta: resttest.Meta("second")})
	post := func(body string) apitest.Answer {
		return f.Do("POST", "/v1/backuptargets/second?action=backupTargetUpdate", body)
	}
	var before, after lh.BackupTarget
	f.Read("default", &before)
	if a := post(`{"name":"default","pollInterval":"300"}`); a.Status != http.StatusOK {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if f.Read("default", &after); after.ResourceVersion != before.ResourceVersion {
		t.Error("what changes nothing wrote the target")
	}
	a := post(`{"name":"default","backupTargetURL":"s3://b@r/p","credentialSecret":"s","pollInterval":"60"}`)
	if a.Status != http.StatusOK || a.JSON["id"] != "default" || a.JSON["pollInterval"] != "1m0s" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Read("default", &after)
	want := lh.BackupTargetSpec{BackupTargetURL: "s3://b@r/p", CredentialSecret: "s", PollInterval: "1m0s"}
	if !after.Spec.SyncRequestedAt.Equal(&asked) {
		t.Errorf("the sync that was asked for at %v is forgotten", asked)
	}
	if after.Spec.SyncRequestedAt = (metav1.Time{}); after.Spec != want {
		t.Errorf("spec %+v, want %+v", after.Spec, want)
	}
	f.Refused(post(`{"name":"nope","pollInterval":"60"}`), 404, "unable to update backup target nope")
	f.Refused(post(`{"name":"default","pollInterval":"soon"}`), 500, "invalid backup target polling interval")
	f.Refused(post(""), 500, "EOF")
}

func TestBackupTargetDelete(t *testing.T) {
	f := newFixture(t, &lh.BackupTarget{ObjectMeta: resttest.Meta("second")})
	if a := f.Do("DELETE", "/v1/backuptargets/second", ""); a.Status != http.StatusOK || a.Text != "" {
		t.Errorf("%d %q", a.Status, a.Text)
	}
	f.Refused(f.Do("DELETE", "/v1/backuptargets/second", ""), 404, "unable to delete backup target second")
}
