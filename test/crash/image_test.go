package crash

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/dataplane/qcow2/qcow2test"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

// TestVolumeOnAnImage: a volume reads as the image below it where nothing was written, never again
// as the image where it was written, zeroed or trimmed, and all of it on a copy that was rebuilt,
// after everything was killed, without a snapshot that it had, back at another one, and larger.
func TestVolumeOnAnImage(t *testing.T) {
	onImages(t, func(t *testing.T, u *imageUser) {
		v := rig.New(t, 0, imageVolume)
		a, b := u.replica(v, "a"), u.replica(v, "b")
		v.StartEngine(a, b)
		u.d = v.Dial()
		u.same("at first")
		u.use(200)
		if _, err := v.Control().SnapshotCreate(t.Context(), &enginev1.SnapshotCreateRequest{Name: "s"}); err != nil {
			t.Fatal(err)
		}
		u.use(200)
		u.same("in use")
		b.Kill()
		u.use(50)
		if err := os.RemoveAll(b.Dir); err != nil {
			t.Fatal(err)
		}
		c := u.replica(v, "c")
		v.Rebuild(c)
		a.Kill()
		u.same("on the copy that was rebuilt")
		v.KillEngine()
		c.Kill()
		v.StartEngine(c.Start())
		u.d = v.Dial()
		u.same("after everything was killed")
		u.upkeep(v, c)
	})
}

const (
	imageSize   = 6*mib + 512
	imageVolume = 16 * mib
)

// onImages runs a test for a user of a volume on a raw image, and for one on a qcow2 image.
func onImages(t *testing.T, test func(*testing.T, *imageUser)) {
	src := seeded.New(t, "a volume on an image reads as what was written, and the image where nothing was")
	r := src.Rand(src.Seed(1))
	image := make([]byte, imageSize)
	for at := range image {
		image[at] = byte(r.Uint32() >> (at / 65536 % 9)) // some of it can be compressed
	}
	packed := qcow2test.Image{Bits: 16, Version: 3, Size: imageSize}.Build(t, image, func(n int) qcow2test.Stored {
		return qcow2test.Plain + qcow2test.Stored(n%2)
	})
	for name, file := range map[string][]byte{"raw": image, "qcow2": packed} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "backing")
			if err := os.WriteFile(path, file, 0o400); err != nil {
				t.Fatal(err)
			}
			test(t, &imageUser{t: t, image: path, r: r, want: append(bytes.Clone(image),
				make([]byte, imageVolume-imageSize)...)})
		})
	}
}

// replica starts a replica of a volume on the image.
func (u *imageUser) replica(v *rig.Volume, name string) *rig.Replica {
	c := v.AddReplica(name)
	c.Flags = []string{"--backing-file", u.image}
	return c.Start()
}

// upkeep has the snapshot purged, goes back to another one, and lets the volume grow.
func (u *imageUser) upkeep(v *rig.Volume, c *rig.Replica) {
	t := u.t
	t.Helper()
	ctx, cancel := deadline()
	defer cancel()
	_, err := v.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: "back", UserCreated: true})
	rig.Final(t, err)
	back := bytes.Clone(u.want)
	u.use(100)
	_, err = v.Control().SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: "s"})
	rig.Final(t, err)
	_, err = v.Control().SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{})
	rig.Final(t, err)
	v.Await("end of the purge", func(s *enginev1.State) bool { return s.Snapshots["s"] == nil })
	u.same("without its first snapshot")

	v.StopEngine()
	v.SetOffered(false)
	v.SpawnEngine(c)
	v.Await("served for maintenance", func(s *enginev1.State) bool { return s.Generation > 0 && s.SuspendedReason == "" })
	_, err = v.Control().SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: "back"})
	rig.Final(t, err)
	v.StopEngine()
	v.SetOffered(true)
	v.StartEngine(c)
	u.d, u.want = v.Dial(), back
	u.same("after it went back")

	const larger = 20 * mib
	_, err = v.Control().Expand(ctx, &enginev1.ExpandRequest{Size: larger})
	rig.Final(t, err)
	v.Await("expansion", func(s *enginev1.State) bool { return s.Size == larger && !s.Expanding })
	v.Size = larger
	u.d, u.want = v.Dial(), append(u.want, make([]byte, larger-len(u.want))...)
	u.same("larger")
	u.use(100)
	u.same("larger, in use")
}

// imageUser uses a volume and knows what it holds.
type imageUser struct {
	t     *testing.T
	image string
	d     *nbdclient.Client
	want  []byte
	r     *rand.Rand
}

func (u *imageUser) use(requests int) {
	u.t.Helper()
	for range requests {
		off, n := int64(u.r.IntN(len(u.want)/512-256))*512, int64(1+u.r.IntN(256))*512
		var err error
		switch u.r.IntN(4) {
		case 0, 1:
			p := u.want[off : off+n]
			for i := range p {
				p[i] = byte(u.r.Uint32())
			}
			_, err = u.d.WriteAt(p, off)
		case 2:
			err = u.d.WriteZeroes(off, n)
			clear(u.want[off : off+n])
		case 3: // whole blocks are given back, and read as zeroes
			off &^= 4095
			n = min((n+4095)&^4095, int64(len(u.want))-off)
			err = u.d.Trim(off, n)
			clear(u.want[off : off+n])
		}
		if err != nil {
			u.t.Fatal(err)
		}
	}
}

func (u *imageUser) same(when string) {
	u.t.Helper()
	got := make([]byte, len(u.want))
	for off := int64(0); off < int64(len(got)); off += mib {
		if _, err := u.d.ReadAt(got[off:off+mib], off); err != nil {
			u.t.Fatalf("%s: %v", when, err)
		}
	}
	for at := range got {
		if got[at] != u.want[at] {
			u.t.Fatalf("%s: byte %d is %d, want %d", when, at, got[at], u.want[at])
		}
	}
}
