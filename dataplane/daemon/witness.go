package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/host/hostpath"
)

// witnessTimeout bounds one question; the instance manager answers within its own shorter bound.
const witnessTimeout = 6 * time.Second

// WitnessCaller is who asks: an engine process of a volume.
type WitnessCaller struct {
	Volume, VolumeUUID, Engine string
	// Order is what the process was made for (status.order of the Engine object); empty: not known.
	Order string
}

// DialWitness returns a witness that asks the instance manager at address ("unix:/path").
func DialWitness(address string, caller WitnessCaller) (engine.Witness, error) {
	return dialWitness(address, caller)
}

// reconnect is how soon a connection that could not be made is tried again. An engine that needs
// the witness holds its users' requests; what gRPC does by itself is up to two minutes.
var reconnect = grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
	Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}}

func dialWitness(address string, caller WitnessCaller, more ...grpc.DialOption) (engine.Witness, error) {
	if p, ok := strings.CutPrefix(address, "unix:"); ok {
		address = "unix:" + hostpath.Resolve(p)
	}
	conn, err := grpc.NewClient(address, append(more, grpc.WithConnectParams(reconnect),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("witness at %s: %w", address, err)
	}
	return &witness{conn: conn, client: witnessv1.NewWitnessClient(conn), caller: caller}, nil
}

// witness asks over gRPC.
type witness struct {
	conn   *grpc.ClientConn
	client witnessv1.WitnessClient
	caller WitnessCaller
}

// Read implements engine.Witness.
func (w *witness) Read() (quorum.WitnessRecord, error) {
	ctx, cancel := context.WithTimeout(context.Background(), witnessTimeout)
	defer cancel()
	m, err := w.client.Get(ctx, &witnessv1.GetRequest{VolumeName: w.caller.Volume, EngineName: w.caller.Engine})
	if status.Code(err) == codes.NotFound {
		return quorum.WitnessRecord{}, nil
	}
	if err != nil {
		return quorum.WitnessRecord{}, err
	}
	return w.record(m)
}

// record reads a witness message. One that speaks of another volume says nothing about this one.
// Numbers below zero, as only a hand can have written them, would be taken for the highest there
// are: they are an error, and the engine goes on as without a witness.
func (w *witness) record(m *witnessv1.Membership) (quorum.WitnessRecord, error) {
	if m == nil || m.VolumeUuid != w.caller.VolumeUUID {
		return quorum.WitnessRecord{}, nil
	}
	if min(m.Epoch, m.RecordEpoch, m.Generation) < 0 {
		return quorum.WitnessRecord{}, fmt.Errorf("the witness holds epoch %d, record of epoch %d, generation %d, "+
			"which cannot be; correct status.membership of engine %s",
			m.Epoch, m.RecordEpoch, m.Generation, w.caller.Engine)
	}
	return quorum.WitnessRecord{Epoch: uint64(m.Epoch), Engine: m.Engine, InstanceManager: m.InstanceManager,
		Stored: m.Stored,
		Record: quorum.Record{Epoch: uint64(m.RecordEpoch), Generation: uint64(m.Generation), Members: m.Members}}, nil
}

func (w *witness) message(r quorum.WitnessRecord) *witnessv1.Membership {
	if r.Epoch == 0 {
		return nil
	}
	return &witnessv1.Membership{VolumeUuid: w.caller.VolumeUUID, Epoch: int64(r.Epoch),
		RecordEpoch: int64(r.Record.Epoch), Generation: int64(r.Record.Generation), Members: r.Record.Members,
		Engine: r.Engine, InstanceManager: r.InstanceManager, Stored: r.Stored}
}

// Swap implements engine.Witness.
func (w *witness) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), witnessTimeout)
	defer cancel()
	r, err := w.client.CompareAndSwap(ctx, &witnessv1.CompareAndSwapRequest{VolumeName: w.caller.Volume,
		EngineName: w.caller.Engine, Order: w.caller.Order, Expected: w.message(expected), Next: w.message(next)})
	if status.Code(err) == codes.OutOfRange {
		return quorum.WitnessRecord{}, false, fmt.Errorf("%w: %s", engine.ErrSuperseded, status.Convert(err).Message())
	}
	if err != nil {
		return quorum.WitnessRecord{}, false, err
	}
	current, err := w.record(r.Current)
	if err == nil && !r.Swapped && expected.Epoch == 0 && r.Current == nil {
		// An instance manager of before says so when the order is not the newest one. Asked at once
		// the witness would say the same again.
		err = errors.New("the witness holds nothing, as was expected, and did not take the record")
	}
	return current, r.Swapped && err == nil, err
}
