package backupimage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// scene is a backup of image golden on target default, and what there is besides.
type scene struct {
	b *v1beta2.BackupBackingImage
	s seen
}

type edit func(*scene)

func newScene(edits ...edit) *scene {
	c := &scene{b: &v1beta2.BackupBackingImage{ObjectMeta: metav1.ObjectMeta{Name: "golden-1a2b3c4d", UID: "u1",
		Finalizers: []string{v1beta2.Finalizer}},
		Spec:   v1beta2.BackupBackingImageSpec{BackingImage: "golden", BackupTargetName: "default", UserCreated: true},
		Status: v1beta2.BackupBackingImageStatus{OwnerID: "n1", BackingImage: "golden"}}}
	c.s = seen{Owner: "n1", From: "10.0.0.1:8000", Image: &v1beta2.BackingImage{ObjectMeta: metav1.ObjectMeta{
		Name: "golden"}}}
	c.s.Target = &v1beta2.BackupTarget{ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: v1beta2.BackupTargetSpec{BackupTargetURL: "s3://b@r/"}}
	c.s.Target.Status.Available = true
	for _, e := range edits {
		e(c)
	}
	return c
}

func state(s v1beta2.BackupState) edit { return func(c *scene) { c.b.Status.State = s } }

func ordered(c *scene) { c.b.Status.ManagerAddress = "10.0.0.1:8000" }

func mirrored(c *scene) { c.b.Spec.UserCreated = false }

func deleted(c *scene) { c.b.DeletionTimestamp = &metav1.Time{Time: t0} }

// errand is the latest one, which ended ago before t0.
func errand(order string, ago time.Duration, err error, r outcome) edit {
	return func(c *scene) {
		c.s.Errand = store.Errand[outcome]{Order: named(c.b, order), Over: true, Began: t0.Add(-ago), Ended: t0.Add(-ago),
			Err: err, Result: r}
		if err != nil {
			c.s.Errand.Failures = 1
		}
	}
}

func failures(n int) edit { return func(c *scene) { c.s.Errand.Failures = n } }

func running(order string) edit {
	return func(c *scene) { c.s.Errand = store.Errand[outcome]{Order: named(c.b, order)} }
}

func told(state, why string) outcome {
	return outcome{Progress: &bimrpc.BackupStatusResponse{Progress: 40, State: state, Error: why, BackupUrl: "u"}}
}

func held(created string) outcome {
	return outcome{Info: &engineclient.BackupImage{Name: "golden", URL: "u", Size: 512, Checksum: "0a", Created: created}}
}

func show(d loop.Decision) string {
	what := ""
	if d.Do != nil {
		what = d.Do.String()
	}
	if d.After > 0 {
		what += " after " + d.After.String()
	}
	return strings.TrimSpace(what)
}

// TestDecide is the table of docs/design/backups.md.
func TestDecide(t *testing.T) {
	const create, follow = "back up backing image golden", "ask for the progress of backup golden-1a2b3c4d"
	const inspect = "read backup golden-1a2b3c4d in the store"
	const remove = "remove backup golden-1a2b3c4d from the store"
	const again = "make backup golden-1a2b3c4d again"
	const pending, progress = v1beta2.BackupStatePending, v1beta2.BackupStateInProgress
	const done, failed = v1beta2.BackupStateCompleted, v1beta2.BackupStateError
	no := errors.New("no")
	gone, bad := fmt.Errorf("x: %w", engineclient.ErrNotFound), fmt.Errorf("x: %w", engineclient.ErrInvalid)
	release := "update *v1beta2.BackupBackingImage golden-1a2b3c4d"
	for _, tt := range []struct {
		name  string
		scene *scene
		want  string
		state v1beta2.BackupState
		says  string
	}{
		{"new", newScene(), "", pending, ""},
		{"is ordered", newScene(state(pending)), create, pending, ""},
		{"no image", newScene(state(pending), func(c *scene) { c.s.Image = nil }), "", failed, "golden does not exist"},
		{"no target", newScene(state(pending), func(c *scene) { c.s.Target = nil }), "", failed, "default does not exist"},
		{"a target that is away", newScene(state(pending), func(c *scene) { c.s.Target.Status.Available = false }), "",
			pending, "not available"},
		{"a Pod that may not mount", newScene(state(pending), func(c *scene) { c.s.From, c.s.Unable = "", "bim-1" }), "",
			pending, "bim-1 is replaced"},
		{"no copy", newScene(state(pending), func(c *scene) { c.s.From = "" }), "", pending, "ready"},
		{"the order is under way", newScene(state(pending), ordered, running(orderCreate)), "", pending, "answer"},
		{"the order is taken", newScene(state(pending), ordered, errand(orderCreate, 0, nil, outcome{})), "", progress, ""},
		{"the order failed", newScene(state(pending), ordered, errand(orderCreate, time.Second, no, outcome{})),
			"after 9s", pending, "no"},
		{"it is given again", newScene(state(pending), ordered, errand(orderCreate, time.Minute, no, outcome{})), create,
			pending, ""},
		{"not for ever", newScene(state(pending), ordered, errand(orderCreate, 0, no, outcome{}), failures(5)), "", failed,
			"no"},
		{"it is wrong", newScene(state(pending), errand(orderCreate, 0, bad, outcome{})), "", failed, "invalid"},
		{"in progress", newScene(state(progress), ordered), follow, progress, ""},
		{"it is told of", newScene(state(progress), ordered, errand(orderFollow, time.Second, nil, told("in_progress", ""))),
			"after 1s", progress, ""},
		{"and again", newScene(state(progress), ordered, errand(orderFollow, 3*time.Second, nil, told("in_progress", ""))),
			follow, progress, ""},
		{"it fails", newScene(state(progress), ordered, errand(orderFollow, 0, nil, told("error", "full"))), "", failed,
			"full"},
		{"it is complete", newScene(state(progress), ordered, errand(orderFollow, 0, nil, told("complete", ""))), inspect,
			progress, ""},
		{"the manager has ended", newScene(state(progress), ordered, errand(orderFollow, 0, gone, outcome{})), inspect,
			progress, ""},
		{"it does not answer", newScene(state(progress), ordered, errand(orderFollow, time.Second, no, outcome{})),
			"after 9s", progress, ""},
		{"for long", newScene(state(progress), ordered, errand(orderFollow, 0, no, outcome{}), failures(5)), inspect,
			progress, ""},
		{"the store is read", newScene(state(progress), ordered, running(orderInspect)), "", progress, ""},
		{"the store has it", newScene(state(progress), ordered, errand(orderInspect, 0, nil, held("2026-01-02T03:04:05Z"))),
			"", done, ""},
		{"the store has a part", newScene(state(progress), ordered, errand(orderInspect, 0, nil, held(""))), again,
			pending, "made again"},
		{"the store does not have it", newScene(state(progress), ordered, errand(orderInspect, 0, gone, outcome{})), again,
			pending, "made again"},
		{"managers end again and again", newScene(state(progress), ordered, errand(orderInspect, 0, gone, outcome{}),
			func(c *scene) { c.s.Lost = mostTries }), "", failed, "6 times"},
		{"the manager serves no more", newScene(state(progress), ordered, func(c *scene) { c.s.Ended = true },
			errand(orderFollow, 0, nil, told("in_progress", ""))), inspect, progress, ""},
		{"it does, and is being asked", newScene(state(progress), ordered, func(c *scene) { c.s.Ended = true },
			running(orderFollow)), "", progress, ""},
		{"the store is away", newScene(state(progress), ordered, errand(orderInspect, time.Second, no, outcome{})),
			"after 9s", progress, "no"},
		{"completed", newScene(state(done)), "", done, ""},
		{"has failed", newScene(state(failed)), "", failed, ""},

		{"of the store", newScene(mirrored), inspect, "", ""},
		{"is read", newScene(mirrored, errand(orderInspect, 0, nil, held("2026-01-02T03:04:05Z"))), "", done, ""},
		{"is made elsewhere", newScene(mirrored, errand(orderInspect, 0, nil, held(""))), "", progress, "another cluster"},
		{"cannot be read", newScene(mirrored, errand(orderInspect, time.Second, no, outcome{})), "after 59s", "", "no"},
		{"was read", newScene(mirrored, state(done), func(c *scene) { c.b.Status.LastSyncedAt = metav1.NewTime(t0) }), "",
			done, ""},
		{"is asked for", newScene(mirrored, state(done), func(c *scene) { c.b.Spec.SyncRequestedAt = metav1.NewTime(t0) }),
			inspect, done, ""},

		{"deleted", newScene(deleted, state(done), ordered), remove, done, ""},
		{"is removed", newScene(deleted, state(done), ordered, running(orderRemove)), "", v1beta2.BackupStateDeleting, ""},
		{"was removed", newScene(deleted, state(done), ordered, errand(orderRemove, 0, nil, outcome{})), release, done, ""},
		{"cannot be removed", newScene(deleted, state(done), ordered, errand(orderRemove, time.Second, no, outcome{})),
			"after 59s", done, "no"},
		{"never ordered", newScene(deleted, state(pending)), release, pending, ""},
		{"the object only", newScene(deleted, mirrored, func(c *scene) {
			c.b.Labels = map[string]string{naming.LabelDeleteObjectOnly: "true"}
		}), release, "", ""},
		{"the target is gone", newScene(deleted, state(done), func(c *scene) { c.s.Target = nil }), release, done, ""},
		{"the target has no URL", newScene(deleted, state(done), func(c *scene) { c.s.Target.Spec.BackupTargetURL = "" }),
			"", done, "no URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(t0, tt.scene.b, tt.scene.s)
			st := tt.scene.b.Status
			if got := show(d); got != tt.want || st.State != tt.state ||
				!strings.Contains(fmt.Sprint(st.Messages), tt.says) {
				t.Errorf("%q, %q, %v; want %q, %q, %q", got, st.State, st.Messages, tt.want, tt.state, tt.says)
			}
		})
	}
}

// TestLostAndDeleted: of a backup whose manager has ended the store may have a part. It goes with
// the object even if that is deleted before another manager is ordered.
func TestLostAndDeleted(t *testing.T) {
	c := newScene(state(v1beta2.BackupStateInProgress), ordered,
		errand(orderInspect, 0, engineclient.ErrNotFound, outcome{}))
	if d := decide(t0, c.b, c.s); show(d) == "" || c.b.Status.State != v1beta2.BackupStatePending {
		t.Fatalf("%q, %q", show(d), c.b.Status.State)
	}
	deleted(c)
	if d := decide(t0, c.b, c.s); !strings.Contains(show(d), "remove backup") {
		t.Errorf("the deleted object: %q", show(d))
	}
}

// TestCompleted: what the store says is in the object.
func TestCompleted(t *testing.T) {
	c := newScene(state(v1beta2.BackupStateInProgress), errand(orderInspect, 0, nil, outcome{
		Info: &engineclient.BackupImage{Name: "golden", URL: "u", Size: 512, Checksum: "0a", Created: "2026-01-02T03:04:05Z",
			CompressionMethod: "lz4", Labels: map[string]string{"k": "v"}, Secret: "s", SecretNamespace: "ns"}}))
	decide(t0, c.b, c.s)
	if st := c.b.Status; st.URL != "u" || st.Size != 512 || st.Checksum != "0a" || st.BackupCreatedAt == "" ||
		st.CompressionMethod != "lz4" || st.Labels["k"] != "v" || st.Secret != "s" || st.SecretNamespace != "ns" ||
		st.Progress != 100 || !st.LastSyncedAt.Time.Equal(t0) {
		t.Errorf("%+v", st)
	}
}

// TestRequest: the order has what the image, the target and the settings say, and says that the
// backup is encrypted where the Secret has a key.
func TestRequest(t *testing.T) {
	c := newScene(func(c *scene) {
		c.b.Spec.Labels = map[string]string{"b": "2", "a": "1"}
		c.s.Image.Status.UUID, c.s.Image.Status.Checksum = "u", "0a"
	})
	values := setting.Values{setting.BackupCompressionMethod: "gzip", setting.BackupConcurrentLimit: "3"}
	q := requestOf(c.b, c.s.Image, c.s.Target, map[string]string{"BACKUP_ENCRYPTION_KEY": "k"}, values)
	if got := q.Parameters["node-bandwidth"]; got != "" {
		t.Errorf("a bandwidth of %s, and no setting says one", got)
	}
	values[setting.BackupBandwidthLimit] = "5"
	if got := requestOf(c.b, c.s.Image, c.s.Target, nil, values).Parameters["node-bandwidth"]; got != "5242880" {
		t.Errorf("a bandwidth of %q, and the setting says 5 MiB", got)
	}
	if q.Name != "golden" || q.Uuid != "u" || q.Checksum != "0a" || q.BackupTarget != "s3://b@r/" ||
		q.CompressionMethod != "encrypted-gzip" || q.ConcurrentLimit != 3 || strings.Join(q.Labels, " ") != "a=1 b=2" {
		t.Errorf("%v", q)
	}
}

// TestEnded: a manager that is not there any more has ended, and one that nobody hears has not.
func TestEnded(t *testing.T) {
	manager := func(ip string, state v1beta2.BackingImageManagerState, image string) v1beta2.BackingImageManager {
		return v1beta2.BackingImageManager{Status: v1beta2.BackingImageManagerStatus{IP: ip, CurrentState: state,
			BackingImageFileMap: map[string]v1beta2.BackingImageFileInfo{image: {}}}}
	}
	const running, unknown = v1beta2.BackingImageManagerStateRunning, v1beta2.BackingImageManagerStateUnknown
	for _, tt := range []struct {
		name    string
		all     []v1beta2.BackingImageManager
		ordered bool
		want    bool
	}{
		{"serves", []v1beta2.BackingImageManager{manager("10.0.0.1", running, "golden")}, true, false},
		{"another one serves", []v1beta2.BackingImageManager{manager("10.0.0.2", running, "golden")}, true, true},
		{"starts", []v1beta2.BackingImageManager{manager("", "starting", "golden")}, true, true},
		{"is not heard", []v1beta2.BackingImageManager{manager("", unknown, "golden")}, true, false},
		{"one of other images is not heard", []v1beta2.BackingImageManager{manager("", unknown, "other")}, true, true},
		{"there is none", nil, true, true},
		{"none was ordered", nil, false, false},
	} {
		c := newScene()
		if tt.ordered {
			ordered(c)
		}
		if got := ended(tt.all, c.b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
