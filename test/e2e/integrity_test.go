package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// dataIntegrity: the data of a snapshot is checked because somebody asks for it, and once more when
// the copy of one replica is another one than it was: the copy is mended, an event says so, and the
// users of the volume notice nothing. F10Clock has a check by the schedule.
func dataIntegrity(t *testing.T, c *cluster) {
	const name, size = "integrity", 64 * mib
	c.create(name, size, 3)
	defer c.remove(name)
	endpoint := c.attach(name, "node-1", 3)
	fillWith(t, c, endpoint, 1)
	c.orderSnapshot(name, "checked")
	content := fillWith(t, c, endpoint, 2)
	first := c.awaitChecksum("checked", c.askForChecksums(name))

	dirs := c.replicaDirs(name)
	file := filepath.Join(dirs[slices.Sorted(maps.Keys(dirs))[0]], "volume-snap-checked.img")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rot(t, file, 5*mib+4096)
	asked := c.askForChecksums(name)
	if sum := c.awaitChecksum("checked", asked); sum != first {
		t.Errorf("checksum %s, before %s", sum, first)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, good) {
		t.Errorf("the copy is not what it was: %v", err)
	}
	c.awaitEvent(t, "FailedSnapshotDataIntegrityCheck", name+"-e-0")
	holds(t, c, endpoint, content, "the content has changed")
	c.detach(name)
	c.identical(name, 3)
}

// rot changes a sector of a file behind everybody's back.
func rot(t *testing.T, file string, off int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(bytes.Repeat([]byte{0xee}, 512), off)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// askForChecksums asks for those of all snapshots of a volume, and waits until they are there. It
// returns when it has asked.
func (c *cluster) askForChecksums(volume string) time.Time {
	c.t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: volume}
	var asked time.Time
	c.eventually("the wish is stored", func(ctx context.Context) error {
		var v longhorn.Volume
		if err := c.kube.Get(ctx, key, &v); err != nil {
			return err
		}
		asked = time.Now().Truncate(time.Second)
		if v.Spec.SnapshotHashingRequestedAt == asked.UTC().Format(time.RFC3339) {
			return errors.New("a wish was stored in this second already")
		}
		v.Spec.SnapshotHashingRequestedAt = asked.UTC().Format(time.RFC3339)
		return c.kube.Update(ctx, &v)
	})
	c.eventually("the wish is fulfilled", func(ctx context.Context) error {
		var v longhorn.Volume
		err := c.kube.Get(ctx, key, &v)
		if err == nil && v.Status.LastOnDemandSnapshotHashingCompleteAt != v.Spec.SnapshotHashingRequestedAt {
			err = fmt.Errorf("%s, wanted %s", v.Status.LastOnDemandSnapshotHashingCompleteAt, v.Spec.SnapshotHashingRequestedAt)
		}
		return err
	})
	return asked
}

// awaitChecksum waits for a checksum that was computed at a time or later.
func (c *cluster) awaitChecksum(snapshot string, since time.Time) (sum string) {
	c.t.Helper()
	c.eventually("the checksum of snapshot "+snapshot, func(ctx context.Context) error {
		var s longhorn.Snapshot
		if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: snapshot}, &s); err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, s.Status.ChecksumCalculatedAt)
		if err == nil && (at.Before(since) || len(s.Status.Checksum) != 16) {
			err = fmt.Errorf("%+v", s.Status)
		}
		sum = s.Status.Checksum
		return err
	})
	return sum
}

// awaitEvent waits for an event about an object.
func (c *cluster) awaitEvent(t *testing.T, reason, object string) {
	t.Helper()
	ks := kubernetesOf(t, c)
	c.eventually("event "+reason+" of "+object, func(ctx context.Context) error {
		list, err := ks.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Name == object
		}) {
			return fmt.Errorf("not among %d events", len(list.Items))
		}
		return nil
	})
}
