package crash

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/backup/target"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// TestC11Backups: the engine reads a replica over the storage network, and sends what it has read
// to the backup store over the other one.
func TestC11Backups(t *testing.T) {
	t.Parallel()
	const size, next = 32 * mib, mib / 2
	v := twoNetworks(t, 2, size)
	b := &backedUp{t: t, v: v, src: seeded.New(t, "content of a volume")}
	v.EngineEnv = b.environment()
	v.StartEngine()
	b.d = v.Dial()
	b.write(0, size)
	b.snapshot("s")
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	store := httptest.NewUnstartedServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	_ = store.Listener.Close() // it is not where the hosts are
	var err error
	if store.Listener, err = v.Listen(); err != nil {
		t.Fatal(err)
	}
	store.Start()
	t.Cleanup(store.Close)
	carried := during(t, hostsOf(v), func() {
		_, err := v.Control().BackupCreate(t.Context(), &enginev1.BackupCreateRequest{Name: "b1", Snapshot: "s",
			Target: "s3://bucket@us-east-1/", ConcurrentLimit: 2, Credentials: target.Credentials{
				target.KeyEndpoints: store.URL, target.KeyAccessKeyID: "a", target.KeySecretAccessKey: "b"}})
		if err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the backup ends", func() bool {
			s, err := v.State()
			if told := s.GetBackups()["b1"].GetError(); told != "" {
				t.Fatal(told)
			}
			return err == nil && s.GetBackups()["b1"].GetState() == "complete"
		})
	})
	e := carried[v.Engine().Host]
	if e.storage.In < size || e.storage.Out > next || e.management.Out < size || e.management.In > next {
		t.Errorf("the engine: %+v", e)
	}
	sent := int64(0)
	for _, r := range v.Replicas {
		c := carried[r.Host]
		sent += c.storage.Out
		if c.management.In+c.management.Out > next {
			t.Errorf("replica %s: %+v", r.Name, c)
		}
	}
	if sent < size || sent > size+size/4 {
		t.Errorf("%d bytes left the replicas over the storage network", sent)
	}
}
