package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// act sends an action of a volume and decodes its answer.
func (c *cluster) act(volume, action, body string, into any) {
	c.t.Helper()
	status, text := c.call(c.t, "POST", strings.TrimSuffix(c.API, "/v1")+"/v1/volumes/"+volume+"?action="+action,
		strings.NewReader(body))
	if status != 200 {
		c.t.Fatalf("%s %s of %s: %d %s", action, body, volume, status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		c.t.Fatal(err)
	}
}

// locality sets the data locality of a volume and checks the answer.
func (c *cluster) locality(volume, value string) {
	c.t.Helper()
	var v resource.Volume
	if c.act(volume, "updateDataLocality", `{"dataLocality":"`+value+`"}`, &v); v.DataLocality != value {
		c.t.Fatalf("data locality of %s is %s, want %s", volume, v.DataLocality, value)
	}
}

// inSync waits until a volume has exactly so many replicas, all in sync, of which more is true too.
func (c *cluster) inSync(volume string, replicas int, more func([]longhorn.Replica) error) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s has %d replicas in sync", volume, replicas), func(ctx context.Context) error {
		v, err := c.rest.Volume(ctx, volume)
		if err != nil {
			return err
		}
		for _, r := range v.Replicas {
			if r.Mode != "RW" {
				return fmt.Errorf("replica %s on %s has mode %q", r.Name, r.HostID, r.Mode)
			}
		}
		if len(v.Replicas) != replicas {
			return fmt.Errorf("%d replicas", len(v.Replicas))
		}
		return more(c.replicasOf(volume))
	})
}

func anyReplicas([]longhorn.Replica) error { return nil }

// scenarioD4: data locality is changed by REST while the volume is attached to a node without a
// replica. best-effort moves one there; disabled stops that: the local one, deleted, is replaced by
// one that is bound to no node.
func scenarioD4(t *testing.T, c *cluster) {
	const name = "d4"
	c.create(name, 64*mib, 2)
	defer c.remove(name)
	c.eventually("two replicas are placed", func(context.Context) error {
		if at := c.nodesOf(name); len(at) != 2 || at[0] == "" {
			return fmt.Errorf("replicas on %v", at)
		}
		return nil
	})
	had := c.nodesOf(name)
	node := "node-1"
	for _, n := range []string{"node-2", "node-3"} {
		if slices.Contains(had, node) {
			node = n
		}
	}
	c.attach(name, node, 2)
	c.locality(name, "best-effort")
	c.inSync(name, 2, func(replicas []longhorn.Replica) error {
		for _, r := range replicas {
			if r.Spec.NodeID == node {
				return nil
			}
		}
		return fmt.Errorf("none on %s", node)
	})
	c.locality(name, "disabled")
	if _, err := c.rest.UpdateReplicaCount(context.Background(), name, 3); err != nil {
		t.Fatal(err)
	}
	c.inSync(name, 3, anyReplicas)
	local := c.replicaOn(name, node)
	if _, err := c.rest.RemoveReplica(context.Background(), name, local); err != nil {
		t.Fatal(err)
	}
	c.inSync(name, 3, func(replicas []longhorn.Replica) error {
		for _, r := range replicas {
			if r.Name == local {
				return fmt.Errorf("replica %s is still there", local)
			}
			if r.Spec.NodeID == node && r.Spec.HardNodeAffinity != "" {
				t.Errorf("replica %s is bound to %s", r.Name, r.Spec.HardNodeAffinity)
			}
		}
		return nil
	})
	c.detach(name)
}

// updates: every update that changes what a volume has is accepted by the API server with its
// schema and its webhooks, offered as an action, and shown; jobs too.
func updates(t *testing.T, c *cluster) {
	const name = "updated"
	c.create(name, 64*mib, 1)
	defer c.remove(name)
	c.awaitDetached(name)
	for _, u := range []struct{ action, body, shows string }{
		{"updateAccessMode", `{"accessMode":"rwx"}`, `"accessMode":"rwx"`},
		{"updateReplicaAutoBalance", `{"replicaAutoBalance":"least-effort"}`, `"replicaAutoBalance":"least-effort"`},
		{"updateRebuildConcurrentSyncLimit", `{"rebuildConcurrentSyncLimit":5}`, `"rebuildConcurrentSyncLimit":5`},
		{"updateUnmapMarkSnapChainRemoved", `{"unmapMarkSnapChainRemoved":"enabled"}`,
			`"unmapMarkSnapChainRemoved":"enabled"`},
		{"updateSnapshotDataIntegrity", `{"snapshotDataIntegrity":"fast-check"}`, `"snapshotDataIntegrity":"fast-check"`},
		{"updateSnapshotMaxCount", `{"snapshotMaxCount":9}`, `"snapshotMaxCount":9`},
		{"updateSnapshotMaxSize", `{"snapshotMaxSize":"128Mi"}`, `"snapshotMaxSize":"134217728"`},
		{"updateBackupTargetName", `{"backupTargetName":"default"}`, `"backupTargetName":"default"`},
		{"updateFreezeFilesystemForSnapshot", `{"freezeFilesystemForSnapshot":"disabled"}`,
			`"freezeFilesystemForSnapshot":"disabled"`},
		{"updateReplicaSoftAntiAffinity", `{"replicaSoftAntiAffinity":"enabled"}`, `"replicaSoftAntiAffinity":"enabled"`},
		{"updateReplicaZoneSoftAntiAffinity", `{"replicaZoneSoftAntiAffinity":"enabled"}`,
			`"replicaZoneSoftAntiAffinity":"enabled"`},
		{"updateReplicaDiskSoftAntiAffinity", `{"replicaDiskSoftAntiAffinity":"enabled"}`,
			`"replicaDiskSoftAntiAffinity":"enabled"`},
		{"offlineReplicaRebuilding", `{"offlineRebuilding":"enabled"}`, `"offlineRebuilding":"enabled"`},
		{"recurringJobAdd", `{"name":"nightly"}`, `"id":"nightly"`},
		{"recurringJobAdd", `{"name":"all","isGroup":true}`, `"isGroup":true`},
		{"recurringJobList", ``, `"id":"all"`},
	} {
		if c.volume(name).Actions[u.action] == "" {
			t.Errorf("%s is not offered", u.action)
		}
		var answer json.RawMessage
		if c.act(name, u.action, u.body, &answer); !strings.Contains(string(answer), u.shows) {
			t.Errorf("%s answers %s, want %s in it", u.action, answer, u.shows)
		}
	}
	objectsByREST(t, c)
	var jobs resource.Collection[resource.VolumeRecurringJob]
	// Group default was added when the volume was made.
	if c.act(name, "recurringJobList", "", &jobs); len(jobs.Data) != 2 || jobs.Data[0].Name != "all" ||
		jobs.Data[1].Name != "default" {
		t.Errorf("after the job's deletion the volume follows %+v", jobs.Data)
	}
}

// objectsByREST makes, changes and deletes a recurring job and a backup target, as the API server
// and its webhooks let it; volume updated follows both meanwhile.
func objectsByREST(t *testing.T, c *cluster) {
	base := strings.TrimSuffix(c.API, "/v1") + "/v1"
	for _, r := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/recurringjobs", `{"name":"Nightly","task":"snapshot","cron":"0 3 * * *","groups":["all"]}`, 200, `"concurrency":10`},
		{"POST", "/recurringjobs", `{"name":"nightly","task":"snapshot","cron":"0 3 * * *"}`, 500, "already exists"},
		{"POST", "/recurringjobs", `{"name":"other","task":"snapshot","cron":"3 o'clock"}`, 500, "invalid cron format"},
		{"POST", "/recurringjobs", `{"name":"other","task":"dance","cron":"0 3 * * *"}`, 500, "task"},
		{"PUT", "/recurringjobs/nightly", `{"cron":"@hourly","retain":101}`, 500, "should be less than or equal to 100"},
		{"PUT", "/recurringjobs/nightly", `{"cron":"@hourly","retain":3}`, 200, `"groups":[]`},
		{"GET", "/recurringjobs/nightly", "", 200, `"cron":"@hourly"`},
		{"DELETE", "/recurringjobs/nightly", "", 200, ""},
		{"GET", "/recurringjobs/nightly", "", 404, "not found"},
		{"POST", "/backuptargets", `{"name":"second","backupTargetURL":"s3://b@r/p","pollInterval":"300"}`, 200, `"5m0s"`},
		{"POST", "/backuptargets", `{"name":"third","backupTargetURL":"s3://b@r/p/","pollInterval":"300"}`, 500,
			"backup target second is at"},
		{"POST", "/backuptargets/second?action=backupTargetUpdate",
			`{"name":"second","backupTargetURL":"nfs://host:/a?nfsOptions=hard","pollInterval":"0"}`, 200,
			"nfsOptions=soft,timeo=300,retry=2"},
		{"POST", "/volumes/updated?action=updateBackupTargetName", `{"backupTargetName":"second"}`, 200,
			`"backupTargetName":"second"`},
		{"POST", "/volumes/updated?action=updateBackupTargetName", `{"backupTargetName":"default"}`, 200,
			`"backupTargetName":"default"`},
		{"DELETE", "/backuptargets/default", "", 500, "deleting default backup target is not allowed"},
		{"DELETE", "/backuptargets/second", "", 200, ""},
	} {
		status, text := c.call(t, r.method, base+r.path, strings.NewReader(r.body))
		if status != r.status || !strings.Contains(text, r.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", r.method, r.body, status, text, r.status, r.want)
		}
	}
	c.eventually("the backup target is gone, whose backup volumes go first", func(context.Context) error {
		if status, text := c.call(t, "GET", base+"/backuptargets/second", nil); status != 404 {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
}
