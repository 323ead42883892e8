package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// localityTest is a cluster of nine nodes on which volumes follow their users.
type localityTest struct {
	*cluster
	log *replicaLog
	// full, untagged and plain (by the tag of a node, of a disk) are attached where they can have no
	// replica, from since in D6 until D13; disk is the small one of full's node.
	full, untagged, plain *used
	since                 int
	disk                  *brokenDisk
}

// TestLocality runs the scenarios of data locality on one cluster. In each, content is compared
// byte by byte, by its user and between the replicas, and I/O goes on while a replica moves.
func TestLocality(t *testing.T) {
	t.Parallel()
	l := &localityTest{cluster: startWith(t, testcluster.Options{Manager: true, NodeGrace: 20 * time.Second, Nodes: 9,
		PodNetworks: storageNetworks})}
	if networkEverywhere {
		l.useStorageNetwork()
	}
	l.makeDisks()
	l.log = l.recordReplicas()
	of := func(run func(*testing.T)) func(*testing.T, *cluster) {
		return func(t *testing.T, _ *cluster) { run(t) }
	}
	l.each(t, []scenario{
		{"D1", of(l.scenarioD1)}, {"D2", of(l.scenarioD2)}, {"D3", of(l.scenarioD3)}, {"D4", of(l.scenarioD4)},
		{"D6", of(l.scenarioD6)}, {"D13", of(l.scenarioD13)}, {"D7", of(l.scenarioD7)}, {"D8", of(l.scenarioD8)},
		{"D11", of(l.scenarioD11)}, {"D12", of(l.scenarioD12)}, {"D10", of(l.scenarioD10)}, {"C14", of(l.scenarioC14)},
	})
}

// used is a volume with a user who writes all the time and knows what was written.
type used struct {
	*localityTest
	name    string
	device  userDevice
	w       *rig.Writer
	version uint64 // of what was written last
	stop    chan struct{}
	done    chan error
}

const usedSize = 32 * mib

// make creates a volume; locality may be empty.
func (l *localityTest) make(name string, replicas int, locality string, edit func(*restclient.VolumeSpec)) *used {
	l.t.Helper()
	spec := restclient.VolumeSpec{Name: name, Size: strconv.Itoa(usedSize), NumberOfReplicas: replicas,
		DataLocality: locality}
	if edit != nil {
		edit(&spec)
	}
	v, err := l.rest.CreateVolume(l.t.Context(), spec)
	if err != nil {
		l.t.Fatal(err)
	}
	if locality != "" && v.DataLocality != locality {
		l.t.Errorf("volume %s has data locality %q, want %q", name, v.DataLocality, locality)
	}
	return &used{localityTest: l, name: name}
}

// use attaches the volume, waits for so many replicas in sync, reads everything and compares it
// with what was written before, and goes on writing until leave.
func (u *used) use(node string, rw int) {
	u.t.Helper()
	u.device = u.cluster.device(u.attach(u.name, node, rw))
	if u.w == nil {
		u.w = rig.NewWriter(u.device, usedSize, uint64(len(u.name)))
	}
	u.w.Device = u.device
	u.w.Verify(u.t, u.device)
	u.stop, u.done = make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-u.stop:
				u.done <- u.w.Settle()
				return
			default:
			}
			u.version++
			if err := u.w.Step(u.version); err != nil {
				u.done <- err
				return
			}
		}
	}()
	u.w.AwaitMore(u.t, 20)
}

// leave ends the writing, compares everything, detaches the volume and compares its replicas.
func (u *used) leave(replicas int) {
	u.t.Helper()
	u.w.AwaitMore(u.t, 20)
	close(u.stop)
	if err := <-u.done; err != nil {
		rig.Final(u.t, fmt.Errorf("the user of volume %s saw an error: %w", u.name, err))
	}
	u.w.Verify(u.t, u.device)
	if err := u.device.Close(); err != nil {
		u.t.Fatal(err)
	}
	u.detach(u.name)
	u.identical(u.name, replicas)
}

// placed waits until a volume that is not attached has its replicas on so many nodes.
func (u *used) placed(nodes int) {
	u.t.Helper()
	u.eventually("replicas of "+u.name+" have their places", func(context.Context) error {
		if at := u.nodesOf(u.name); len(slices.Compact(at)) != nodes || at[0] == "" {
			return fmt.Errorf("on %v", at)
		}
		return nil
	})
}

// lacking is the first node without a replica of the volume that is none of the others.
func (u *used) lacking(others ...string) string {
	u.t.Helper()
	for _, n := range u.Nodes {
		if !slices.Contains(u.nodesOf(u.name), n.Name) && !slices.Contains(others, n.Name) {
			return n.Name
		}
	}
	u.t.Fatalf("volume %s has a replica on every node", u.name)
	return ""
}

// moved waits until one replica was built on the node and another was removed then, since the mark,
// and nothing else was; it returns the one that was removed.
func (u *used) moved(since int, node string, replicas int) (gone longhorn.Replica) {
	u.t.Helper()
	u.eventually("a replica of "+u.name+" moves to "+node, func(context.Context) (err error) {
		u.log.check(u.t)
		gone, err = u.log.move(u.name, since, node)
		return err
	})
	u.awaitUsable(u.name, node, replicas)
	u.eventually(u.name+" has its number of replicas", func(ctx context.Context) error {
		if at := u.nodesOf(u.name); len(at) != replicas || !slices.Contains(at, node) {
			return fmt.Errorf("replicas on %v", at)
		}
		return u.robustness(u.name, "healthy")(ctx)
	})
	return gone
}

// still checks that no replica of the volume was made or removed since the mark. Something that
// begins after the volume was there must have been seen to move before.
func (u *used) still(since int) {
	u.t.Helper()
	u.log.check(u.t)
	if made, removed := u.log.changes(u.name, since); len(made)+len(removed) > 0 {
		u.t.Errorf("volume %s: replicas %v were made and %v removed", u.name, made, removed)
	}
}

// witnessMove moves a volume of its own to the node: whoever has not moved to it by then, with less
// to do, will not.
func (l *localityTest) witnessMove(node string) {
	l.t.Helper()
	u := l.make("control", 1, "best-effort", nil)
	first := l.otherThan(node)
	u.use(first, 1)
	u.leave(1)
	since := l.log.mark()
	u.use(node, 1)
	if gone := u.moved(since, node, 1); gone.Spec.NodeID != first {
		l.t.Errorf("a replica on %s was removed, want the one on %s", gone.Spec.NodeID, first)
	}
	u.leave(1)
	l.remove(u.name)
}

// scenarioD1: attached to a node without a replica, the volume gets one there, then one elsewhere
// goes, and it has two again.
func (l *localityTest) scenarioD1(*testing.T) {
	u := l.make("d1", 2, "best-effort", nil)
	u.use("node-3", 2)
	u.leave(2)
	before := l.nodesOf(u.name)
	to := u.lacking()
	since := l.log.mark()
	u.use(to, 2)
	if gone := u.moved(since, to, 2); !slices.Contains(before, gone.Spec.NodeID) {
		l.t.Errorf("the replica on %s was removed; there were some on %v", gone.Spec.NodeID, before)
	}
	u.leave(2)
	l.remove(u.name)
}

// scenarioD2: attached to a node without a replica, a volume that says disabled keeps those it has,
// while another one, which was attached there later, moves; and also when it comes back.
func (l *localityTest) scenarioD2(*testing.T) {
	u := l.make("d2", 2, "disabled", nil)
	u.placed(2)
	since := l.log.mark()
	for range 2 {
		node := u.lacking()
		u.use(node, 2)
		l.witnessMove(node)
		u.still(since)
		u.leave(2)
	}
	u.still(since)
	l.remove(u.name)
}

// scenarioD3: a volume takes the setting's value at its creation, and keeps it when the setting
// changes.
func (l *localityTest) scenarioD3(t *testing.T) {
	const setting = "default-data-locality"
	stays := l.make("d3-stays", 2, "", nil)
	if is := l.volume(stays.name).DataLocality; is != "disabled" {
		t.Errorf("%s is disabled, the volume has %q", setting, is)
	}
	stays.placed(2)
	l.setting(setting, "best-effort")
	defer l.setting(setting, "disabled")
	follows := l.make("d3-follows", 2, "", nil)
	if is := l.volume(follows.name).DataLocality; is != "best-effort" {
		t.Errorf("%s is best-effort, the volume has %q", setting, is)
	}
	follows.use("node-5", 2)
	follows.leave(2)
	since := l.log.mark()
	stays.use(stays.lacking(), 2)
	to := follows.lacking()
	follows.use(to, 2)
	follows.moved(since, to, 2)
	stays.still(since)
	if is := l.volume(stays.name).DataLocality; is != "disabled" {
		t.Errorf("an existing volume has %q after the setting was changed", is)
	}
	follows.leave(2)
	stays.leave(2)
	l.remove(follows.name)
	l.remove(stays.name)
}

// scenarioD4: while the volume is attached, best-effort moves a replica; then disabled leaves it to
// the scheduler where what replaces a local replica goes.
func (l *localityTest) scenarioD4(t *testing.T) {
	u := l.make("d4", 2, "disabled", nil)
	u.placed(2)
	node := u.lacking()
	u.use(node, 2)
	since := l.log.mark()
	status, out, stderr := l.ankole(t, "volume", "set-locality", u.name, "best-effort", "--timeout", "3m")
	if status != 0 || !strings.Contains(out, "data locality best-effort; attached to "+node+", replicas on ") {
		t.Fatalf("status %d\n%s%s", status, out, stderr)
	}
	u.moved(since, node, 2)

	v, err := l.rest.UpdateDataLocality(t.Context(), u.name, "disabled")
	if err != nil || v.DataLocality != "disabled" {
		t.Fatalf("%+v, %v", v, err)
	}
	since = l.log.mark()
	if _, err := l.rest.UpdateReplicaCount(t.Context(), u.name, 3); err != nil {
		t.Fatal(err)
	}
	l.awaitUsable(u.name, node, 3)
	local := l.replicaOn(u.name, node)
	if _, err := l.rest.RemoveReplica(t.Context(), u.name, local); err != nil {
		t.Fatal(err)
	}
	l.eventually("three replicas again", func(ctx context.Context) error {
		made, removed := l.log.changes(u.name, since)
		if len(made) != 2 || len(removed) != 1 {
			return fmt.Errorf("made %v, removed %v", made, removed)
		}
		return l.robustness(u.name, "healthy")(ctx)
	})
	l.awaitUsable(u.name, node, 3)
	l.witnessMove(node)
	made, removed := l.log.changes(u.name, since)
	if len(made) != 2 || !slices.Equal(removed, []string{local}) {
		t.Errorf("made %v, removed %v, want two and %s", made, removed, local)
	}
	bound := l.log.first(u.name, since, func(e replicaEvent) bool { return e.r.Spec.HardNodeAffinity != "" })
	for _, name := range made {
		if _, is := bound[name]; is {
			t.Errorf("replica %s is bound to a node", name)
		}
	}
	u.leave(3)
	l.remove(u.name)
}

// scenarioD8: what is no mode is refused by REST and by the schema, at creation and later, and
// changes nothing; strict-local is one, and keeps its one replica where the volume is attached.
func (l *localityTest) scenarioD8(t *testing.T) {
	u, later := l.make("d8", 1, "strict-local", nil), l.make("d8-later", 1, "disabled", nil)
	l.awaitDetached(u.name)
	l.awaitDetached(later.name)
	l.locality(later.name, "strict-local")
	l.locality(later.name, "disabled")
	l.remove(later.name)
	refused := func(path, body string) {
		t.Helper()
		status, text := l.call(t, "POST", l.API+"/v1/volumes"+path, strings.NewReader(body))
		if status != 500 || !strings.Contains(text, "invalid data locality mode") {
			t.Errorf("REST, %s%s: %d %s", path, body, status, text)
		}
	}
	refused("/d8?action=updateDataLocality", `{"dataLocality":""}`)
	for _, bad := range []string{"disable", "strict"} {
		refused("/d8?action=updateDataLocality", fmt.Sprintf(`{"dataLocality":%q}`, bad))
		refused("", fmt.Sprintf(`{"name":"d8-no","size":"32Mi","dataLocality":%q}`, bad))
		fresh := &longhorn.Volume{}
		fresh.Namespace, fresh.Name = namespace, "d8-no"
		fresh.Spec.Size, fresh.Spec.DataLocality = usedSize, longhorn.DataLocality(bad)
		for what, err := range map[string]error{
			"created": l.kube.Create(t.Context(), fresh),
			"changed": l.patchVolume(u.name, fmt.Sprintf(`{"spec":{"dataLocality":%q}}`, bad)),
		} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("spec.dataLocality: Unsupported value: %q", bad)) {
				t.Errorf("object %s, %q: %v", what, bad, err)
			}
		}
	}
	if is := l.volume(u.name).DataLocality; is != "strict-local" {
		t.Errorf("the volume has %q after refused changes", is)
	}
	if at := l.nodesOf(u.name); slices.ContainsFunc(at, func(node string) bool { return node != "" }) {
		t.Errorf("replicas on %v before the volume is attached", at)
	}
	u.use("node-4", 1)
	since := l.log.mark()
	if at := l.nodesOf(u.name); !slices.Equal(at, []string{"node-4"}) {
		t.Errorf("replicas on %v, want node-4", at)
	}
	u.leave(1)
	if _, err := l.rest.AttachVolume(t.Context(), u.name, resource.AttachInput{HostID: "node-6"}); err == nil {
		t.Error("a strict-local volume is attached to a node without its replica")
	}
	u.use("node-4", 1)
	u.still(since)
	u.leave(1)
	l.remove(u.name)
}

// scenarioD11: each of two volumes with one replica gets it on the node where it is attached.
func (l *localityTest) scenarioD11(t *testing.T) {
	nodes := []string{"node-6", "node-7"}
	var both []*used
	for i := range nodes {
		u := l.make(fmt.Sprintf("d11-%d", i), 1, "best-effort", nil)
		u.use("node-2", 1)
		u.leave(1)
		both = append(both, u)
	}
	since := l.log.mark()
	for i, u := range both {
		u.use(nodes[i], 1)
	}
	for i, u := range both {
		if gone := u.moved(since, nodes[i], 1); gone.Spec.NodeID != "node-2" {
			t.Errorf("%s: the replica on %s was removed, want the one on node-2", u.name, gone.Spec.NodeID)
		}
	}
	for _, u := range both {
		u.leave(1)
		l.remove(u.name)
	}
}

// scenarioC14: replicas follow their users as before where data has a network of its own.
func (l *localityTest) scenarioC14(t *testing.T) {
	n := &networkTest{l.cluster, kubernetesOf(t, l.cluster)}
	n.set(storageNetworks[0])
	n.await("for replicas that move", storageNetworks[0])
	l.scenarioD1(t)
	l.scenarioD11(t)
	l.scenarioD12(t)
	n.await("after replicas have moved", storageNetworks[0])
}

// scenarioD12: switched off while the volume is detached, nothing is built where it is attached.
func (l *localityTest) scenarioD12(t *testing.T) {
	u := l.make("d12", 2, "best-effort", nil)
	u.use("node-8", 2)
	u.leave(2)
	status, out, stderr := l.ankole(t, "volume", "set-locality", u.name, "disabled")
	if status != 0 || out != "volume d12: data locality disabled\n" {
		t.Fatalf("status %d\n%s%s", status, out, stderr)
	}
	node := u.lacking()
	since := l.log.mark()
	u.use(node, 2)
	l.witnessMove(node)
	u.still(since)
	u.leave(2)
	l.remove(u.name)
}
