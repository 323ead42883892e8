package cli

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/rest/resttest"
	"ankole.storage/test/wait"
)

// TestDamagedCopiesAreNotCurrent: of a member of the record whose directory was found damaged it is
// not known what it holds.
func TestDamagedCopiesAreNotCurrent(t *testing.T) {
	for reason, want := range map[string]string{lh.InstanceReasonDirectoryDamaged: "damaged",
		lh.InstanceReasonInstanceCreationFailure: "current"} {
		objects := resttest.Volume("demo")
		v, e, r := objects[0].(*lh.Volume), objects[1].(*lh.Engine), objects[2].(*lh.Replica)
		v.UID, e.Spec.Active, r.Spec.Active = "uid", true, true
		r.Spec.DataDirectoryName, r.Spec.LastHealthyAt = "demo-1", "2026-05-03T10:00:00Z"
		e.Status.Membership = &lh.Membership{VolumeUUID: "uid", RecordEpoch: 3, Generation: 7, Members: []string{"demo-1"}}
		r.Status.Conditions = []lh.Condition{{Type: lh.InstanceConditionInstanceCreation, Status: lh.ConditionFalse,
			Reason: reason, Message: "exit status 65: /r/volume.meta is missing or empty"}}
		b := newBed(t, resttest.Cluster(objects...)...)
		var out bytes.Buffer
		status := Main([]string{"--server", b.url, "volume", "accept-data-loss", "demo"}, strings.NewReader(""), &out, &out)
		if text := out.String(); status != 0 || !strings.Contains(text, "demo-1  node-1 (ready)  "+want+"  last in sync") ||
			!strings.Contains(text, "/r/volume.meta is missing or empty") {
			t.Errorf("%s: %d %s", reason, status, text)
		}
	}
}

// TestAcceptDataLoss: what would be lost is shown, and only the volume's name accepts it.
func TestAcceptDataLoss(t *testing.T) {
	objects := resttest.Volume("demo")
	v, e, r := objects[0].(*lh.Volume), objects[1].(*lh.Engine), objects[2].(*lh.Replica)
	v.UID, e.Spec.Active, r.Spec.Active = "uid", true, true
	r.Spec.DataDirectoryName, r.Spec.LastHealthyAt = "demo-old", "2026-05-03T10:00:00Z"
	e.Status.Membership = &lh.Membership{VolumeUUID: "uid", RecordEpoch: 3, Generation: 7, Members: []string{"demo-gone"}}
	damage := "exit status 65: open replica directory /r: corrupt replica directory: volume.meta is empty"
	failed := func(text string) []lh.Condition {
		return []lh.Condition{{Type: lh.InstanceConditionInstanceCreation, Status: lh.ConditionFalse, Message: text}}
	}
	r.Status.Conditions = failed(damage)
	e.Status.Conditions = failed("exit status 61: record e3 g7 needs 1 of its members")
	b := newBed(t, resttest.Cluster(objects...)...)
	decided := func() string {
		var v lh.Volume
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: "demo"}, &v); err != nil {
			t.Fatal(err)
		}
		return v.Annotations[dataloss.Annotation]
	}
	run := func(answer string, more ...string) (int, string) {
		var out bytes.Buffer
		args := append([]string{"--server", b.url, "volume", "accept-data-loss", "demo"}, more...)
		return Main(args, strings.NewReader(answer), &out, &out), out.String()
	}
	status, text := run("")
	if status != 0 || !strings.Contains(text, "record 3/7: every acknowledged write is held by demo-gone") ||
		!strings.Contains(text, "demo-old  node-1 (ready)  lacks writes  last in sync 2026-05-03T10:00:00Z") ||
		!strings.Contains(text, "what it holds is not known: "+damage) ||
		!strings.Contains(text, "the last engine: exit status 61: record e3 g7 needs 1 of its members") {
		t.Errorf("%d %s", status, text)
	}
	for _, answer := range []string{"", "yes\n", "other\n"} {
		status, text := run(answer, "--copy", "demo-old")
		_, question, _ := strings.Cut(text, "Type the volume's name")
		if want := " to accept that: error: not accepted; nothing was changed\n"; status != exitError || question != want {
			t.Errorf("%q: %d %s", answer, status, text)
		}
	}
	if text := decided(); text != "" {
		t.Fatalf("decided without a word: %s", text)
	}
	status, text = run("demo\n", "--copy", "demo-old")
	want := "Given up: demo-gone. Lost: writes that were acknowledged after 2026-05-03T10:00:00Z"
	if status != 0 || !strings.Contains(text, want) || !strings.Contains(text, "accepted for record 3/7") ||
		decided() == "" {
		t.Errorf("%d %s", status, text)
	}
	if status, text := run("", "--copy", "demo-none", "--yes"); status == 0 || !strings.Contains(text, "is no copy") {
		t.Errorf("%d %s", status, text)
	}
}

// TestCreateLocal: replicas of a local volume have no places before it is attached, and nobody
// waits for them; those of another one are waited for.
func TestCreateLocal(t *testing.T) {
	b := newBed(t, cluster()...)
	for _, locality := range localities {
		name := "new-" + locality
		ended := make(chan result, 1)
		go func() {
			ended <- b.run("volume", "create", name, "--size", "1Gi", "--data-locality", locality, "--timeout", "3s")
		}()
		var v lh.Volume
		wait.Until(t, name+" is there", func() bool {
			return b.client.Get(t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, &v) == nil
		})
		v.Status.State = lh.VolumeStateDetached
		if err := b.client.Status().Update(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		r := <-ended
		if waits := locality == "disabled"; waits != (r.status != 0) {
			t.Errorf("%s: %+v", locality, r)
		}
	}
}

// TestCreateClone: the size is the source's, and progress is told until the content is whole.
func TestCreateClone(t *testing.T) {
	b := newBed(t, cluster()...)
	for from, want := range map[string]string{"demo": "vol://demo", "vol://demo": "vol://demo"} {
		name := strings.NewReplacer(":", "", "/", "").Replace("c-" + from)
		if r := b.run("volume", "create", name, "--from", from, "--wait=false"); r.status != 0 {
			t.Fatalf("%+v", r)
		}
		var v, source lh.Volume
		for n, into := range map[string]*lh.Volume{name: &v, "demo": &source} {
			if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: n}, into); err != nil {
				t.Fatal(err)
			}
		}
		if v.Spec.DataSource != want || v.Spec.Size != source.Spec.Size {
			t.Errorf("%s: %q of %d bytes, want %q of %d", from, v.Spec.DataSource, v.Spec.Size, want, source.Spec.Size)
		}
	}
	if r := b.run("volume", "create", "x-y", "--from", "demo/none"); r.status == 0 ||
		!strings.Contains(r.err, "has no snapshot none") {
		t.Errorf("%+v", r)
	}
	if r := b.run("volume", "create", "x-y", "--from", "nothing"); r.status == 0 ||
		!strings.Contains(r.err, "list volumes") {
		t.Errorf("%+v", r)
	}
}
