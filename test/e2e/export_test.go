package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/dataplane/qcow2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

const exportSize = 48 * mib

// exported: images of a volume: of a snapshot of it, while it is in use; of a volume that is
// detached, as qcow2, which is detached again and keeps no snapshot; volumes made from them. What
// cannot be exported is refused. A data source that is killed begins anew.
func (at *imageTest) exported() {
	at.t.Helper()
	at.t.Log("exported from a volume")
	const volume = "exported"
	at.create(volume, exportSize, 2)
	endpoint := at.attach(volume, "node-1", 2)
	then := at.fillSome(endpoint, 1)
	if _, err := at.rest.OrderSnapshot(at.t.Context(), volume, resource.SnapshotCRInput{Name: "s"}); err != nil {
		at.t.Fatal(err)
	}
	at.eventually("the snapshot is taken", func(ctx context.Context) error {
		s, err := at.rest.SnapshotObject(ctx, volume, "s")
		if err == nil && !s.ReadyToUse {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	now := at.fillSome(endpoint, 2)
	at.refusedExports(volume)
	status, out, stderr := at.ankole(at.t, "backing-image", "create", "of-snapshot", "--from-volume", volume, "--snapshot",
		"s", "--copies", "1")
	if status != 0 {
		at.t.Fatalf("status %d\n%s\n%s", status, out, stderr)
	}
	if got := at.exportedFile("of-snapshot"); !bytes.Equal(got, then) {
		at.t.Errorf("the image of the snapshot has %d bytes of another content", len(got))
	}
	at.killedExports(volume, now)
	at.detach(volume)

	at.t.Log("of a volume that is detached, as qcow2")
	at.export("of-volume", map[string]string{"volume-name": volume, "export-type": "qcow2"})
	packed := at.exportedFile("of-volume")
	if !bytes.Equal(at.unpacked(packed), now) || len(packed) >= exportSize {
		at.t.Errorf("the image of the volume has %d bytes of another content", len(packed))
	}
	at.cloned("of-volume", packed)
	at.released(volume)
	at.t.Log("a volume on it")
	_, err := at.rest.CreateVolume(at.t.Context(), restclient.VolumeSpec{Name: "made-of-it",
		Size: strconv.Itoa(exportSize), NumberOfReplicas: 2, BackingImage: "of-volume"})
	if err != nil {
		at.t.Fatal(err)
	}
	at.reads(at.attach("made-of-it", "node-2", 2), now)
	at.detach("made-of-it")
	at.remove("made-of-it")
	at.remove(volume)
	for _, name := range []string{"of-snapshot", "of-volume", "killed", "clone"} {
		if err := at.rest.DeleteBackingImage(at.t.Context(), name); err != nil {
			at.t.Fatal(err)
		}
	}
	at.awaitNothing()
}

// cloned: an image that is a copy of another one, under its own name; what cannot be cloned is
// refused.
func (at *imageTest) cloned(of string, want []byte) {
	at.t.Helper()
	at.t.Log("a clone of an image")
	order := func(parameters map[string]string) error {
		_, err := at.rest.CreateBackingImage(at.t.Context(), restclient.BackingImageSpec{Name: "clone", SourceType: "clone",
			Parameters: parameters, MinNumberOfCopies: 1})
		return err
	}
	for says, parameters := range map[string]map[string]string{
		"there is no such backing image":   {"backing-image": "nothing"},
		"name the Secret that has the key": {"backing-image": of, "encryption": "encrypt"},
	} {
		if err := order(parameters); err == nil || !strings.Contains(err.Error(), says) {
			at.t.Errorf("%v: %v, want %q", parameters, err, says)
		}
	}
	if err := order(map[string]string{"backing-image": of}); err != nil {
		at.t.Fatal(err)
	}
	if got := at.exportedFile("clone"); !bytes.Equal(got, want) {
		at.t.Errorf("the clone has %d bytes of another content", len(got))
	}
}

// fillSome writes some of a volume, and returns all of it.
func (at *imageTest) fillSome(endpoint string, seed byte) []byte {
	at.t.Helper()
	d := at.device(endpoint)
	r := rand.NewChaCha8([32]byte{seed})
	p := make([]byte, mib)
	for off := int64(seed) * 4096; off < exportSize-mib; off += 5 * mib {
		_, _ = r.Read(p) // it never fails
		if _, err := d.WriteAt(p, off); err != nil {
			at.t.Fatal(err)
		}
	}
	all := make([]byte, exportSize)
	for off := 0; off < len(all); off += mib {
		if _, err := d.ReadAt(all[off:off+mib], int64(off)); err != nil {
			at.t.Fatal(err)
		}
	}
	if err := errors.Join(d.Flush(), d.Close()); err != nil {
		at.t.Fatal(err)
	}
	return all
}

// export orders an image of a volume.
func (at *imageTest) export(name string, parameters map[string]string) {
	at.t.Helper()
	if _, err := at.rest.CreateBackingImage(at.t.Context(), restclient.BackingImageSpec{Name: name,
		SourceType: "export-from-volume", Parameters: parameters, MinNumberOfCopies: 1}); err != nil {
		at.t.Fatal(err)
	}
}

// exportedFile waits until an image is ready, and returns its file.
func (at *imageTest) exportedFile(name string) (content []byte) {
	at.t.Helper()
	at.eventually("image "+name+" is ready", func(context.Context) error {
		b := at.image(name)
		for _, f := range b.Status.DiskFileStatusMap {
			if f.State == longhorn.BackingImageStateFailed {
				at.t.Fatalf("image %s: %s", name, f.Message)
			}
			if f.State == longhorn.BackingImageStateReady && b.Status.VirtualSize == exportSize {
				return nil
			}
		}
		return fmt.Errorf("%+v", b.Status)
	})
	for _, dir := range at.directories() {
		if strings.HasPrefix(filepath.Base(dir), name+"-") {
			var err error
			if content, err = os.ReadFile(filepath.Join(dir, "backing")); err != nil {
				at.t.Fatal(err)
			}
		}
	}
	return content
}

// unpacked is the disk in an image of the format qcow2.
func (at *imageTest) unpacked(file []byte) []byte {
	at.t.Helper()
	i, err := qcow2.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		at.t.Fatal(err)
	}
	content := make([]byte, i.Size)
	if _, err := i.ReadAt(content, 0); err != nil {
		at.t.Fatal(err)
	}
	return content
}

// refusedExports has what no image is made of.
func (at *imageTest) refusedExports(volume string) {
	at.t.Helper()
	for want, parameters := range map[string]map[string]string{
		"there is no such volume": {"volume-name": "nothing"},
		"it has no snapshot none": {"volume-name": volume, "snapshot-name": "none"},
		"raw and qcow2 are":       {"volume-name": volume, "export-type": "vmdk"},
		"name the volume":         {},
	} {
		_, err := at.rest.CreateBackingImage(at.t.Context(), restclient.BackingImageSpec{Name: "bad",
			SourceType: "export-from-volume", Parameters: parameters})
		if err == nil || !strings.Contains(err.Error(), want) {
			at.t.Errorf("%v: %v, want %q", parameters, err, want)
		}
	}
}

// killedExports: the data source of an export is killed, and the image is made all the same.
func (at *imageTest) killedExports(volume string, want []byte) {
	at.t.Helper()
	at.t.Log("its data source is killed")
	at.export("killed", map[string]string{"volume-name": volume})
	const process = "--name\x00killed"
	at.eventually("the data source runs", func(context.Context) error {
		if len(holding(at.Info.Dir, process)) == 0 && at.image("killed").Status.Size == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	at.killIfRuns(process)
	if got := at.exportedFile("killed"); !bytes.Equal(got, want) {
		at.t.Errorf("after its data source was killed the image has %d bytes of another content", len(got))
	}
}

// released waits until exports have left nothing of a volume: it is detached, has no ticket of
// theirs, and no snapshot that is not marked as removed.
func (at *imageTest) released(volume string) {
	at.t.Helper()
	at.eventually("the volume is as before its export", func(ctx context.Context) error {
		var all longhorn.SnapshotList
		if err := at.kube.List(ctx, &all, client.InNamespace(namespace),
			client.HasLabels{"longhorn.io/for-exporting-backing-image"}); err != nil {
			return err
		}
		v := at.volume(volume)
		a := &longhorn.VolumeAttachment{}
		if err := at.kube.Get(ctx, key(volume), a); err != nil {
			return err
		}
		for _, s := range all.Items {
			// It goes when a newer one is taken: the head stands on it.
			if s.DeletionTimestamp == nil || !s.Status.MarkRemoved {
				return fmt.Errorf("snapshot %s is left: %+v", s.Name, s.Status)
			}
		}
		if len(a.Spec.AttachmentTickets) > 0 || v.State != "detached" {
			return fmt.Errorf("tickets %v, %s", a.Spec.AttachmentTickets, v.State)
		}
		return nil
	})
}
