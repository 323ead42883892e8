package orphan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// bench is the agent of a node with one disk, whose cache may be older than the API server.
type bench struct {
	*Agent
	t      *testing.T
	root   string // of the host
	events *record.FakeRecorder
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1beta2.Orphan{}).
		Build()
	b := &bench{t: t, root: t.TempDir(), events: record.NewFakeRecorder(2 * mostAtOnce)}
	b.Agent = NewAgent(AgentConfig{Namespace: naming.Namespace, NodeName: "n1", Resolve: func(p string) string {
		return filepath.Join(b.root, strings.TrimPrefix(p, naming.HostRootInPod))
	}})
	b.client, b.live, b.Agent.events = c, c, b.events
	b.write("data/"+naming.DiskConfigFile, `{"diskName":"d","diskUUID":"disk-1"}`)
	return b
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	real := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(real), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(real, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) replicaDir(name string) string { return filepath.Join(b.root, "data/replicas", name) }

// stray makes a replica's directory that nobody has changed for an hour.
func (b *bench) stray(name string) {
	b.t.Helper()
	b.write("data/replicas/"+name+"/volume.meta", `{"Size":1048576,"Head":"volume-head-000.img"}`)
	b.rests(name)
}

func (b *bench) rests(name string) {
	b.t.Helper()
	if err := os.Chtimes(b.replicaDir(name), now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) is(name string) bool {
	_, err := os.Lstat(b.replicaDir(name))
	return err == nil
}

// reported looks at the disks and returns the directories with an Orphan.
func (b *bench) reported() (names []string) {
	b.t.Helper()
	if err := b.scan(b.t.Context(), now); err != nil {
		b.t.Fatal(err)
	}
	all, err := b.orphans(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range all {
		names = append(names, directoryOf(&all[i]))
	}
	slices.Sort(names)
	return names
}

func replicaOf(directory string) *v1beta2.Replica {
	r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "v-r-0"}}
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.DiskID, r.Spec.DataDirectoryName = "v", "n9", "disk-9", directory
	return r
}

func engineWith(member string) *v1beta2.Engine {
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "v-e-0"}}
	e.Status.Membership = &v1beta2.Membership{Members: []string{member}}
	return e
}

func TestScan(t *testing.T) {
	b := newBench(t, dataNode())
	b.stray(strayName)
	for range 2 { // the second look finds it reported
		if got := b.reported(); !slices.Equal(got, []string{strayName}) {
			t.Fatalf("reported: %v", got)
		}
	}
	if len(b.events.Events) != 1 || len(b.wakeups) != 0 {
		t.Fatalf("%d events, %d wake-ups", len(b.events.Events), len(b.wakeups))
	}
	if told := <-b.events.Events; !strings.HasPrefix(told, "Warning Orphaned /data/replicas/"+strayName) {
		t.Errorf("event %q", told)
	}
	if err := os.RemoveAll(b.replicaDir(strayName)); err != nil {
		t.Fatal(err)
	}
	b.reported()
	if len(b.wakeups) != 1 {
		t.Error("the orphan is not woken when its directory is gone")
	}
}

// TestScanIsBounded: many directories are reported by and by.
func TestScanIsBounded(t *testing.T) {
	b := newBench(t, dataNode())
	for i := range mostAtOnce + 5 {
		b.stray(fmt.Sprintf("v-%08d", i))
	}
	for _, want := range []int{mostAtOnce, mostAtOnce + 5, mostAtOnce + 5} {
		if got := b.reported(); len(got) != want {
			t.Fatalf("%d reported, want %d", len(got), want)
		}
	}
}

// TestOrphansOfANodeAreBounded: with so many of them no further ones are made.
func TestOrphansOfANodeAreBounded(t *testing.T) {
	objects := []client.Object{dataNode()}
	for i := range mostOrphans {
		objects = append(objects, OfData(naming.Namespace, "n1", diskPlace, fmt.Sprintf("w-%08d", i)))
	}
	b := newBench(t, objects...)
	b.stray(strayName)
	if got := b.reported(); len(got) != mostOrphans || slices.Contains(got, strayName) {
		t.Errorf("%d orphans are reported", len(got))
	}
}

// TestNotOrphans has what is left alone, by the scan and, as far as it concerns it, by the removal.
func TestNotOrphans(t *testing.T) {
	locked := func(b *bench) {
		dir, err := os.Open(b.replicaDir(strayName))
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = dir.Close() })
		if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH); err != nil {
			b.t.Fatal(err)
		}
	}
	recreated := func(meta string) func(*bench) {
		return func(b *bench) { b.write("data/replicas/"+strayName+"/volume.meta", meta); b.rests(strayName) }
	}
	for _, row := range []struct {
		name string
		// edit changes the disk, or what the API server has; the cache has what it had.
		edit func(*bench)
		// live is in the API server, and not in the cache.
		live []client.Object
	}{
		{"a replica that the cache has not yet", func(*bench) {}, []client.Object{replicaOf(strayName)}},
		{"a member without an object", func(*bench) {}, []client.Object{engineWith(strayName)}},
		{"used by a process", locked, nil},
		{"without metadata", func(b *bench) { _ = os.Remove(b.replicaDir(strayName) + "/volume.meta"); b.rests(strayName) },
			nil},
		{"with other metadata", recreated("no JSON"), nil},
		{"with metadata of no size", recreated(`{"Head":"x"}`), nil},
		{"just changed", func(b *bench) {
			if err := os.Chtimes(b.replicaDir(strayName), now, now.Add(-restBefore+time.Second)); err != nil {
				b.t.Fatal(err)
			}
		}, nil},
		{"another name", func(b *bench) { b.rename(strayName, "v-2222222") }, nil},
		{"a link to a directory", func(b *bench) {
			b.rename(strayName, "x")
			if err := os.Symlink("x", b.replicaDir(strayName)); err != nil {
				b.t.Fatal(err)
			}
		}, nil},
		{"a disk of another UUID", func(b *bench) {
			b.write("data/"+naming.DiskConfigFile, `{"diskName":"d","diskUUID":"disk-2"}`)
		}, nil},
		{"a disk without configuration", func(b *bench) {
			_ = os.Remove(filepath.Join(b.root, "data", naming.DiskConfigFile))
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, dataNode())
			b.stray(strayName)
			row.edit(b)
			b.live = newBench(t, row.live...).client
			for range 2 {
				if got := b.reported(); len(got) > 0 {
					t.Errorf("reported: %v", got)
				}
			}
		})
	}
	for name, n := range map[string]*v1beta2.Node{"not ready": notReadyNode(v1beta2.NodeReasonManagerPodDown),
		"gone": {ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "n2"}}} {
		b := newBench(t, n)
		b.stray(strayName)
		if got := b.reported(); len(got) > 0 {
			t.Errorf("on a node that is %s: reported %v", name, got)
		}
	}
	b := newBench(t, dataNode(), replicaOf(strayName))
	b.stray(strayName)
	b.live = nil // nobody asks the API server about what the cache knows
	if got := b.reported(); len(got) > 0 {
		t.Errorf("of a replica in the cache: reported %v", got)
	}
}

func (b *bench) rename(from, to string) {
	b.t.Helper()
	if err := os.Rename(b.replicaDir(from), b.replicaDir(to)); err != nil {
		b.t.Fatal(err)
	}
}

// TestClaimsAreAskedOnce: a directory that a lost copy's engine holds costs one request in ten
// minutes, not two a minute, and is reported when nothing holds it any more.
func TestClaimsAreAskedOnce(t *testing.T) {
	b := newBench(t, dataNode())
	b.stray(strayName)
	free := b.live
	b.live = newBench(t, engineWith(strayName)).client
	b.reported()
	b.live = nil
	b.reported()
	b.live = free
	if err := b.scan(t.Context(), now.Add(askAgain)); err != nil {
		t.Fatal(err)
	}
	if got := b.reported(); !slices.Equal(got, []string{strayName}) {
		t.Errorf("reported: %v", got)
	}
}

// TestRemoval: what is removed is that directory of that disk, and nothing else.
func TestRemoval(t *testing.T) {
	b := newBench(t)
	disk := filepath.Join(b.root, "data")
	b.write("outside/keep", "")
	b.stray(strayName)
	b.stray("v-44444444")
	if err := os.Symlink(filepath.Join(b.root, "outside"), b.replicaDir(strayName)+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.root, "outside"), b.replicaDir("v-33333333")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("v-44444444", b.replicaDir("v-66666666")); err != nil {
		t.Fatal(err)
	}
	b.write("data/replicas/v-55555555", "a file")
	for _, wrong := range []struct{ uuid, name string }{
		{"disk-2", strayName}, {"", strayName}, {"disk-1", "../replicas/" + strayName}, {"disk-1", ".."}, {"disk-1", ""},
		{"disk-1", "/v-22222222"}, {"disk-1", "v-33333333"}, {"disk-1", "v-55555555"}, {"disk-1", strayName + "/out"},
		{"disk-1", "v-66666666"},
	} {
		if err := remove(disk, wrong.uuid, wrong.name); err == nil {
			t.Errorf("%+v is removed", wrong)
		}
	}
	for _, name := range []string{strayName, "v-33333333", "v-44444444", "v-55555555", "v-66666666"} {
		if !b.is(name) {
			t.Errorf("%s is gone", name)
		}
	}
	if err := remove(disk, "disk-1", strayName); err != nil || b.is(strayName) || !b.is("v-44444444") {
		t.Errorf("%v; is there: %v; its neighbour: %v", err, b.is(strayName), b.is("v-44444444"))
	}
	if _, err := os.Stat(filepath.Join(b.root, "outside/keep")); err != nil {
		t.Errorf("a file outside is gone: %v", err)
	}
	b.rename("", "../folder")
	if err := os.Symlink("folder", b.replicaDir("")); err != nil {
		t.Fatal(err)
	}
	if err := remove(disk, "disk-1", "v-44444444"); err == nil {
		t.Error("a link in place of the folder of replicas is followed")
	}
}

// TestUsedDirectoryWaits: a directory that a process uses is removed when the process has ended;
// until then condition Error says why not.
func TestUsedDirectoryWaits(t *testing.T) {
	b := newBench(t, dataNode())
	b.stray(strayName)
	dir, err := os.Open(b.replicaDir(strayName))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	o := dataOrphan(true)
	attempt := func() error {
		s, err := b.gather(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		call := decideData(now, o, s).Do.(loop.Call)
		return b.carry(t.Context(), o, s, call.Order)
	}
	for range 2 {
		if err := attempt(); err == nil || !b.is(strayName) {
			t.Fatalf("removed: %v", err)
		}
	}
	told := v1beta2.FindCondition(o.Status.Conditions, v1beta2.OrphanConditionError)
	if told.Status != v1beta2.ConditionTrue || !strings.Contains(told.Message, "used by a process") {
		t.Errorf("condition %+v", told)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	if err := attempt(); err != nil || b.is(strayName) {
		t.Errorf("%v; is there: %v", err, b.is(strayName))
	}
}

// TestOneWriter: whatever state the node is in, either its agent or the leader looks after it.
func TestOneWriter(t *testing.T) {
	for name, n := range map[string]*v1beta2.Node{"ready": dataNode(), "gone": nil,
		"not ready": notReadyNode(v1beta2.NodeReasonManagerPodDown)} {
		objects := []client.Object{}
		if n != nil {
			objects = append(objects, n)
		}
		b := newBench(t, objects...)
		leader := New(Config{Namespace: naming.Namespace, NodeName: "leader"}, nil).WithClient(b.client)
		agents, leaders := dataOrphan(false), dataOrphan(false)
		here, err := b.gather(t.Context(), agents)
		if err != nil {
			t.Fatal(err)
		}
		decideData(now, agents, here)
		there, err := leader.gather(t.Context(), leaders)
		if err != nil {
			t.Fatal(err)
		}
		decide(now, leaders, there)
		if (agents.Status.OwnerID == "n1") != (name == "ready") || (leaders.Status.OwnerID == "leader") == (name == "ready") {
			t.Errorf("node %s: owners %q and %q", name, agents.Status.OwnerID, leaders.Status.OwnerID)
		}
	}
}

// TestDeletion: an orphan that is deleted takes its directory along, unless somebody has it.
func TestDeletion(t *testing.T) {
	for _, row := range []struct {
		name  string
		live  []client.Object
		stays bool
	}{
		{"nobody has it", nil, false},
		{"a replica has it", []client.Object{replicaOf(strayName)}, true},
		{"an engine counts on it", []client.Object{engineWith(strayName)}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, dataNode())
			b.stray(strayName)
			b.live = newBench(t, row.live...).client
			o := dataOrphan(true)
			s, err := b.gather(t.Context(), o)
			if err != nil || !s.Mine || !s.Exists || s.Standing.Reason != "" || s.Grace != 5*time.Minute {
				t.Fatalf("%+v, %v", s, err)
			}
			if do := outcome(t, decideData(now, o, s)); strings.HasPrefix(do, "remove") == row.stays {
				t.Fatalf("does %q", do)
			}
			if row.stays {
				return
			}
			if err := b.carry(t.Context(), o, s, removeData{}); err != nil || b.is(strayName) {
				t.Fatalf("%v; is there: %v", err, b.is(strayName))
			}
			if s, err = b.gather(t.Context(), o); err != nil || s.Exists || s.Unseen {
				t.Errorf("then %+v, %v", s, err)
			}
		})
	}
	b := newBench(t, dataNode(), replicaOf(strayName))
	b.stray(strayName)
	o := dataOrphan(false)
	if s, err := b.gather(t.Context(), o); err != nil || s.Claim == "" {
		t.Errorf("a replica in the cache: %+v, %v", s, err)
	}
	for _, bad := range []string{"../" + strayName, "backups"} {
		o := dataOrphan(true)
		o.Spec.Parameters[v1beta2.OrphanParameterDataName] = bad
		if s, err := b.gather(t.Context(), o); err != nil || !s.Unseen || s.Problem == "" {
			t.Errorf("name %q: %+v, %v", bad, s, err)
		}
	}
	b.write("data/"+naming.DiskConfigFile, `{"diskName":"d","diskUUID":"disk-2"}`)
	if s, err := b.gather(t.Context(), o); err != nil || !s.Unseen || !strings.Contains(s.Problem, "disk-2") {
		t.Errorf("another disk at the path: %+v, %v", s, err)
	}
}
