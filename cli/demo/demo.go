package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

const (
	// readyTimeout bounds the wait for nodes, volume and endpoint.
	readyTimeout = 2 * time.Minute
	// fullTimeout is how long full disks are waited for.
	fullTimeout = 15 * time.Second
	// rebuildTimeout bounds the wait for the rebuild of a volume of 1 GiB.
	rebuildTimeout = 5 * time.Minute
	// warmUp is how long the writer runs before the replica is killed, coolDown how long it goes on
	// afterwards.
	warmUp   = 2 * time.Second
	coolDown = time.Second
	// lookEvery is how often the volume is looked at while it is rebuilt.
	lookEvery = 200 * time.Millisecond
)

// Progress shows how far one step is.
type Progress interface {
	// Set gives a text and 0 to 100 percent, or -1 where nothing can be measured.
	Set(percent int, text string)
	Stop()
}

// Config is what a demonstration needs. All fields are required.
type Config struct {
	Client *client.Client
	Out    io.Writer
	// NewProgress starts a line of progress.
	NewProgress func() Progress
	Volume      string
	// Size is a Kubernetes quantity.
	Size     string
	Replicas int
	// Proc is where processes are listed: /proc.
	Proc string
}

// run is one demonstration under way.
type run struct {
	Config
	step     int
	replicas int
	store    store
	writer   *writer
}

// steps is how many steps are announced.
const steps = 9

// Run shows it all, printing each step. The volume stays attached.
func Run(ctx context.Context, cfg Config) error {
	r := &run{Config: cfg}
	err := r.all(ctx)
	if r.writer != nil {
		_, writeErr := r.writer.end()
		if err == nil {
			err = writeErr
		}
	}
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	if err != nil {
		return fmt.Errorf("demonstration, step %d: %w", r.step, err)
	}
	return nil
}

func (r *run) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.waitForNodes, r.create, r.attach, r.files, r.startWriting} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	killed, err := r.kill(ctx)
	if err != nil {
		return err
	}
	if killed.pid != 0 {
		if err := r.watchRebuild(ctx, killed); err != nil {
			return err
		}
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	r.finish()
	return nil
}

// say announces a step.
func (r *run) say(format string, args ...any) {
	r.step++
	fmt.Fprintf(r.Out, "[%d/%d] %s\n", r.step, steps, fmt.Sprintf(format, args...))
}

// tell adds a detail to the step.
func (r *run) tell(format string, args ...any) {
	fmt.Fprintf(r.Out, "      %s\n", fmt.Sprintf(format, args...))
}

func (r *run) waitForNodes(ctx context.Context) error {
	r.say("Looking for storage nodes at %s", r.Client.Server())
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	line := r.NewProgress()
	defer line.Stop()
	fullSince := time.Time{}
	for {
		nodes, err := r.Client.Nodes(ctx)
		ready, waiting, full := judgeNodes(nodes)
		if err == nil && len(ready) > 0 && (waiting == 0 || len(ready) >= r.Replicas) {
			line.Stop()
			r.replicas = min(r.Replicas, len(ready))
			r.tell("%s", strings.Join(ready, ", "))
			return nil
		}
		// A disk takes a moment to be measured. One that is still full after that will not empty itself.
		if full == "" || len(ready) > 0 {
			fullSince = time.Time{}
		} else if fullSince.IsZero() {
			fullSince = time.Now()
		} else if time.Since(fullSince) > fullTimeout {
			return fmt.Errorf("no disk takes replicas: %s\nmake room, or accept fuller disks with: ankole setting set "+
				"storage-minimal-available-percentage 5", full)
		}
		line.Set(-1, fmt.Sprintf("%d nodes ready, %d not yet", len(ready), waiting))
		if err := pause(ctx, lookEvery); err != nil {
			return fmt.Errorf("no node became ready within %s; look at them with: ankole node list", readyTimeout)
		}
	}
}

// judgeNodes tells nodes that can hold replicas from those that cannot yet; full says why the disk
// of a ready node takes none.
func judgeNodes(nodes []resource.Node) (ready []string, waiting int, full string) {
	for _, n := range nodes {
		takes := false
		for _, d := range n.Disks {
			c := d.Conditions["Schedulable"]
			takes = takes || c.Status == "True"
			if n.Conditions["Ready"].Status == "True" && c.Status == "False" && c.Reason == "DiskPressure" {
				full = fmt.Sprintf("%s of node %s: %s", d.Path, n.Name, c.Message)
			}
		}
		if n.Conditions["Ready"].Status == "True" && takes {
			ready = append(ready, n.Name)
		} else {
			waiting++
		}
	}
	return ready, waiting, full
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (r *run) create(ctx context.Context) error {
	v, err := r.Client.Volume(ctx, r.Volume)
	switch {
	case err == nil:
		r.say("Volume %s is there from an earlier time (%d replicas, %s)", r.Volume, v.NumberOfReplicas, v.State)
		r.replicas = v.NumberOfReplicas
	case client.IsNotFound(err):
		r.say("Creating volume %s: %s, %d replicas on different nodes", r.Volume, r.Size, r.replicas)
		_, err = r.Client.CreateVolume(ctx, client.VolumeSpec{Name: r.Volume, Size: r.Size, NumberOfReplicas: r.replicas})
		if err != nil {
			return err
		}
	default:
		return err
	}
	v, err = r.until(ctx, "usable", readyTimeout, func(v *resource.Volume) bool {
		return (v.State == "detached" && (v.Ready || v.Robustness == "faulted")) || v.State == "attached"
	})
	if err != nil {
		return err
	}
	for _, replica := range v.Replicas {
		r.tell("replica %s on %s", replica.Name, replica.HostID)
	}
	return nil
}

// until follows the volume until something holds.
func (r *run) until(ctx context.Context, goal string, timeout time.Duration,
	holds func(*resource.Volume) bool) (*resource.Volume, error) {
	return follow(ctx, r.Client, r.NewProgress, r.Volume, goal, timeout, holds)
}

// follow shows a volume until something holds; goal is the word for that.
func follow(ctx context.Context, api *client.Client, newProgress func() Progress, name, goal string,
	timeout time.Duration, holds func(*resource.Volume) bool) (*resource.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	line := newProgress()
	defer line.Stop()
	var last *resource.Volume
	err := api.WaitVolume(ctx, name, func(v *resource.Volume) (bool, error) {
		if v == nil {
			return false, nil
		}
		last = v
		if holds(v) {
			return true, nil
		}
		line.Set(-1, fmt.Sprintf("volume %s: %s, %s", v.Name, v.State, v.Robustness))
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		if last == nil {
			return nil, fmt.Errorf("volume %s did not appear within %s", name, timeout)
		}
		return nil, fmt.Errorf("volume %s is not %s after %s: it is %s, %s %s; follow it with: ankole volume watch %s",
			name, goal, timeout, last.State, last.Robustness, last.NotReadyMessage, name)
	}
	return last, err
}

func (r *run) attach(ctx context.Context) error {
	v, err := r.Client.Volume(ctx, r.Volume)
	if err != nil {
		return err
	}
	node := ""
	if t, ok := v.VolumeAttachment.Attachments[""]; ok {
		node = t.NodeID
	}
	for _, replica := range v.Replicas {
		if node == "" && replica.FailedAt == "" {
			node = replica.HostID
		}
	}
	r.say("Attaching it to %s", node)
	began := time.Now()
	if _, err := r.Client.AttachVolume(ctx, r.Volume,
		resource.AttachInput{HostID: node, AttachedBy: "ankole demo"}); err != nil {
		return err
	}
	v, err = r.until(ctx, "attached", readyTimeout, isAttached)
	if err != nil {
		return err
	}
	r.tell("endpoint %s after %.1f s", endpointOf(v), time.Since(began).Seconds())
	if v.Robustness != "healthy" {
		r.tell("waiting until all replicas are in sync")
		if _, err := r.until(ctx, "healthy", rebuildTimeout, func(v *resource.Volume) bool {
			return v.Robustness == "healthy"
		}); err != nil {
			return err
		}
	}
	return r.open(ctx, endpointOf(v))
}

// isAttached says whether a volume can be used. An endpoint alone can be that of an engine that is
// gone; robustness is known only of one that answers.
func isAttached(v *resource.Volume) bool {
	return v.State == "attached" && endpointOf(v) != "" && (v.Robustness == "healthy" || v.Robustness == "degraded")
}

func endpointOf(v *resource.Volume) string {
	for _, c := range v.Controllers {
		if c.Endpoint != "" {
			return c.Endpoint
		}
	}
	return ""
}

func (r *run) files(ctx context.Context) error {
	found, err := r.store.Inspect(ctx)
	if err != nil {
		return err
	}
	switch found {
	case contentForeign:
		return fmt.Errorf("volume %s holds something that this demonstration did not write, so it is left alone; use "+
			"another one with --volume NAME", r.Volume)
	case contentTree:
		r.say("Files of an earlier time are on it; reading them back")
		t, err := r.store.Verify(ctx)
		if err != nil {
			return fmt.Errorf("the files of an earlier time are damaged: %w", err)
		}
		r.tell("%s: every checksum is right", t)
	default:
		r.say("Writing a tree of files, %s", r.store.Describe())
		began := time.Now()
		t, err := r.store.Fill(ctx)
		if err != nil {
			return err
		}
		r.tell("%s, written and synced in %.1f s", t, time.Since(began).Seconds())
	}
	return nil
}

func (r *run) startWriting(ctx context.Context) error {
	a, from, to, err := r.store.Scratch()
	if err != nil {
		return err
	}
	r.say("Starting a writer: %d KiB records, a flush every %d, old records read back", recordSize>>10, flushEvery)
	r.writer = startWriter(ctx, a, from, to)
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	s, err := r.writer.snapshot()
	r.tell("%s", s)
	return err
}

// String says how far a writer is.
func (s writerState) String() string {
	return fmt.Sprintf("%d records written, %d flushed, %d read back, longest wait %d ms", s.written, s.flushed, s.read,
		s.pause.Milliseconds())
}

// victim is the replica process that was killed.
type victim struct {
	replica resource.Replica
	pid     int
	at      time.Time
}

// kill ends one replica process with SIGKILL, if possible not on the engine's own node.
func (r *run) kill(ctx context.Context) (victim, error) {
	v, err := r.Client.Volume(ctx, r.Volume)
	if err != nil {
		return victim{}, err
	}
	engineNode := ""
	for _, c := range v.Controllers {
		engineNode = c.HostID
	}
	all := processes(r.Proc)
	var chosen victim
	inSync := 0
	for _, replica := range v.Replicas {
		if replica.Mode != "RW" {
			continue
		}
		inSync++
		if pid := replicaPID(all, replica); pid != 0 && (chosen.pid == 0 || replica.HostID != engineNode) {
			chosen = victim{replica: replica, pid: pid}
		}
	}
	if inSync < 2 || chosen.pid == 0 {
		r.say("Not killing a replica: %d are in sync, and their processes are not on this machine or not visible", inSync)
		return victim{}, nil
	}
	r.say("Killing replica %s on %s: SIGKILL to process %d", chosen.replica.Name, chosen.replica.HostID, chosen.pid)
	chosen.at = time.Now()
	if err := unix.Kill(chosen.pid, unix.SIGKILL); err != nil {
		return victim{}, fmt.Errorf("killing process %d: %w", chosen.pid, err)
	}
	return chosen, nil
}

// watchRebuild shows that writes go on and how the lost replica comes back.
func (r *run) watchRebuild(ctx context.Context, killed victim) error {
	r.say("Reads and writes go on while the replica is rebuilt")
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	line := r.NewProgress()
	defer line.Stop()
	before, _ := r.writer.snapshot()
	degraded := false
	for {
		v, err := r.Client.Volume(ctx, r.Volume)
		if err != nil && ctx.Err() == nil && !errors.Is(err, client.ErrUnreachable) {
			return err
		}
		s, err := r.writer.snapshot()
		if err != nil {
			return fmt.Errorf("the writer was disturbed: %w", err)
		}
		if v != nil {
			degraded = degraded || v.Robustness != "healthy"
			percent, text := rebuildProgress(v)
			line.Set(percent, fmt.Sprintf("%s; %d records written meanwhile", text, s.written-before.written))
			if r.rebuilt(v, killed, degraded) {
				break
			}
		}
		if pause(ctx, lookEvery) != nil {
			return fmt.Errorf("volume %s was not healthy again within %s; look at it with: ankole replica list %s",
				r.Volume, rebuildTimeout, r.Volume)
		}
	}
	took := time.Since(killed.at)
	if err := pause(ctx, coolDown); err != nil {
		return err
	}
	line.Stop()
	s, err := r.writer.snapshot()
	r.tell("healthy again after %.1f s; %d records written meanwhile", took.Seconds(), s.written-before.written)
	r.tell("%s", s)
	return err
}

// rebuilt reports whether all replicas are in sync again, each with a process, none of them the
// killed one. A rebuild can be over before anybody has seen it, so what counts is that the loss was
// noticed: the volume was seen degraded, or the replica has another process.
func (r *run) rebuilt(v *resource.Volume, killed victim, degraded bool) bool {
	if v.Robustness != "healthy" {
		return false
	}
	all := processes(r.Proc)
	inSync, replaced := 0, degraded
	for _, replica := range v.Replicas {
		pid := replicaPID(all, replica)
		if replica.Mode != "RW" || pid == 0 || pid == killed.pid {
			continue
		}
		inSync++
		replaced = replaced || replica.Name == killed.replica.Name
	}
	return replaced && inSync >= v.NumberOfReplicas
}

func rebuildProgress(v *resource.Volume) (int, string) {
	for _, s := range v.RebuildStatus {
		if s.IsRebuilding {
			return s.Progress, "rebuilding " + s.Replica
		}
	}
	inSync := 0
	for _, replica := range v.Replicas {
		if replica.Mode == "RW" {
			inSync++
		}
	}
	return -1, fmt.Sprintf("volume is %s, %d of %d replicas in sync", v.Robustness, inSync, v.NumberOfReplicas)
}

func (r *run) verify(ctx context.Context) error {
	for r.step < steps-2 {
		r.step++ // Steps that were left out.
	}
	r.say("Stopping the writer and verifying everything")
	s, err := r.writer.end()
	if err != nil {
		return err
	}
	records, err := r.writer.verify()
	if err != nil {
		return fmt.Errorf("after %d good records: %w", records, err)
	}
	r.tell("%d records of the writer: every byte is right (of %d written, the rest was overwritten by newer ones)",
		records, s.written)
	r.writer = nil
	t, err := r.store.Verify(ctx)
	if err != nil {
		return err
	}
	r.tell("%s: every checksum is right", t)
	return nil
}

func (r *run) finish() {
	r.say("Done. Volume %s stays attached. Try next:", r.Volume)
	for _, line := range []string{
		"ankole volume list                      what there is",
		"ankole replica list " + r.Volume + "                where the copies are",
		"ankole volume watch " + r.Volume + "                every change; kill a replica in another terminal",
		"ankole volume create mine --size 2Gi && ankole volume attach mine",
		"ankole setting list -o wide             what can be changed",
		"kubectl get -n longhorn-system volumes,engines,replicas",
	} {
		r.tell("%s", line)
	}
}
