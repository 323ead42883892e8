package engineclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/controlplane/object/naming"
)

const (
	// binaryTimeout bounds simple verbs. The binary gives its engine a minute and says so itself;
	// this is for a node that does not answer.
	binaryTimeout = time.Minute + 15*time.Second
	// rebuildTimeout bounds a binary that waits for a rebuild, as the proxy does.
	rebuildTimeout = 24*time.Hour + 6*time.Minute
	// settledEvery and unsettledEvery are how often an engine is asked for its state: nobody else
	// says when it changes. Each look starts a few processes on the engine's node, so it is rare
	// while nothing is on its way.
	settledEvery   = 5 * time.Second
	unsettledEvery = time.Second
)

// Binary asks engines by running the binary of their image on their node: for instance managers
// without a proxy. It sees an engine's state only when it asks, so Watch asks again and again.
// Suspension, counters, epoch and generation, the member behind a replica and why it is ERR are not
// among what the binary prints. Use NewBinary; Close waits for what is under way.
type Binary struct {
	runner  Runner
	proxies *Proxies
	// image is asked when an engine's own image has a binary that does not know the verb.
	image string
	every func(settled bool) time.Duration

	// Rebuilds that are waited for outlive the call that began them.
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
}

var _ EngineClient = (*Binary)(nil)

// NewBinary returns a client that finds nodes by proxies. image is the engine image of this
// release.
func NewBinary(runner Runner, proxies *Proxies, image string) *Binary {
	ctx, stop := context.WithCancel(context.Background()) // ended by Close
	return &Binary{runner: runner, proxies: proxies, image: image, ctx: ctx, stop: stop,
		every: func(settled bool) time.Duration {
			if settled {
				return settledEvery
			}
			return unsettledEvery
		}}
}

// Close ends the binaries that wait for rebuilds; the rebuilds go on.
func (b *Binary) Close() {
	b.stop()
	b.work.Wait()
}

// errUnknownVerb marks a binary that is older than what is asked of it.
var errUnknownVerb = errors.New("the engine image's binary does not know this")

// run runs a verb and returns what it printed. An image of before the verb is asked by this
// release's binary: both speak the engine's own interface, of which the verbs are only a printed
// form.
func (b *Binary) run(ctx context.Context, t Target, what string, verb ...string) ([]byte, error) {
	return b.runWith(ctx, t, what, nil, verb...)
}

// runWith is run with variables of the environment: credentials.
func (b *Binary) runWith(ctx context.Context, t Target, what string, environment map[string]string,
	verb ...string) ([]byte, error) {
	out, err := b.runImage(ctx, t, t.Image, what, environment, verb)
	if errors.Is(err, errUnknownVerb) && b.image != t.Image {
		return b.runImage(ctx, t, b.image, what, environment, verb)
	}
	return out, err
}

func (b *Binary) runImage(ctx context.Context, t Target, image, what string, environment map[string]string,
	verb []string) ([]byte, error) {
	m, err := b.proxies.find(t.InstanceManager)
	if err != nil {
		return nil, err
	}
	if image == "" {
		return nil, failed(t, what, ErrUnavailable, "the image of the engine is not known yet")
	}
	r, err := b.runner.Run(ctx, m.Node, &enginebinaryv1.RunRequest{
		Binary: naming.EngineBinaryInPod(image), Volume: t.Volume, Engine: t.Engine, Address: t.Address, Verb: verb,
		Environment: environment,
	})
	switch {
	case err != nil:
		return nil, failed(t, what, kindOfRun(err), whyNotRun(m.Node, image, err).Error())
	case r.GetStatus() != 0:
		why, kind := reason(r)
		return nil, fmt.Errorf("%s on engine %s of volume %s at %s: %w: %s", what, t.Engine, t.Volume, t.Address, kind, why)
	}
	return r.GetOutput(), nil
}

// kindOfRun is the kind of the error of a binary that was not run.
func kindOfRun(err error) error {
	if status.Code(err) == codes.InvalidArgument {
		return ErrInvalid
	}
	return ErrUnavailable
}

func whyNotRun(node, image string, err error) error {
	return fmt.Errorf("run the engine binary of %s on node %s: %s", image, node, status.Convert(err).Message())
}

// simple is run with a deadline.
func (b *Binary) simple(ctx context.Context, t Target, what string, verb ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, binaryTimeout)
	defer cancel()
	return b.run(ctx, t, what, verb...)
}

// reason reads why a binary failed: its last lines are `code: NAME`, where it knows one, and
// `error: TEXT`. Without a code, only what no engine was asked for can be told apart.
func reason(r *enginebinaryv1.RunResponse) (why string, kind error) {
	why = fmt.Sprintf("exit status %d", r.GetStatus())
	kind = ErrUnavailable
	for line := range strings.Lines(r.GetMessage()) {
		if text, found := strings.CutPrefix(line, "error: "); found {
			why = strings.TrimSpace(text)
		}
		if name, found := strings.CutPrefix(line, "code: "); found {
			kind = kindOf(codeNamed(strings.TrimSpace(name)))
		}
	}
	if strings.HasPrefix(why, "unknown command ") || strings.HasPrefix(why, "unknown flag: ") {
		kind = fmt.Errorf("%w: %w", ErrInvalid, errUnknownVerb)
	}
	return why, kind
}

// codeNamed is the inverse of codes.Code.String; Unknown for names that are none.
func codeNamed(name string) codes.Code {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return c
		}
	}
	return codes.Unknown
}

// Expand implements EngineClient.
func (b *Binary) Expand(ctx context.Context, t Target, sizeBytes int64) error {
	_, err := b.simple(ctx, t, "expand", "expand", "--size", strconv.FormatInt(sizeBytes, 10))
	return err
}

// FrontendStart implements EngineClient.
func (b *Binary) FrontendStart(ctx context.Context, t Target, frontend string) error {
	_, err := b.simple(ctx, t, "start frontend "+frontend, "frontend", "start", frontend)
	return err
}

// FrontendShutdown implements EngineClient.
func (b *Binary) FrontendShutdown(ctx context.Context, t Target) error {
	_, err := b.simple(ctx, t, "shut the frontend down", "frontend", "shutdown")
	return err
}

// OptionsSet implements EngineClient. The binary has no verb for limits of snapshots and the
// concurrency of rebuilds: they cannot be changed while the engine runs in an instance manager
// without a proxy, and are ErrInvalid.
func (b *Binary) OptionsSet(ctx context.Context, t Target, o Options) error {
	if o.SnapshotMaxCount != nil || o.SnapshotMaxSizeBytes != nil || o.RebuildConcurrency != nil ||
		o.RebuildBandwidth != nil {
		return failed(t, "set options", ErrInvalid,
			"limits of snapshots and rebuilds cannot be changed through an instance manager without a proxy; "+
				"attach the volume anew")
	}
	if o.UnmapMarkSnapChainRemoved == nil {
		return nil
	}
	word := "--disable"
	if *o.UnmapMarkSnapChainRemoved {
		word = "--enable"
	}
	_, err := b.simple(ctx, t, "set options", "unmap-mark-snap-chain-removed", word)
	return err
}

// SnapshotCreate implements Client. Every snapshot taken by the binary counts as the user's.
func (b *Binary) SnapshotCreate(ctx context.Context, t Target, s SnapshotRequest) (string, error) {
	verb := []string{"snapshots", "create"}
	for _, key := range sortedKeys(s.Labels) {
		verb = append(verb, "--label", key+"="+s.Labels[key])
	}
	if s.Name != "" {
		verb = append(verb, "--", s.Name)
	}
	out, err := b.simple(ctx, t, "create snapshot", verb...)
	return strings.TrimSpace(string(out)), err
}

// SnapshotRevert implements EngineClient.
func (b *Binary) SnapshotRevert(ctx context.Context, t Target, name string) error {
	_, err := b.simple(ctx, t, "revert to snapshot "+name, "snapshots", "revert", "--", name)
	return err
}

// SnapshotRemove implements EngineClient.
func (b *Binary) SnapshotRemove(ctx context.Context, t Target, name string) error {
	_, err := b.simple(ctx, t, "remove snapshot "+name, "snapshots", "rm", "--", name)
	return err
}

// SnapshotPurge implements EngineClient.
func (b *Binary) SnapshotPurge(ctx context.Context, t Target, skipIfInProgress bool) error {
	verb := []string{"snapshots", "purge"}
	if skipIfInProgress {
		verb = append(verb, "--skip-if-in-progress")
	}
	_, err := b.simple(ctx, t, "purge snapshots", verb...)
	return err
}

// SnapshotHash implements EngineClient.
func (b *Binary) SnapshotHash(ctx context.Context, t Target, name string, rehash bool) error {
	verb := []string{"snapshots", "hash"}
	if rehash {
		verb = append(verb, "--rehash")
	}
	_, err := b.simple(ctx, t, "hash snapshot "+name, append(verb, "--", name)...)
	return err
}

// SnapshotHashStatus implements EngineClient.
func (b *Binary) SnapshotHashStatus(ctx context.Context, t Target, name string) (map[string]Hash, error) {
	printed, err := read[map[string]Hash](ctx, b, t, "snapshots", "hash-status", "--", name)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Hash, len(printed))
	for address, h := range printed {
		out[plain(address)] = h
	}
	return out, nil
}

// ReplicaVerifyRebuild implements EngineClient.
func (b *Binary) ReplicaVerifyRebuild(ctx context.Context, t Target, address string) error {
	_, err := b.simple(ctx, t, "verify replica "+address, "verify-rebuild-replica", scheme+address)
	return err
}

// ReplicaRemove implements Client.
func (b *Binary) ReplicaRemove(ctx context.Context, t Target, address string) (State, error) {
	if _, err := b.simple(ctx, t, "remove replica "+address, "rm-replica", scheme+address); err != nil {
		return State{}, err
	}
	return b.Get(ctx, t)
}

// ReplicaAdd implements Client. The verb ends when the rebuild does. It is left running, on the
// engine's node, once the engine shows the replica; before that its failure is the call's.
func (b *Binary) ReplicaAdd(ctx context.Context, t Target, address string) (State, error) {
	var state State
	err := b.begin(ctx, t, "add replica "+address, []string{"add-replica", scheme + address},
		func(ctx context.Context) (shown bool, err error) {
			if state, err = b.Get(ctx, t); err != nil {
				return false, err
			}
			return slices.ContainsFunc(state.Replicas, func(r Replica) bool {
				return r.Address == address && r.Mode != ModeERR
			}), nil
		})
	return state, err
}

// begin runs a verb that ends with the work it asks for. It is left running, on the engine's node,
// once look finds that work in the engine; before that its failure is the call's. look is called
// once more when the verb has ended well.
func (b *Binary) begin(ctx context.Context, t Target, what string, verb []string,
	look func(ctx context.Context) (shown bool, err error)) error {
	ended := make(chan error, 1)
	b.work.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, rebuildTimeout)
		defer cancel()
		_, err := b.run(ctx, t, what, verb...)
		ended <- err
	})
	ctx, cancel := context.WithTimeout(ctx, binaryTimeout)
	defer cancel()
	tick := time.NewTicker(b.every(false))
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil {
				_, err = look(ctx)
			}
			return err
		case <-ctx.Done():
			return failed(t, what, ErrUnavailable, context.Cause(ctx).Error())
		case <-tick.C:
		}
		if shown, err := look(ctx); err == nil && shown {
			return nil
		} // else the verb, or the deadline, will tell
	}
}

// Forget implements Client: nothing is held.
func (b *Binary) Forget(Target) {}

// SnapshotHashCancel implements EngineClient.
func (b *Binary) SnapshotHashCancel(ctx context.Context, t Target, name string) error {
	_, err := b.simple(ctx, t, "cancel hash of snapshot "+name, "snapshots", "hash-cancel", "--", name)
	return err
}

// FilesystemTrim implements EngineClient: no binary can.
func (b *Binary) FilesystemTrim(_ context.Context, t Target) (bytes int64, err error) {
	return 0, failed(t, "trim the file system", ErrInvalid, "the engine runs in an instance manager without a proxy; "+
		"trim it on its node with fstrim")
}
