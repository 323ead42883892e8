package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// fixtures holds the folders of clusters as builds have left them: cluster-<n>.tar.gz, and beside
// each cluster-<n>.json, which says what is in it.
const fixtures = "testdata"

// fixture is what a cluster's folder holds. Sums are those of the first 32 MiB, in hexadecimal.
type fixture struct {
	// Written is what the build was called, and Programs what its engines, by image, said they were.
	Written  string            `json:"written"`
	Programs map[string]string `json:"programs"`
	// Objects are those that every later build must have, by kind and name.
	Objects  map[string]map[string]object `json:"objects"`
	Settings map[string]string            `json:"settings"`
	Volumes  map[string]storedVolume      `json:"volumes"`
	// Strays are replica directories that no Replica names, below a node's root.
	Strays []string `json:"strays"`
}

// object is what must stay of an object. A later build may add fields.
type object struct {
	Labels map[string]string `json:"labels,omitempty"`
	Spec   map[string]any    `json:"spec"`
}

type storedVolume struct {
	Sum string `json:"sum"`
	// Snapshots are the sums of the user's snapshots, by name.
	Snapshots map[string]string `json:"snapshots,omitempty"`
	// Removed are snapshots that were removed.
	Removed []string `json:"removed,omitempty"`
	// Node that the volume is attached to with a ticket, if any.
	Node string `json:"node,omitempty"`
	// UseOn is where to attach it so that no replica need move.
	UseOn string `json:"useOn"`
	// Replicas is how many there are to be when the volume is attached.
	Replicas int `json:"replicas"`
}

// keptKinds are the kinds whose objects are recorded, with the fields of their specification that
// only a change by a user may change; nil means all of them.
var keptKinds = map[string][]string{
	"Volume": nil, "Snapshot": nil, "Node": nil, "RecurringJob": nil, "Orphan": nil, "EngineImage": nil,
	"Engine": {"volumeName", "volumeSize", "image"},
	// healthyAt changes with a rebuild.
	"Replica": {"volumeName", "volumeSize", "nodeID", "diskID", "diskPath", "dataDirectoryName", "healthyAt"},
}

// objects reads everything of the kinds that are recorded.
func (c *cluster) objects(ctx context.Context) (map[string]map[string]object, error) {
	all := map[string]map[string]object{}
	for kind, fields := range keptKinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: longhorn.GroupVersion.Group,
			Version: longhorn.GroupVersion.Version, Kind: kind + "List"})
		if err := c.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		all[kind] = map[string]object{}
		for _, item := range list.Items {
			spec, _, err := unstructured.NestedMap(item.Object, "spec")
			if err != nil {
				return nil, err
			}
			for field := range spec {
				if fields != nil && !slices.Contains(fields, field) {
					delete(spec, field)
				}
			}
			o := object{Spec: spec}
			if kind == "Volume" || kind == "Snapshot" {
				o.Labels = item.GetLabels()
			}
			all[kind][item.GetName()] = o
		}
	}
	return all, nil
}

// readFixtures returns what the descriptions say, by archive.
func readFixtures(t *testing.T) map[string]fixture {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(fixtures, "cluster-*.tar.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := map[string]fixture{}
	for _, archive := range archives {
		p, err := os.ReadFile(description(archive))
		if err != nil {
			t.Fatal(err)
		}
		var f fixture
		if err := json.Unmarshal(p, &f); err != nil {
			t.Fatalf("%s: %v", description(archive), err)
		}
		all[archive] = f
	}
	return all
}

func description(archive string) string { return strings.TrimSuffix(archive, ".tar.gz") + ".json" }

// notPacked of a cluster's folder: what every start makes anew, what only people read, and keys.
// Certificates would end; ports and addresses are those of another machine.
var notPacked = []string{"./lock", "./pki", "./kubeconfig", "./ready.json", "./control.sock", "./ports.json", "./logs",
	"./images", "./dev", "./nodes/*/dev", "./nodes/*/logs", "./nodes/*/pods", "./" + hostRoots + "/var/log",
	"./" + hostRoots + "/var/lib/longhorn/unix-domain-socket", "./" + binaries + "/*/*", "./etcd/member/wal/*.tmp"}

const (
	// hostRoots are what Pods see as the host's root, in a cluster's folder.
	hostRoots = "nodes/*/root"
	// binaries are the folders with the engines of a cluster's engine images.
	binaries = hostRoots + "/var/lib/longhorn/engine-binaries"
)

// pack writes the folder of a cluster that has ended. Holes of files stay holes, for the format of
// replicas tells them from zeroes.
func pack(dir, archive string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal"))
	if err != nil {
		return err
	}
	for _, name := range logs {
		if err := punchEnd(name); err != nil {
			return err
		}
	}
	// One time for all files, so that the archive does not tell when each was written; long ago, so
	// that nothing is left alone because it was just changed.
	args := []string{"--create", "--gzip", "--sparse", "--hole-detection=seek", "--format=gnu", "--sort=name",
		"--mtime=2020-01-01 00:00:00Z", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rwX", "--anchored",
		"--no-wildcards-match-slash"}
	for _, p := range notPacked {
		args = append(args, "--exclude="+p)
	}
	cmd := exec.Command("tar", append(args, "--file", archive, "--directory", dir, ".")...)
	cmd.Env = append(os.Environ(), "GZIP=-9n", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return nil
}

// punchEnd makes a hole of the zeroes at the end of a file: etcd has room for its log ready.
func punchEnd(name string) error {
	p, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	const page = 4096
	end := (len(bytes.TrimRight(p, "\x00")) + page - 1) / page * page
	if end >= len(p) {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(end), int64(len(p)-end))
}

// unpack makes a cluster's folder of an archive. It goes away with the test.
func unpack(t *testing.T, archive string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ankole-") // see testcluster.Start
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove cluster folder: %v", err)
		}
	})
	out, err := exec.Command("tar", "--extract", "--gzip", "--no-same-owner", "--file", archive, "--directory", dir).
		CombinedOutput()
	if err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return dir
}

// replicaFolders lists the directories of replicas below a cluster's folder.
func replicaFolders(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, hostRoots, "var/lib/longhorn/replicas/*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		if found[i], err = filepath.Rel(dir, found[i]); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// nextFixture is the first number that is free.
func nextFixture(t *testing.T) string {
	t.Helper()
	for n := 1; ; n++ {
		archive := filepath.Join(fixtures, fmt.Sprintf("cluster-%d.tar.gz", n))
		if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
			return archive
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
