package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/quorum"
	waits "ankole.storage/test/wait"
)

const (
	takeSize = 16 << 20
	takeUUID = "0b0b8f4e-3c1f-4d4e-9d56-0c3a5a9f0f11"
)

// TestNoRecordAfterATakeThatFails: real replicas, real engines, and a keeper that cannot give the
// device now. Each engine ends, and the record of the replicas is as it was: after another one the
// device would be of another time for every engine that follows, and its users get I/O errors.
func TestNoRecordAfterATakeThatFails(t *testing.T) {
	const tries = 10 // of which most wrote one, as long as they did
	socket := filepath.Join(t.TempDir(), "k")
	l, err := keeper.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fail(c, "take in use")
		}
	}()
	host := fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()/256%250, os.Getpid()%256) // of this process alone
	replicas, dirs := twoReplicas(t, host)
	w := &memoryWitness{}
	engine := func(ctx context.Context, name, socket string) error {
		return RunEngine(ctx, EngineConfig{VolumeName: "vol", VolumeUUID: takeUUID, Instance: name, InstanceManager: "im",
			Listen: net.JoinHostPort(host, "23450"), Secret: []byte("s"), Size: takeSize, Replicas: replicas, Keeper: socket,
			ReplicaTimeout: 8 * time.Second, Witness: w, Log: slog.New(slog.DiscardHandler)})
	}
	var before []uint64
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine(ctx, "first", "") }()
	waits.For(t, "the first engine has its record", func() (err error) {
		if before, err = recordsOf(dirs); err == nil && (before[0] == 0 || before[0] != before[1]) {
			err = fmt.Errorf("the records are of epochs %d", before)
		}
		return err
	})
	end()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for i := range tries {
		err := engine(t.Context(), fmt.Sprintf("next%d", i), socket)
		if err == nil || !strings.Contains(err.Error(), "start it again") {
			t.Fatal("the engine ends with ", err)
		}
		after, err := recordsOf(dirs)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(after, before) {
			t.Errorf("try %d: the replicas' records were of epochs %d, and are of %d", i, before, after)
			before = after
		}
	}
}

// twoReplicas runs the replicas of a volume until the test ends, and returns when they serve.
func twoReplicas(t *testing.T, host string) (addresses, dirs []string) {
	dir := t.TempDir()
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { end(); running.Wait() })
	for i := range 2 {
		cfg := ReplicaConfig{Dir: filepath.Join(dir, fmt.Sprintf("vol-%d", i)), VolumeName: "vol", VolumeUUID: takeUUID,
			Listen: net.JoinHostPort(host, fmt.Sprint(23410+10*i)), Instance: "r", Secret: []byte("s"), Size: takeSize,
			Log: slog.New(slog.DiscardHandler)}
		running.Go(func() {
			if err := RunReplica(ctx, cfg); err != nil {
				t.Error("replica:", err)
			}
		})
		waits.For(t, "a replica serves", func() error {
			c, err := net.Dial("tcp", cfg.Listen)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		addresses, dirs = append(addresses, cfg.Listen), append(dirs, cfg.Dir)
	}
	return addresses, dirs
}

// recordsOf returns the epochs of the records in directories that may be in use.
func recordsOf(dirs []string) (epochs []uint64, err error) {
	for _, d := range dirs {
		c, err := chain.Open(osdisk.New(nil), d, chain.Options{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		rec, _ := c.Record()
		epochs = append(epochs, rec.Epoch)
		if err := c.Abandon(); err != nil {
			return nil, err
		}
	}
	return epochs, nil
}

// memoryWitness is a witness that holds one record.
type memoryWitness struct {
	mu     sync.Mutex
	record quorum.WitnessRecord
}

func (w *memoryWitness) Read() (quorum.WitnessRecord, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record, nil
}

func (w *memoryWitness) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := expected.Epoch == w.record.Epoch && expected.Record.Epoch == w.record.Record.Epoch &&
		expected.Record.Generation == w.record.Record.Generation
	if same {
		w.record = next
	}
	return w.record, same, nil
}
