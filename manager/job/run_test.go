package job

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// world is a job j and some volumes, with the part of their controllers that a run sees: an ordered
// snapshot is taken at once, a deleted one is gone, and a ticket attaches a volume.
type world struct {
	client.Client
	t   *testing.T
	cfg Config
	// idle: controllers do nothing.
	idle bool
	// written is the size of snapshots that are taken, parent the layer below them. broken is why
	// backups fail, waits what they wait for.
	written               int64
	parent, broken, waits string
	// stuck is a volume whose snapshots cannot be taken; why is what orders wait for.
	stuck, why string

	mu sync.Mutex
	// did are the orders, in sequence.
	did     []string
	trimmed []string
	// taking is called for each snapshot that is ordered, with its volume.
	taking func(volume string)
}

func newWorld(t *testing.T, j v1beta2.RecurringJobSpec, objects ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t}
	j.RetentionPolicy, j.Groups = v1beta2.RetentionPolicyCountBased, []string{"default"}
	objects = append(objects, &v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Spec: j},
		&v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n1"}, Status: v1beta2.NodeStatus{
			Conditions: []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}}}})
	w.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithStatusSubresource(&v1beta2.RecurringJob{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: w.create, Delete: w.delete, Update: w.update}).Build()
	w.cfg = Config{Job: "j", Namespace: "ns", Pod: "pod-1", Client: w.Client, Every: time.Millisecond,
		Trim: func(_ context.Context, volume string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.trimmed = append(w.trimmed, volume)
			return nil
		}}
	return w
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, what)
}

func (w *world) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if s, ok := o.(*v1beta2.Snapshot); ok {
		w.note("take " + s.Spec.Volume)
		if w.taking != nil {
			w.taking(s.Spec.Volume)
		}
		s.Status.Error = w.why
		if !w.idle && s.Spec.Volume != w.stuck {
			s.Status.CreationTime = time.Now().UTC().Format(time.RFC3339)
			s.Status.Size, s.Status.Parent = w.written, w.parent
		}
	}
	if b, ok := o.(*v1beta2.Backup); ok {
		w.note("back up " + b.Labels[naming.LabelBackupVolume])
		b.Status.State, b.Status.SnapshotName = v1beta2.BackupStateCompleted, b.Spec.SnapshotName
		b.Status.SnapshotCreatedAt = time.Now().UTC().Format(time.RFC3339)
		switch {
		case w.broken != "":
			b.Status.State, b.Status.Error = v1beta2.BackupStateError, w.broken
		case w.waits != "":
			b.Status.State = v1beta2.BackupStatePending
			b.Status.Messages = map[string]string{v1beta2.BackupMessageInfo: w.waits}
		}
	}
	return c.Create(ctx, o, opts...)
}

func (w *world) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	w.note("delete " + o.GetName())
	return c.Delete(ctx, o, opts...)
}

func (w *world) update(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	a, ok := o.(*v1beta2.VolumeAttachment)
	if !ok {
		return c.Update(ctx, o, opts...)
	}
	var v v1beta2.Volume
	if err := c.Get(ctx, client.ObjectKeyFromObject(a), &v); err != nil {
		return err
	}
	v.Spec.NodeID, v.Status.State = "", v1beta2.VolumeStateDetached
	for id, ticket := range a.Spec.AttachmentTickets {
		w.note("hold " + a.Name + " by " + id)
		if !w.idle {
			v.Spec.NodeID, v.Status.State = ticket.NodeID, v1beta2.VolumeStateAttached
		}
	}
	if len(a.Spec.AttachmentTickets) == 0 {
		w.note("release " + a.Name)
	}
	return errors.Join(c.Update(ctx, &v), c.Update(ctx, o, opts...))
}

// vol is a volume with its attachment.
func vol(name string, state v1beta2.VolumeState) []client.Object {
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	v.Status.State, v.Status.OwnerID, v.Spec.BackupTargetName = state, "n1", "default"
	if state == v1beta2.VolumeStateAttached {
		v.Spec.NodeID = "n1"
	}
	return []client.Object{v, &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1beta2.VolumeAttachmentSpec{Volume: name}}}
}

func onVolume(volume string, s v1beta2.Snapshot) *v1beta2.Snapshot {
	s.Spec.Volume, s.Labels = volume, naming.VolumeLabels(volume)
	return &s
}

func setTo(name, value string) client.Object {
	return &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Value: value}
}

func (w *world) job() *v1beta2.RecurringJob {
	w.t.Helper()
	var j v1beta2.RecurringJob
	if err := w.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: "j"}, &j); err != nil {
		w.t.Fatal(err)
	}
	return &j
}

// taken are the snapshots of a volume that the job made.
func (w *world) taken(volume string) (out []v1beta2.Snapshot) {
	w.t.Helper()
	var all v1beta2.SnapshotList
	if err := w.List(context.Background(), &all, client.MatchingLabels(naming.VolumeLabels(volume))); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all.Items {
		if madeBy(&s, "j") {
			out = append(out, s)
		}
	}
	return out
}

// TestRun: each volume that follows the job gets its snapshot, with the labels of the job, once per
// Pod; the oldest goes before.
func TestRun(t *testing.T) {
	other := vol("other", v1beta2.VolumeStateAttached)
	other[0].SetLabels(map[string]string{"recurring-job.longhorn.io/another": "enabled"})
	w := newWorld(t, v1beta2.RecurringJobSpec{Task: "snapshot", Retain: 2, Concurrency: 2,
		Labels: map[string]string{"by": "night"}}, slices.Concat(other,
		vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateAttached), []client.Object{
			onVolume("a", snap("a-old", 2, "j")), onVolume("a", snap("a-new", 1, "j")),
			onVolume("a", snap("a-user", 3, ""))})...)
	for range 2 { // a run that is repeated in its Pod takes no second snapshot
		if err := Run(context.Background(), w.cfg); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := w.taken("a"), w.taken("b"); len(a) != 2 || len(b) != 1 || len(w.taken("other")) != 0 {
		t.Errorf("taken: %v and %v", a, b)
	} else if s := b[0]; s.Spec.Labels["by"] != "night" || s.Spec.Labels["RecurringJob"] != "j" ||
		!s.Spec.CreateSnapshot || !strings.HasPrefix(s.Name, "j-c-") {
		t.Errorf("the snapshot is %+v", s)
	}
	if i, k := slices.Index(w.did, "delete a-old"), slices.Index(w.did, "take a"); i < 0 || k < i ||
		slices.Contains(w.did, "delete a-user") {
		t.Errorf("orders: %v", w.did)
	}
	w.cfg.Pod = "pod-2"
	if err := Run(context.Background(), w.cfg); err != nil {
		t.Fatal(err)
	}
	if b := w.taken("b"); len(b) != 2 {
		t.Errorf("after another run: %v", b)
	}
	if n := w.job().Status.ExecutionCount; n != 3 {
		t.Errorf("%d runs are counted", n)
	}
}

// TestDetached: a detached volume is worked on only where the setting says so, and is held attached
// meanwhile; one without work to do is left in peace.
func TestDetached(t *testing.T) {
	for _, tt := range []struct {
		name, allowed, task, want string
	}{
		{"not allowed", "false", "snapshot", ""},
		{"allowed", "true", "snapshot", "hold a by snapshot-controller-pod-1, take a, release a"},
		{"nothing to do", "true", "snapshot-cleanup", ""},
		{"no file system", "true", "filesystem-trim", ""},
	} {
		w := newWorld(t, v1beta2.RecurringJobSpec{Task: v1beta2.RecurringJobTask(tt.task), Retain: 1, Concurrency: 1},
			append(vol("a", v1beta2.VolumeStateDetached), setTo(setting.AllowRecurringJobWhileVolumeDetached, tt.allowed))...)
		if err := Run(context.Background(), w.cfg); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.did, ", "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestTicketOfARun: it names the job and the Pod, and is taken back when the run is stopped.
func TestTicketOfARun(t *testing.T) {
	w := newWorld(t, v1beta2.RecurringJobSpec{Task: "snapshot", Retain: 1, Concurrency: 1},
		append(vol("a", v1beta2.VolumeStateDetached), setTo(setting.AllowRecurringJobWhileVolumeDetached, "true"))...)
	w.idle = true
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, w.cfg) }()
	attachment := func() (a v1beta2.VolumeAttachment) {
		if err := w.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: "a"}, &a); err != nil {
			t.Error(err)
		}
		return a
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(attachment().Spec.AttachmentTickets) == 0 && len(ended) == 0 {
		<-tick.C
	}
	ticket := attachment().Spec.AttachmentTickets["snapshot-controller-pod-1"]
	if p := ticket.Parameters; p["recurringJob"] != "j" || p["pod"] != "pod-1" || p["disableFrontend"] != "any" ||
		ticket.NodeID != "n1" || ticket.Type != v1beta2.AttacherTypeSnapshot {
		t.Errorf("ticket %+v", ticket)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v", err)
	}
	if left := attachment().Spec.AttachmentTickets; len(left) != 0 {
		t.Errorf("tickets %v are left", left)
	}
}

// TestFailures: one volume does not stop the others, and what cannot be cleaned up decides whether
// a snapshot is taken.
func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		task string
		want int
	}{{"snapshot", 1}, {"snapshot-force-create", 2}} {
		w := newWorld(t, v1beta2.RecurringJobSpec{Task: v1beta2.RecurringJobTask(tt.task), Retain: 1, Concurrency: 1},
			slices.Concat(vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateAttached),
				[]client.Object{onVolume("a", snap("a-old", 2, "j")), setTo(setting.DisableSnapshotPurge, "true")})...)
		err := Run(context.Background(), w.cfg)
		if !errors.Is(err, errPurgeDisabled) || !strings.HasPrefix(err.Error(), "volume a: ") {
			t.Errorf("%s: %v", tt.task, err)
		}
		if a, b := w.taken("a"), w.taken("b"); len(a) != tt.want || len(b) != 1 {
			t.Errorf("%s: %d and %d snapshots", tt.task, len(a), len(b))
		}
	}
}

// TestTooSlow: a snapshot that is not taken in time is not ordered any more, and the error says
// what it waited for, if anything is known of that.
func TestTooSlow(t *testing.T) {
	for why, want := range map[string]string{
		"":                           "not done after 5ms: what it waits for is not known",
		"replica r is being rebuilt": "not done after 5ms: replica r is being rebuilt",
	} {
		w := newWorld(t, v1beta2.RecurringJobSpec{Task: "snapshot", Retain: 1, Concurrency: 1},
			vol("a", v1beta2.VolumeStateAttached)...)
		w.idle, w.why, w.cfg.TakeLimit = true, why, 5*time.Millisecond
		if err := Run(context.Background(), w.cfg); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("taking: %v, want %s", err, want)
		}
		if left := w.taken("a"); len(left) != 0 {
			t.Errorf("still ordered: %v", left)
		}
	}
}

// TestDeletionsAreNotWaitedFor: snapshots that an engine cannot give up now, since a replica is
// rebuilt or other volumes purge, are ordered to go; the run ends all the same, whatever its task.
func TestDeletionsAreNotWaitedFor(t *testing.T) {
	for _, task := range []v1beta2.RecurringJobTask{"snapshot", "snapshot-force-create", "snapshot-delete",
		"snapshot-cleanup"} {
		stuck := snap("stuck", 2, "jd")
		stuck.Status.MarkRemoved, stuck.Status.Error = true, "replica r is being rebuilt"
		w := newWorld(t, v1beta2.RecurringJobSpec{Task: task, Retain: 1, Concurrency: 1}, slices.Concat(
			vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateAttached), []client.Object{
				onVolume("a", stuck), onVolume("b", snap("b-old", 1, "jm"))})...)
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		if err := Run(ctx, w.cfg); err != nil {
			t.Errorf("%s: %v", task, err)
		}
		stop()
		if !slices.Contains(w.did, "delete stuck") || !slices.Contains(w.did, "delete b-old") {
			t.Errorf("%s: orders %v", task, w.did)
		}
	}
}

// TestOtherVolumesGoOn: a volume whose snapshot cannot be taken for long does not keep its turn:
// the others are worked on meanwhile, one at a time if the job says so.
func TestOtherVolumesGoOn(t *testing.T) {
	w := newWorld(t, v1beta2.RecurringJobSpec{Task: "snapshot", Retain: 1, Concurrency: 1}, slices.Concat(
		vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateAttached),
		vol("c", v1beta2.VolumeStateAttached))...)
	w.stuck, w.cfg.TurnLimit, w.cfg.TakeLimit = "a", 5*time.Millisecond, time.Hour
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	w.taking = func(volume string) {
		if volume == "c" {
			stop() // the last one; what is waited for is left
		}
	}
	err := Run(ctx, w.cfg)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "volume a: ") ||
		len(w.taken("b")) != 1 || len(w.taken("c")) != 1 {
		t.Errorf("%v; orders %v", err, w.did)
	}
}

// TestTrims: attached volumes are trimmed; a failure is one of the run.
func TestTrims(t *testing.T) {
	w := newWorld(t, v1beta2.RecurringJobSpec{Task: "filesystem-trim", Concurrency: 1},
		append(vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateDetached)...)...)
	if err := Run(context.Background(), w.cfg); err != nil || !slices.Equal(w.trimmed, []string{"a"}) {
		t.Errorf("trimmed %v, %v", w.trimmed, err)
	}
	w.cfg.Trim = func(context.Context, string) error { return errors.New("no manager is ready") }
	if err := Run(context.Background(), w.cfg); err == nil || !strings.Contains(err.Error(), "volume a: no manager") {
		t.Errorf("%v", err)
	}
}

// TestVolumesThatChangeMeanwhile: a run comes to a volume long after it has listed it. One that was
// detached or deleted since, or is another one of that name, is left out like any such volume.
func TestVolumesThatChangeMeanwhile(t *testing.T) {
	edit := func(w *world, name string, change func(*v1beta2.Volume)) {
		var v v1beta2.Volume
		if err := w.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: name}, &v); err != nil {
			t.Error(err)
			return
		}
		change(&v)
		if err := w.Client.Update(context.Background(), &v); err != nil {
			t.Error(err)
		}
	}
	detach := func(v *v1beta2.Volume) { v.Spec.NodeID, v.Status.State = "", v1beta2.VolumeStateDetached }
	w := newWorld(t, v1beta2.RecurringJobSpec{Task: "filesystem-trim", Concurrency: 1}, slices.Concat(
		vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateAttached), vol("c", v1beta2.VolumeStateAttached),
		vol("d", v1beta2.VolumeStateAttached))...)
	w.cfg.Trim = func(_ context.Context, volume string) error {
		w.trimmed = append(w.trimmed, volume)
		if volume == "a" {
			edit(w, "b", detach)
			if err := w.Client.Delete(context.Background(), vol("c", "")[0]); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := Run(context.Background(), w.cfg); err != nil || !slices.Equal(w.trimmed, []string{"a", "d"}) {
		t.Errorf("trimmed %v, %v", w.trimmed, err)
	}
	for allowed, want := range map[string]bool{"false": false, "true": true} {
		w := newWorld(t, v1beta2.RecurringJobSpec{Task: "snapshot", Retain: 1, Concurrency: 1}, slices.Concat(
			vol("a", v1beta2.VolumeStateAttached), vol("b", v1beta2.VolumeStateAttached),
			[]client.Object{setTo(setting.AllowRecurringJobWhileVolumeDetached, allowed)})...)
		w.taking = func(volume string) {
			if volume == "a" {
				edit(w, "b", detach)
			}
		}
		w.cfg.AttachLimit = 5 * time.Second
		if err := Run(context.Background(), w.cfg); err != nil {
			t.Errorf("allowed %s: %v", allowed, err)
		}
		if got := len(w.taken("b")) == 1; got != want {
			t.Errorf("allowed %s: taken %v", allowed, got)
		}
	}
}

// TestNothingIsDone: without the job, and for the task that needs system backups.
func TestNothingIsDone(t *testing.T) {
	w := newWorld(t, v1beta2.RecurringJobSpec{Task: "system-backup", Retain: 1, Concurrency: 1},
		vol("a", v1beta2.VolumeStateAttached)...)
	if err := Run(context.Background(), w.cfg); err != nil || len(w.did) != 0 {
		t.Errorf("system-backup: %v, %v", w.did, err)
	}
	w.cfg.Job = "none"
	if err := Run(context.Background(), w.cfg); err != nil || len(w.did) != 0 {
		t.Errorf("without a job: %v, %v", w.did, err)
	}
}
