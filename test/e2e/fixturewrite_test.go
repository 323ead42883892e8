package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

var writeFixture = flag.String("write-fixture", "",
	"let TestWriteFixture write the next fixture of a cluster's folder: what to call the build that the programs are")

// TestWriteFixture makes a cluster with something of everything, ends it in order and keeps its
// folder for TestTakesOverAnEarlierCluster of this and of all later builds.
func TestWriteFixture(t *testing.T) {
	if *writeFixture == "" {
		lack.Later(t, "writes a fixture; run with -write-fixture NAME-OF-THE-BUILD")
	}
	c := start(t)
	c.managersRun()
	f := &fixtureWriter{cluster: c, fixture: fixture{
		Written: *writeFixture, Programs: map[string]string{}, Volumes: map[string]storedVolume{},
	}}
	f.programs()
	f.customise()
	f.three()
	f.one()
	f.counted()
	f.used()
	f.stray()

	var err error
	if f.Objects, err = c.objects(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Stop(t)
	archive := nextFixture(t)
	if err := pack(c.Dir, archive); err != nil {
		t.Fatal(err)
	}
	p, err := json.MarshalIndent(f.fixture, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(description(archive), append(p, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("written: %s and %s", archive, description(archive))
}

type fixtureWriter struct {
	*cluster
	fixture
}

// programs notes which build it is.
func (f *fixtureWriter) programs() {
	f.t.Helper()
	var list longhorn.EngineImageList
	if err := f.kube.List(f.t.Context(), &list, client.InNamespace(namespace)); err != nil {
		f.t.Fatal(err)
	}
	for _, image := range list.Items {
		s := image.Status
		f.Programs[image.Spec.Image] = fmt.Sprintf("version %s, commit %s, data format %d", s.Version, s.GitCommit,
			s.DataFormatVersion)
	}
}

// customise changes settings, tags and jobs.
func (f *fixtureWriter) customise() {
	f.Settings = map[string]string{
		setting.GuaranteedInstanceManagerCPU:      `{"v1":"9"}`,
		setting.DefaultReplicaCount:               `{"v1":"2","v2":"3"}`,
		setting.StorageMinimalAvailablePercentage: "4",
		setting.ReplicaReplenishmentWaitInterval:  "601",
	}
	for name, value := range f.Settings {
		f.setting(name, value)
		f.Settings[name] = f.settingValue(name)
	}
	f.patchNode("node-1", `{"spec":{"tags":["fast"]}}`)
	for _, n := range f.Nodes {
		f.changeDisks(n.Name)
	}
	// A job that is overdue when a build takes over changes nothing that is looked at.
	_, err := f.rest.CreateRecurringJob(f.t.Context(), restclient.RecurringJobSpec{Name: "leap", Task: "snapshot-cleanup",
		Cron: "0 0 29 2 *", Groups: []string{"leaping"}, Concurrency: 1, Labels: map[string]string{"of": "a leap year"}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.managersRun() // the CPU setting replaces their Pods
}

// changeDisks tags the disks of node-1, and has less room reserved on all of them than a machine's
// disk would have.
func (f *fixtureWriter) changeDisks(node string) {
	f.t.Helper()
	tags := ""
	if node == "node-1" {
		tags = `,"tags":["ssd"]`
	}
	for name := range f.node(node).Spec.Disks {
		f.patchNode(node, fmt.Sprintf(`{"spec":{"disks":{%q:{"storageReserved":%d%s}}}}`, name, 64*mib, tags))
	}
}

func (f *fixtureWriter) make(spec restclient.VolumeSpec) {
	f.t.Helper()
	spec.Size = strconv.Itoa(cloneSize)
	if _, err := f.rest.CreateVolume(f.t.Context(), spec); err != nil {
		f.t.Fatal(err)
	}
}

// three has three replicas, three snapshots of which one is removed, labels, zeroes and holes.
func (f *fixtureWriter) three() {
	f.t.Helper()
	f.make(restclient.VolumeSpec{Name: "three", NumberOfReplicas: 3,
		RecurringJobSelector: []restclient.RecurringJobName{{Name: "leaping", IsGroup: true}}})
	v := storedVolume{UseOn: "node-2", Replicas: 3, Snapshots: map[string]string{}, Removed: []string{"gone"}}
	endpoint := f.attach("three", "node-1", 3)
	f.write(endpoint, "three, at first", 0, 96)
	v.Snapshots["first"] = f.snapshot("three", "first", endpoint, map[string]string{"of": "the beginning"})
	f.write(endpoint, "three, in between", 64, 96)
	f.snapshot("three", "gone", endpoint, nil)
	f.write(endpoint, "three, then", 80, 16)
	f.zero(endpoint, 8, 8)
	f.discard(endpoint, 16, 32)
	v.Snapshots["second"] = f.snapshot("three", "second", endpoint, nil)
	f.write(endpoint, "three, at last", 12, 24)
	f.discard(endpoint, 64, 8)
	if err := f.rest.DeleteSnapshotObject(f.t.Context(), "three", "gone"); err != nil {
		f.t.Fatal(err)
	}
	f.awaitNoSnapshot("three", "gone")
	v.Sum = f.sum(endpoint)
	f.detach("three")
	f.Volumes["three"] = v
}

// one has one replica, on the only node and disk with its tags, and the data's locality.
func (f *fixtureWriter) one() {
	f.t.Helper()
	f.make(restclient.VolumeSpec{Name: "one", NumberOfReplicas: 1, DataLocality: "best-effort",
		NodeSelector: []string{"fast"}, DiskSelector: []string{"ssd"}})
	endpoint := f.attach("one", "node-1", 1)
	f.write(endpoint, "one", 1000, 50)
	f.Volumes["one"] = storedVolume{UseOn: "node-1", Replicas: 1, Sum: f.sum(endpoint)}
	f.detach("one")
}

// counted has another number of replicas than it was made with, one of which was rebuilt.
func (f *fixtureWriter) counted() {
	f.t.Helper()
	f.make(restclient.VolumeSpec{Name: "counted", NumberOfReplicas: 2, ReplicaAutoBalance: "disabled"})
	endpoint := f.attach("counted", "node-2", 2)
	f.write(endpoint, "counted", 2000, 40)
	v := storedVolume{UseOn: "node-3", Replicas: 3, Sum: f.sum(endpoint)}
	if _, err := f.rest.UpdateReplicaCount(f.t.Context(), "counted", v.Replicas); err != nil {
		f.t.Fatal(err)
	}
	f.awaitUsable("counted", "node-2", v.Replicas)
	f.Volumes["counted"] = v
	f.detach("counted")
}

// used stays attached.
func (f *fixtureWriter) used() {
	f.t.Helper()
	f.make(restclient.VolumeSpec{Name: "used", NumberOfReplicas: 3})
	v := storedVolume{Node: "node-3", UseOn: "node-3", Replicas: 3, Snapshots: map[string]string{}}
	endpoint := f.attach("used", "node-3", 3)
	f.write(endpoint, "used, before", 0, 30)
	v.Snapshots["before"] = f.snapshot("used", "before", endpoint, map[string]string{"of": "what is in use"})
	f.write(endpoint, "used, after", 20, 30)
	v.Sum = f.sum(endpoint)
	f.Volumes["used"] = v
}

// stray is a copy of a replica's directory that no Replica names, and is reported.
func (f *fixtureWriter) stray() {
	f.t.Helper()
	var of string
	for _, dir := range f.replicaDirs("one") {
		of = dir
	}
	stray := filepath.Join(filepath.Dir(of), "lost-volume-1a2b3c4d")
	if out, err := exec.Command("cp", "-a", "--sparse=always", of, stray).CombinedOutput(); err != nil {
		f.t.Fatalf("cp: %v: %s", err, out)
	}
	hour := time.Now().Add(-time.Hour) // it is not left alone because it was just changed
	if err := os.Chtimes(stray, hour, hour); err != nil {
		f.t.Fatal(err)
	}
	f.reportedData(of, stray)
	rel, err := filepath.Rel(f.Dir, stray)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Strays = []string{rel}
}

// snapshot takes a snapshot and returns the sum of what it holds.
func (f *fixtureWriter) snapshot(volume, name, endpoint string, labels map[string]string) string {
	f.t.Helper()
	f.orderLabelled(volume, name, labels)
	return f.sum(endpoint)
}

const fixtureBlock = 4096

// write fills n blocks from the given one on with the words, each with its number.
func (c *cluster) write(endpoint, words string, block, n int) {
	c.t.Helper()
	c.use(endpoint, func(d userDevice) error {
		for i := block; i < block+n; i++ {
			p := bytes.Repeat([]byte(fmt.Sprintf("%-27s%5d", words, i)), fixtureBlock/32)
			if _, err := d.WriteAt(p, int64(i)*fixtureBlock); err != nil {
				return err
			}
		}
		return nil
	})
}

// zero writes zeroes, which are data.
func (f *fixtureWriter) zero(endpoint string, block, n int) {
	f.t.Helper()
	f.use(endpoint, func(d userDevice) error {
		_, err := d.WriteAt(make([]byte, n*fixtureBlock), int64(block)*fixtureBlock)
		return err
	})
}

// discard gives blocks back, over snapshots that hold them.
func (f *fixtureWriter) discard(endpoint string, block, n int) {
	f.t.Helper()
	off, length := int64(block)*fixtureBlock, int64(n)*fixtureBlock
	f.use(endpoint, func(d userDevice) error {
		switch d := d.(type) {
		case *nbdclient.Client:
			return d.Trim(off, length)
		case *blockDevice:
			return rig.Discard(d.File, off, length)
		}
		return fmt.Errorf("%T cannot discard", d)
	})
}

// use opens a volume, and flushes and closes it after do.
func (c *cluster) use(endpoint string, do func(userDevice) error) {
	c.t.Helper()
	d := c.device(endpoint)
	err := do(d)
	if err == nil {
		err = d.Flush()
	}
	if closed := d.Close(); err == nil {
		err = closed
	}
	if err != nil {
		c.t.Fatalf("%s: %v", strings.TrimPrefix(endpoint, c.Dir), err)
	}
}

func (c *cluster) sum(endpoint string) string {
	c.t.Helper()
	return fmt.Sprintf("%x", hashDevice(c.t, c, endpoint))
}
