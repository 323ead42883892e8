package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
)

// jobTest is the scenario of recurring jobs on one volume.
type jobTest struct {
	*cluster
	t    *testing.T
	kube kubernetes.Interface
	runs int
}

const (
	// f10 is the volume, and part of the names of its jobs.
	f10 = "f10"
	// whileDetached is the setting that has jobs attach detached volumes.
	whileDetached = "allow-recurring-job-while-volume-detached"
)

// scenarioF10: recurring jobs that are run by hand: snapshots with retain, of attached and detached
// volumes; a run that is killed leaves nothing attached; clean-up, deletion and trim give space
// back. F10Clock has those that run by themselves.
func scenarioF10(t *testing.T, c *cluster) {
	ks := kubernetesOf(t, c)
	j := &jobTest{cluster: c, t: t, kube: ks}
	c.create(f10, 64*mib, 2)
	defer c.remove(f10)
	defer j.undo("f10-snap", "f10-clean", "f10-del", "f10-trim")
	if _, out, _ := c.ankole(t, "recurring-job", "of", f10, "-o", "name"); out != "recurring-job/default\n" {
		t.Errorf("a new volume follows %q, want group default", out)
	}
	j.retained()
	j.detached()
	j.killed()
	j.cleanup()
	j.delete()
	j.trim()
}

// undo leaves no job and no setting behind, however far the scenario has come.
func (j *jobTest) undo(jobs ...string) {
	j.setting(whileDetached, "false")
	for _, name := range jobs {
		status, out, text := j.ankole(j.t, "recurring-job", "delete", name, "--yes")
		if status != 0 && !strings.Contains(text, "not found") {
			j.t.Errorf("deleting %s: %d, %s%s", name, status, out, text)
		}
	}
}

// command runs ankole and expects success.
func (j *jobTest) command(args ...string) {
	j.t.Helper()
	if status, out, text := j.ankole(j.t, args...); status != 0 {
		j.t.Fatalf("ankole %q: %d, %s%s", args, status, out, text)
	}
}

// run makes a Job of a job's CronJob.
func (j *jobTest) run(name string) *batchv1.Job {
	j.t.Helper()
	ctx := context.Background()
	var made *batchv1.Job
	j.runs++
	j.eventually("run "+name, func(context.Context) error { // its CronJob follows the job a moment later
		cron, err := j.kube.BatchV1().CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		made, err = j.kube.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, j.runs), Labels: cron.Spec.JobTemplate.Labels},
			Spec:       cron.Spec.JobTemplate.Spec}, metav1.CreateOptions{})
		return err
	})
	return made
}

// finish waits for the good end of a run, and deletes it.
func (j *jobTest) finish(run *batchv1.Job) {
	j.t.Helper()
	j.eventually("run "+run.Name+" succeeds", func(ctx context.Context) error {
		now, err := j.kube.BatchV1().Jobs(namespace).Get(ctx, run.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.Status.Succeeded != 1 {
			return fmt.Errorf("%+v", now.Status)
		}
		return nil
	})
	background := metav1.DeletePropagationBackground
	if err := j.kube.BatchV1().Jobs(namespace).Delete(context.Background(), run.Name,
		metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		j.t.Fatal(err)
	}
}

// taken lists the snapshots of a volume that a job made, oldest first, and all that are ready.
func (j *jobTest) taken(volume, job string) (made, all []string) {
	j.t.Helper()
	list, err := j.rest.SnapshotObjects(context.Background(), volume)
	if err != nil {
		j.t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b resource.SnapshotCR) int { return strings.Compare(a.CreationTime, b.CreationTime) })
	for _, s := range list {
		if !s.ReadyToUse {
			continue
		}
		all = append(all, s.Name)
		if s.Labels["RecurringJob"] == job {
			made = append(made, s.Name)
		}
	}
	return made, all
}

// settled waits until the snapshots of a volume are as wanted, and returns those that a job made. A
// run orders deletions and does not wait for them.
func (j *jobTest) settled(what, job string, wanted func(made, all []string) bool) (made []string) {
	j.t.Helper()
	j.eventually(what, func(context.Context) error {
		var all []string
		if made, all = j.taken(f10, job); !wanted(made, all) {
			return fmt.Errorf("there are %v of %v", made, all)
		}
		return nil
	})
	return made
}

// two is what a job leaves that retains two snapshots.
func two(made, _ []string) bool { return len(made) == 2 }

// scenarioF10Clock: what goes by the clock, a minute at the longest: a job takes a snapshot, and
// the data of a snapshot is checked by the schedule.
func scenarioF10Clock(t *testing.T, c *cluster) {
	const volume, job = "f10-clock", "f10-minute"
	j := &jobTest{cluster: c, t: t, kube: kubernetesOf(t, c)}
	j.create(volume, 32*mib, 2)
	defer j.remove(volume)
	defer j.cluster.setting(setting.SnapshotDataIntegrityCronJob, "@yearly")
	defer j.cluster.setting(setting.SnapshotDataIntegrity, "fast-check")
	defer j.undo(job)
	fillWith(j.t, j.cluster, j.attach(volume, "node-3", 2), 1)
	j.orderSnapshot(volume, "f10-checked")
	j.cluster.setting(setting.SnapshotDataIntegrity, "enabled")
	j.cluster.setting(setting.SnapshotDataIntegrityCronJob, "* * * * *")
	j.command("recurring-job", "create", job, "--task", "snapshot", "--cron", "* * * * *", "--label", "of=f10")
	j.command("recurring-job", "attach", volume, job)
	j.eventually("a snapshot by the clock", func(context.Context) error {
		if made, all := j.taken(volume, job); len(made) == 0 {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
	j.awaitChecksum("f10-checked", time.Time{})
	j.command("recurring-job", "update", job, "--cron", "0 0 29 2 *")
	j.eventually("the CronJob follows its job", func(ctx context.Context) error {
		cron, err := j.kube.BatchV1().CronJobs(namespace).Get(ctx, job, metav1.GetOptions{})
		if err == nil && (cron.Spec.Schedule != "0 0 29 2 *" || len(cron.Status.Active) > 0) {
			err = fmt.Errorf("schedule %s, active %v", cron.Spec.Schedule, cron.Status.Active)
		}
		return err
	})
	j.cluster.detach(volume)
}

// retained: after more runs than a job retains, that many of its snapshots are left, and those of
// others.
func (j *jobTest) retained() {
	endpoint := j.attach(f10, "node-1", 2)
	j.orderSnapshot(f10, "keep")
	j.command("recurring-job", "create", "f10-snap", "--task", "snapshot", "--cron", "0 0 29 2 *", "--retain", "2",
		"--label", "of=f10")
	j.command("recurring-job", "attach", f10, "f10-snap")
	j.finish(j.run("f10-snap"))
	first := j.settled("the first run leaves one snapshot", "f10-snap", func(made, _ []string) bool {
		return len(made) == 1
	})
	var content [32]byte
	for seed := range byte(2) {
		content = fillWith(j.t, j.cluster, endpoint, seed)
		j.finish(j.run("f10-snap"))
	}
	made := j.settled("two runs more leave their snapshots", "f10-snap", two)
	if _, all := j.taken(f10, ""); slices.Contains(made, first[0]) || !slices.Contains(all, "keep") {
		j.t.Errorf("after two runs more than %v there are %v of %v", first, made, all)
	}
	s, err := j.rest.SnapshotObject(context.Background(), f10, made[1])
	if err != nil || s.Labels["of"] != f10 || !strings.HasPrefix(s.Name, "f10-snap-") {
		j.t.Errorf("%+v, %v", s, err)
	}
	holds(j.t, j.cluster, endpoint, content, "the content has changed")
	var job longhorn.RecurringJob
	if err := j.cluster.kube.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: "f10-snap"},
		&job); err != nil || job.Status.ExecutionCount < 3 || job.Status.OwnerID == "" {
		j.t.Errorf("status %+v, %v", job.Status, err)
	}
	j.cluster.detach(f10)
}

// detached: a detached volume is left alone unless the setting says otherwise, and is detached
// again afterwards.
func (j *jobTest) detached() {
	before, _ := j.taken(f10, "f10-snap")
	j.finish(j.run("f10-snap"))
	if after, _ := j.taken(f10, "f10-snap"); !slices.Equal(before, after) || j.volume(f10).State != "detached" {
		j.t.Errorf("snapshots %v of the detached volume became %v; it is %s", before, after, j.volume(f10).State)
	}
	j.setting(whileDetached, "true")
	j.finish(j.run("f10-snap"))
	j.settled("the detached volume's oldest snapshot gives way to a new one", "f10-snap", func(after, _ []string) bool {
		return len(after) == 2 && after[0] == before[1]
	})
	j.free()
}

// tickets are those of the volume that runs hold, by their Pods.
func (j *jobTest) tickets() (pods []string) {
	j.t.Helper()
	var a longhorn.VolumeAttachment
	key := types.NamespacedName{Namespace: namespace, Name: f10}
	if err := j.cluster.kube.Get(context.Background(), key, &a); err != nil {
		j.t.Fatal(err)
	}
	for _, ticket := range a.Spec.AttachmentTickets {
		if ticket.Parameters["recurringJob"] != "" {
			pods = append(pods, ticket.Parameters["pod"])
		}
	}
	return pods
}

// free waits until the volume is detached, with no ticket of a run.
func (j *jobTest) free() {
	j.t.Helper()
	j.awaitDetached(f10)
	if left := j.tickets(); len(left) != 0 {
		j.t.Errorf("the Pods %v have tickets of the detached volume", left)
	}
}

// killed: a run that is killed while it holds the volume, and whose Pod is lost, leaves nothing;
// the next Pod of its Job finishes it.
func (j *jobTest) killed() {
	j.Permit(j.t, managersRestart) // its container is started again
	run := j.run("f10-snap")
	var pods []string
	j.eventually("a run that holds the volume is killed", func(context.Context) error {
		if pods = j.tickets(); len(pods) == 0 {
			return fmt.Errorf("no ticket yet")
		}
		for _, pid := range holding(j.Info.Dir, "recurring-job\x00f10-snap") {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				return nil
			}
		}
		return fmt.Errorf("tickets of %v, and no process: the run has ended by itself, which shows nothing", pods)
	})
	now := int64(0)
	if err := j.kube.CoreV1().Pods(namespace).Delete(context.Background(), pods[0],
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		j.t.Fatal(err)
	}
	j.finish(run)
	j.free()
	j.settled("the run that was killed leaves two snapshots", "f10-snap", two)
}

// cleanup: what is marked as removed goes, and gives its space back.
func (j *jobTest) cleanup() {
	endpoint := j.attach(f10, "node-2", 2)
	j.orderSnapshot(f10, "marked")
	fillWith(j.t, j.cluster, endpoint, 11)
	j.orderSnapshot(f10, "above")
	content := fillWith(j.t, j.cluster, endpoint, 12)
	if _, err := j.rest.DeleteSnapshot(context.Background(), f10, "above"); err != nil {
		j.t.Fatal(err)
	}
	j.orderSnapshot(f10, "top") // so that the head does not stand on what is marked
	before := j.allocated(f10)
	j.command("recurring-job", "create", "f10-clean", "--task", "snapshot-cleanup", "--cron", "0 0 29 2 *")
	j.command("recurring-job", "attach", f10, "f10-clean")
	j.finish(j.run("f10-clean"))
	j.settled("the clean-up removes what was deleted, and nothing else", "", func(_, all []string) bool {
		return !slices.Contains(all, "above") && slices.Contains(all, "marked")
	})
	j.eventually("the clean-up of 32 MiB gives space back", func(context.Context) error {
		if after := j.allocated(f10); before-after < 2*24*mib {
			return fmt.Errorf("two replicas took %d bytes before and take %d", before, after)
		}
		return nil
	})
	holds(j.t, j.cluster, endpoint, content, "the content has changed with the clean-up")
}

// delete: all but the newest go, whoever made them.
func (j *jobTest) delete() {
	before := j.allocated(f10)
	j.command("recurring-job", "create", "f10-del", "--task", "snapshot-delete", "--cron", "0 0 29 2 *", "--retain", "1",
		"--group", "rare")
	j.command("recurring-job", "attach", f10, "rare", "--group")
	j.finish(j.run("f10-del"))
	j.settled("one snapshot is left", "", func(_, all []string) bool { return slices.Equal(all, []string{"top"}) })
	// A merge takes more before it takes less.
	j.eventually("the deletion of all snapshots but one gives space back", func(context.Context) error {
		if after := j.allocated(f10); after >= before {
			return fmt.Errorf("the replicas took %d bytes before and take %d", before, after)
		}
		return nil
	})
	j.cluster.detach(f10)
	j.identical(f10, 2)
	for _, name := range []string{"f10-snap", "f10-clean", "f10-del"} {
		j.command("recurring-job", "delete", name, "--yes")
	}
	j.eventually("the CronJobs go with their jobs", func(ctx context.Context) error {
		list, err := j.kube.BatchV1().CronJobs(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("there is %s", list.Items[0].Name)
		}
		return nil
	})
}

// trim: the space of deleted files comes back.
func (j *jobTest) trim() {
	endpoint := j.attach(f10, "node-3", 2)
	defer j.cluster.detach(f10)
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Less(j.t, "there is no block device here, so no file system is trimmed: the endpoint is ", endpoint)
		return
	}
	command(j.t, "mkfs.ext4", "-q", "-F", endpoint)
	at := filepath.Join(j.Info.Dir, "mnt-f10")
	unmount := mountDevice(j.t, endpoint, at)
	defer unmount()
	j.cluster.trim(f10, at, func() {
		j.command("recurring-job", "create", "f10-trim", "--task", "filesystem-trim", "--cron", "0 0 29 2 *",
			"--group", "rare")
		j.finish(j.run("f10-trim"))
	})
}
