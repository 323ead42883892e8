package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
)

const (
	// smallNode has one small disk, and only that.
	smallNode = "node-9"
	// manyDisks has two disks more than the others.
	manyDisks = "node-2"
)

// makeDisks gives two nodes disks of their own, for the whole test.
func (l *localityTest) makeDisks() {
	l.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	root := func(node string) string { return l.Nodes[l.number(node)-1].Root }
	l.disk = &brokenDisk{cluster: l.cluster, node: smallNode, at: filepath.Join(root(smallNode), "data"), room: 256 * mib}
	l.disk.make("data")
	n, err := l.rest.Node(l.t.Context(), manyDisks)
	if err != nil {
		l.t.Fatal(err)
	}
	disks := map[string]resource.DiskUpdate{}
	for name, d := range n.Disks {
		disks[name] = resource.DiskUpdate{Path: d.Path, DiskType: d.DiskType, StorageReserved: d.StorageReserved,
			AllowScheduling: true}
	}
	for _, name := range []string{"second", "third"} {
		b := &brokenDisk{cluster: l.cluster, node: manyDisks, at: filepath.Join(root(manyDisks), "mnt", name),
			room: 256 * mib}
		b.mount(b.loopDevice(l.t.TempDir()))
		disks[name] = resource.DiskUpdate{Path: "/mnt/" + name, DiskType: "filesystem", AllowScheduling: true}
	}
	l.eventually("three disks of "+manyDisks, func(ctx context.Context) error {
		_, err := l.rest.UpdateDisks(ctx, manyDisks, resource.DiskUpdateInput{Disks: disks})
		return err
	})
	l.eventually("three usable disks of "+manyDisks, func(context.Context) error {
		usable := 0
		for _, d := range l.node(manyDisks).Status.DiskStatus {
			if longhorn.IsConditionTrue(d.Conditions, longhorn.DiskConditionSchedulable) {
				usable++
			}
		}
		if usable != 3 {
			return fmt.Errorf("%d", usable)
		}
		return nil
	})
}

// needsDisks skips what is about disks where there are none of their own.
func (l *localityTest) needsDisks() {
	l.t.Helper()
	if l.disk == nil {
		lack.Skip(l.t, "disks are mounted by root only")
	}
}

// tagDisks gives all disks of a node these tags.
func (l *localityTest) tagDisks(node string, tags ...string) {
	l.t.Helper()
	disks := map[string]any{}
	for name := range l.node(node).Spec.Disks {
		disks[name] = map[string]any{"tags": append([]string{}, tags...)}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"disks": disks}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.patchNode(node, string(patch))
}

// scenarioD6: where there is no room for a local replica, or where the node or its disks have not
// the volume's tag, the volume works, a condition says why, and no replica comes and goes.
func (l *localityTest) scenarioD6(t *testing.T) {
	l.needsDisks()
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		l.patchNode(node, `{"spec":{"tags":["fast"]}}`)
		l.tagDisks(node, "ssd")
	}
	l.disk.fill()
	l.disk.await("full", longhorn.DiskConditionSchedulable, longhorn.DiskReasonDiskPressure, "free")
	full := l.make("d6-room", 2, "best-effort", nil)
	untagged := l.make("d6-tags", 2, "best-effort", func(s *restclient.VolumeSpec) { s.NodeSelector = []string{"fast"} })
	plain := l.make("d6-disks", 2, "best-effort", func(s *restclient.VolumeSpec) { s.DiskSelector = []string{"ssd"} })
	for _, u := range []*used{full, untagged, plain} {
		u.use("node-1", 2)
		u.leave(2)
	}
	l.since = l.log.mark()
	full.use(smallNode, 2)
	untagged.use("node-5", 2)
	plain.use("node-6", 2)
	full.awaitNoPlace(smallNode, "storage")
	untagged.awaitNoPlace("node-5", "tags")
	plain.awaitNoPlace("node-6", "tags")
	status, out, stderr := l.ankole(t, "volume", "set-locality", full.name, "best-effort")
	if status != 0 || !strings.Contains(stderr, "warning: there is no replica on "+smallNode+" yet: ") {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	for i := range 5 {
		for _, u := range []*used{full, untagged, plain} {
			if err := l.patchVolume(u.name, fmt.Sprintf(`{"metadata":{"labels":{"looked":"%d"}}}`, i)); err != nil {
				t.Fatal(err)
			}
			u.w.AwaitMore(t, 20)
		}
	}
	for _, u := range []*used{full, untagged, plain} {
		u.still(l.since)
		if v := l.volume(u.name); v.State != "attached" || v.Robustness != "healthy" {
			t.Errorf("%s is %s, %s", u.name, v.State, v.Robustness)
		}
	}
	l.full, l.untagged, l.plain = full, untagged, plain
}

// awaitNoPlace waits until the volume says that there is no place for a replica on the node, and
// why.
func (u *used) awaitNoPlace(node, why string) {
	u.t.Helper()
	u.eventually(u.name+" says why it has no replica on "+node, func(context.Context) error {
		cond := u.volume(u.name).Conditions[longhorn.VolumeConditionScheduled]
		if cond.Status != "False" || cond.Reason != longhorn.VolumeReasonLocalReplicaSchedulingFailure ||
			!strings.Contains(cond.Message, why) || !strings.Contains(cond.Message, node) {
			return fmt.Errorf("%+v", cond)
		}
		return nil
	})
}

// scenarioD13: once there is room, or the tag, the local replica appears, and the condition goes.
func (l *localityTest) scenarioD13(t *testing.T) {
	l.needsDisks()
	if l.full == nil || l.untagged == nil || l.plain == nil {
		t.Fatal("D6 has left no volume without a local replica")
	}
	l.disk.empty()
	l.disk.await("empty", longhorn.DiskConditionSchedulable, "", "")
	l.patchNode("node-5", `{"spec":{"tags":["fast"]}}`)
	l.tagDisks("node-6", "ssd")
	for u, node := range map[*used]string{l.full: smallNode, l.untagged: "node-5", l.plain: "node-6"} {
		u.moved(l.since, node, 2)
		l.eventually(u.name+" says that all replicas have a place", func(context.Context) error {
			if cond := l.volume(u.name).Conditions[longhorn.VolumeConditionScheduled]; cond.Status != "True" {
				return fmt.Errorf("%+v", cond)
			}
			return nil
		})
		u.leave(2)
		l.remove(u.name)
	}
	l.patchNodes(`{"spec":{"tags":[]}}`)
	for _, n := range l.Nodes {
		l.tagDisks(n.Name)
	}
}

// scenarioD7: a volume from before data locality existed is treated as one of mode disabled,
// whatever new volumes get, and can be changed as any other one.
func (l *localityTest) scenarioD7(t *testing.T) {
	u := l.make("d7", 2, "disabled", nil)
	u.placed(2)
	u.use("node-1", 2)
	u.leave(2)
	l.makeOlder(t, u.name)
	l.setting("default-data-locality", "best-effort")
	defer l.setting("default-data-locality", "disabled")
	since := l.log.mark()
	node := u.lacking()
	u.use(node, 2)
	l.witnessMove(node)
	u.still(since)
	if is := l.volume(u.name).DataLocality; is != "disabled" {
		t.Errorf("after the attachment the volume has data locality %q", is)
	}
	if _, err := l.rest.UpdateReplicaCount(t.Context(), u.name, 3); err != nil {
		t.Fatal(err)
	}
	l.awaitUsable(u.name, node, 3)
	l.witnessMove(node)
	made, removed := l.log.changes(u.name, since)
	if len(made) != 1 || len(removed) != 0 {
		t.Errorf("replicas %v were made and %v removed, want one made", made, removed)
	}
	if is := l.volume(u.name).DataLocality; is != "disabled" {
		t.Errorf("after a change the volume has data locality %q", is)
	}
	u.leave(3)
	l.remove(u.name)
}

// makeOlder takes from a stored volume what the first versions had not, for which the webhooks are
// taken away: the leader makes them again at once.
func (l *localityTest) makeOlder(t *testing.T, volume string) {
	t.Helper()
	hooks, now := kubernetesOf(t, l.cluster).AdmissionregistrationV1(), metav1.DeleteOptions{}
	validators, mutators := hooks.ValidatingWebhookConfigurations(), hooks.MutatingWebhookConfigurations()
	stored := &longhorn.Volume{}
	stored.Namespace, stored.Name = namespace, volume
	l.eventually("the volume lacks what is new", func(ctx context.Context) error {
		if err := errors.Join(
			client.IgnoreNotFound(validators.Delete(ctx, naming.WebhookValidatorConfiguration, now)),
			client.IgnoreNotFound(mutators.Delete(ctx, naming.WebhookMutatorConfiguration, now)),
		); err != nil {
			return err
		}
		err := l.kube.Patch(ctx, stored, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dataLocality":null,
			"backupTargetName":null,"backupBlockSize":null,"backupCompressionMethod":null,"replicaAutoBalance":null,
			"snapshotMaxCount":null,"freezeFilesystemForSnapshot":null,"offlineRebuilding":null,"accessMode":null}}`)))
		if err == nil && stored.Spec.DataLocality+longhorn.DataLocality(stored.Spec.BackupTargetName) != "" {
			err = fmt.Errorf("%+v", stored.Spec)
		}
		return err
	})
	l.eventually("the webhooks are asked again", func(ctx context.Context) error {
		tried := stored.DeepCopy()
		err := l.kube.Patch(ctx, tried, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dataSource":"vol://x"}}`)),
			client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "data source") {
			return fmt.Errorf("a data source of an existing volume: %w", err)
		}
		tried = stored.DeepCopy()
		err = l.kube.Patch(ctx, tried, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)),
			client.DryRunAll)
		if err == nil && tried.Spec.DataLocality != longhorn.DataLocalityDisabled {
			err = fmt.Errorf("completed to %+v", tried.Spec)
		}
		return err
	})
}

// scenarioD10: of too many replicas one on the fullest disk goes, else on the fullest node, else in
// the fullest zone; in each case the next rule alone, or the names alone, would take another one.
func (l *localityTest) scenarioD10(t *testing.T) {
	l.needsDisks()
	l.setting("replica-soft-anti-affinity", "true")
	defer l.setting("replica-soft-anti-affinity", "false")
	ks := kubernetesOf(t, l.cluster)
	zones := func(zone map[string]string) {
		t.Helper()
		for _, n := range l.Nodes {
			l.setZone(ks, n.Name, zone[n.Name])
		}
	}
	defer l.patchNodes(`{"spec":{"allowScheduling":true}}`)
	defer zones(nil)
	const local = "node-8"
	t.Run("disk", func(t *testing.T) {
		u := l.spread("d10-disk", local, []string{"node-1"}, 2, []string{manyDisks}, 5)
		full := l.diskOf(u, 2)
		if gone := u.localize(local, 5); gone.Spec.DiskID != full {
			t.Errorf("the replica on disk %s of %s went, want one on disk %s", gone.Spec.DiskID, gone.Spec.NodeID, full)
		}
		u.finish(5)
	})
	t.Run("node", func(t *testing.T) {
		u := l.spread("d10-node", local, []string{manyDisks}, 2, []string{"node-3", "node-4", "node-5"}, 5)
		zones(map[string]string{manyDisks: "a", "node-3": "b", "node-4": "b", "node-5": "b", local: "b"})
		if gone := u.localize(local, 5); gone.Spec.NodeID != manyDisks {
			t.Errorf("the replica on %s went, want one on %s", gone.Spec.NodeID, manyDisks)
		}
		u.finish(5)
	})
	t.Run("zone", func(t *testing.T) {
		u := l.spread("d10-zone", local, []string{"node-3", "node-4", "node-5", "node-6"}, 4, nil, 4)
		list := l.replicasOf(u.name)
		slices.SortFunc(list, func(a, b longhorn.Replica) int { return strings.Compare(a.Name, b.Name) })
		zone := map[string]string{local: "full"}
		for i, in := range []string{"first", "second", "full", "full"} {
			zone[list[i].Spec.NodeID] = in
		}
		zones(zone)
		if gone := u.localize(local, 4); zone[gone.Spec.NodeID] != "full" {
			t.Errorf("the replica on %s went; zones are %v", gone.Spec.NodeID, zone)
		}
		u.finish(4)
	})
}

// spread attaches a volume to a node, with so many replicas on the first nodes and the rest on the
// others.
func (l *localityTest) spread(name, attached string, first []string, n int, rest []string, all int) *used {
	l.t.Helper()
	l.onlyOn(first...)
	u := l.make(name, n, "disabled", nil)
	u.placed(len(first))
	u.use(attached, n)
	if all > n {
		l.onlyOn(rest...)
		if _, err := l.rest.UpdateReplicaCount(l.t.Context(), name, all); err != nil {
			l.t.Fatal(err)
		}
		l.awaitUsable(name, attached, all)
	}
	return u
}

// localize has a replica built on the node of the volume and returns the one that went for it.
func (u *used) localize(node string, all int) longhorn.Replica {
	u.t.Helper()
	u.onlyOn(node)
	since := u.log.mark()
	if _, err := u.rest.UpdateDataLocality(u.t.Context(), u.name, "best-effort"); err != nil {
		u.t.Fatal(err)
	}
	return u.moved(since, node, all)
}

func (u *used) finish(replicas int) {
	u.t.Helper()
	u.leave(replicas)
	u.remove(u.name)
}

// diskOf is the one disk that has so many replicas of the volume; the others have one each.
func (l *localityTest) diskOf(u *used, n int) (disk string) {
	l.t.Helper()
	count := map[string]int{}
	for _, r := range l.replicasOf(u.name) {
		count[r.Spec.DiskID]++
	}
	for id, has := range count {
		if has == n {
			disk = id
		} else if has != 1 {
			l.t.Fatalf("replicas on disks %v", count)
		}
	}
	return disk
}

// setZone labels a node with a zone, or takes the label away, and waits until the storage node has
// it.
func (l *localityTest) setZone(ks kubernetes.Interface, node, zone string) {
	l.t.Helper()
	value := "null"
	if zone != "" {
		value = fmt.Sprintf("%q", zone)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, naming.NodeLabelZone, value)
	_, err := ks.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.eventually("zone of "+node, func(context.Context) error {
		if is := l.node(node).Status.Zone; is != zone {
			return fmt.Errorf("zone %q, want %q", is, zone)
		}
		return nil
	})
}
