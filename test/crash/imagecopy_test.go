package crash

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// TestCopiesOfAVolumeOnAnImage: a clone of a volume on an image, and what is restored of its
// backups, read as the volume did, on the same image: also where the volume was zeroed or trimmed,
// and the image would show through a hole. A purge beside that drops no replica.
func TestCopiesOfAVolumeOnAnImage(t *testing.T) {
	t.Parallel()
	onImages(t, func(t *testing.T, u *imageUser) {
		b := &backedUp{t: t, v: rig.New(t, 0, imageVolume), store: t.TempDir()}
		b.v.EngineEnv = b.environment()
		b.v.StartEngine(u.replica(b.v, "a"), u.replica(b.v, "b"))
		u.d = b.v.Dial()
		u.use(100)
		u.snapshot(b.v, "below")
		u.use(100)
		if err := u.d.Trim(2*mib, 2*mib); err != nil { // a whole block of the backup
			t.Fatal(err)
		}
		clear(u.want[2*mib : 4*mib])
		u.snapshot(b.v, "first")
		first := bytes.Clone(u.want)
		u.back(b, "first")
		u.use(100)
		if _, err := b.v.Control().SnapshotRemove(t.Context(), &enginev1.SnapshotRemoveRequest{Name: "below"}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.v.Control().SnapshotPurge(t.Context(), &enginev1.SnapshotPurgeRequest{}); err != nil {
			t.Fatal(err)
		}
		b.v.Await("end of the purge", func(s *enginev1.State) bool { return s.Snapshots["below"] == nil })
		u.snapshot(b.v, "second")
		second := bytes.Clone(u.want)
		u.back(b, "second")
		u.use(100)
		if s, err := b.v.State(); err != nil || rig.Modes(s)[enginev1.Mode_MODE_RW] != 2 {
			t.Fatalf("a replica was dropped: %v, %v", s.GetReplicas(), err)
		}

		u.copied(b, "clone", first, func(to *rig.Volume) { u.clone(b.v, to, "first") })
		for name, want := range map[string][]byte{"first": first, "second": second} {
			u.copied(b, "backup "+name, want, func(to *rig.Volume) {
				b.must(to, "restore", b.url(name))
				if state, reason := b.restored(to); state != "complete" {
					t.Fatal(state, reason)
				}
			})
		}
		u.same("the source of copies")
	})
}

func (u *imageUser) snapshot(v *rig.Volume, name string) {
	u.t.Helper()
	_, err := v.Control().SnapshotCreate(u.t.Context(), &enginev1.SnapshotCreateRequest{Name: name, UserCreated: true})
	if err != nil {
		u.t.Fatal(err)
	}
}

// back backs a snapshot up.
func (u *imageUser) back(b *backedUp, name string) {
	u.t.Helper()
	b.must(b.v, "create", name, "--dest", "vfs://"+b.store, "--backup-name", name, "--backing-image-name", "image")
	if state, reason := b.ended(name); state != "complete" {
		u.t.Fatal(state, reason)
	}
}

// clone fills a volume from a snapshot of another one.
func (u *imageUser) clone(from, to *rig.Volume, snapshot string) {
	u.t.Helper()
	source, target := from.Control(), to.Control()
	wait.Until(u.t, "clone", func() bool {
		err := enginev1.CloneSnapshot(u.t.Context(), target,
			func(ctx context.Context, uuid string) (*enginev1.CloneGrant, error) {
				return source.CloneSource(ctx, &enginev1.CloneSourceRequest{Snapshot: snapshot, ForVolumeUuid: uuid})
			})
		// The replicas of an engine that begins are RW a moment before it takes orders.
		if code := status.Code(err); code == codes.FailedPrecondition || code == codes.Unavailable {
			return false
		}
		if err != nil {
			u.t.Fatal(err)
		}
		return true
	})
}

// copied makes a volume on the image, has it filled, and looks what its user reads, of
// either replica.
func (u *imageUser) copied(b *backedUp, what string, want []byte, fill func(*rig.Volume)) {
	t := u.t
	t.Helper()
	to, err := rig.Open(t, rig.Config{Size: imageVolume, NoFrontend: true, EngineEnv: b.environment()})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := u.replica(to, "c"), u.replica(to, "d")
	serve(to)
	fill(to)
	to.StopEngine()
	to.SetOffered(true)
	to.StartEngine()
	reader := &imageUser{t: t, d: to.Dial(), want: want}
	reader.same(what)
	c.Kill()
	reader.same(what + ", from the other replica")
}
