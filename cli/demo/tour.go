package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

const (
	// tourSize is the size of the tour's volumes, writerArea what their writers go round in.
	tourSize   = "128Mi"
	writerArea = 32 << 20
	// TourTimeout is how long a tour waits for one thing that was promised, if nothing else is said.
	TourTimeout = 90 * time.Second
	// cleanTimeout bounds the cleaning up, which goes on when the tour is interrupted.
	cleanTimeout = 2 * time.Minute
	// sampleEvery is how often the tour looks while something short is under way.
	sampleEvery = 50 * time.Millisecond
	// tourSteps is how many steps are announced, tourVolumes how many volumes are upgraded, of
	// tourReplicas each.
	tourSteps    = 9
	tourVolumes  = 3
	tourReplicas = 2
)

// TourConfig is what a tour of the proposals needs. All fields but Image are required.
type TourConfig struct {
	Client *client.Client
	Out    io.Writer
	// NewProgress starts a line of progress.
	NewProgress func() Progress
	// Prefix begins the names of the tour's volumes.
	Prefix string
	// Image is the engine image to upgrade to. Empty: one that the cluster has besides the default
	// one, else that with "-next" appended, which standalone clusters offer.
	Image string
	// Proc is where processes are listed: /proc.
	Proc string
	// Timeout bounds each wait: what was promised and does not come within it has not been seen.
	Timeout time.Duration
}

// tour is one tour under way.
type tour struct {
	TourConfig
	step int
	// nodes are those that take replicas, in the order of their names. The first one is where the
	// volumes of the upgrade are attached.
	nodes []string
	users map[string]*user
	// stored is what is backed up, nil without a backup target.
	stored *stored
	// undo has what is to be done at the end, the last one first.
	undo []undo
}

// undo takes one change of the tour back.
type undo struct {
	what string
	// volume says that it is the deletion of a volume.
	volume bool
	do     func(context.Context) error
}

// user is who uses a volume of the tour: a writer that reads back.
type user struct {
	volume string
	device device
	writer *writer
}

// Tour shows on a running cluster what the five proposals promised, with writers at work, and
// leaves the cluster as it was. An error says what was promised and not seen.
func Tour(ctx context.Context, cfg TourConfig) error {
	t := &tour{TourConfig: cfg, users: map[string]*user{}}
	began := time.Now()
	err := t.all(ctx)
	if err != nil {
		err = fmt.Errorf("tour, step %d: %w", t.step, err)
	}
	if cleanErr := t.clean(context.WithoutCancel(ctx)); cleanErr != nil {
		err = errors.Join(err, fmt.Errorf("cleaning up: %w", cleanErr))
	}
	if err == nil {
		fmt.Fprintf(t.Out, "All of it was seen, in %.0f s. The cluster is as it was before.\n", time.Since(began).Seconds())
	}
	return err
}

func (t *tour) all(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{t.managers, t.useVolumes, t.cpuRequest, t.network, t.locality,
		t.backUp, t.upgradeByHand, t.upgradeThemselves, t.cpuRequestApplied} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := t.undisturbed(); err != nil {
			return err
		}
	}
	return nil
}

// say announces a step, with the proposal that promised it.
func (t *tour) say(proposal, format string, args ...any) {
	t.step++
	fmt.Fprintf(t.Out, "[%d/%d] %s\n", t.step, tourSteps, fmt.Sprintf(format, args...))
	if proposal != "" {
		fmt.Fprintf(t.Out, "      promised by the proposal %q\n", proposal)
	}
}

// tell adds a detail to the step.
func (t *tour) tell(format string, args ...any) {
	fmt.Fprintf(t.Out, "      %s\n", fmt.Sprintf(format, args...))
}

// later notes what is to be taken back at the end.
func (t *tour) later(what string, do func(context.Context) error) {
	t.undo = append(t.undo, undo{what: what, do: do})
}

// clean takes back whatever was changed, also what a failed or interrupted tour has changed.
func (t *tour) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	var all []error
	for _, name := range t.names() {
		if err := t.stop(name); err != nil {
			all = append(all, err)
		}
	}
	all = append(all, t.stored.end())
	// Volumes first: an engine image goes when no volume has it.
	all = append(all, t.takeBack(ctx, func(u undo) bool { return u.volume }),
		t.takeBack(ctx, func(undo) bool { return true }))
	return errors.Join(all...)
}

// takeBack takes some changes back, the last one first, but volumes all at once; the others stay to
// be taken back.
func (t *tour) takeBack(ctx context.Context, which func(undo) bool) error {
	var all []error
	var volumes sync.WaitGroup
	failed := make(chan error, len(t.undo))
	for _, u := range slices.Backward(t.undo) {
		back := func() {
			if err := u.do(ctx); err != nil {
				failed <- fmt.Errorf("%s: %w", u.what, err)
			}
		}
		switch {
		case !which(u):
		case u.volume:
			volumes.Go(back)
		default:
			back()
		}
	}
	volumes.Wait()
	close(failed)
	for err := range failed {
		all = append(all, err)
	}
	t.undo = slices.DeleteFunc(t.undo, which)
	return errors.Join(all...)
}

// names are the volumes in use, sorted.
func (t *tour) names() []string { return sortedNames(t.users) }

// undisturbed fails if a writer has seen an error.
func (t *tour) undisturbed() error {
	for _, name := range t.names() {
		if _, err := t.users[name].writer.snapshot(); err != nil {
			return fmt.Errorf("the writer on volume %s was disturbed: %w", name, err)
		}
	}
	return nil
}

// wait looks again and again until something was seen; what says what that is.
func (t *tour) wait(ctx context.Context, what string, every time.Duration, seen func() (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	line := t.NewProgress()
	defer line.Stop()
	for {
		ok, now, err := seen()
		if err != nil && !errors.Is(err, client.ErrUnreachable) {
			return err
		}
		if err == nil && ok {
			return nil
		}
		if err := t.undisturbed(); err != nil {
			return err
		}
		line.Set(-1, what+": "+now)
		if err := pause(ctx, every); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("not seen within %s: %s; at last: %s", t.Timeout, what, now)
			}
			return err
		}
	}
}

// prepare looks at the cluster before anything is changed.
func (t *tour) prepare(ctx context.Context) error {
	err := t.wait(ctx, "nodes take replicas", lookEvery, func() (bool, string, error) {
		nodes, err := t.Client.Nodes(ctx)
		ready, waiting, _ := judgeNodes(nodes)
		slices.Sort(ready)
		t.nodes = ready
		return len(ready) >= 2 && waiting == 0, fmt.Sprintf("%d nodes ready, %d not", len(ready), waiting), err
	})
	if err != nil && len(t.nodes) < 2 {
		return fmt.Errorf("the tour needs two nodes that take replicas: %w", err)
	}
	volumes, err := t.Client.Volumes(ctx)
	if err != nil {
		return err
	}
	images, err := t.Client.EngineImages(ctx)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		isDefault := slices.ContainsFunc(images, func(i resource.EngineImage) bool { return i.Default && i.Image == v.Image })
		switch {
		case strings.HasPrefix(v.Name, t.Prefix+"-"):
			return fmt.Errorf("there is a volume %s already, perhaps of a tour that was killed; delete it, or use other names "+
				"with --prefix NAME", v.Name)
		case !isDefault:
			return fmt.Errorf("volume %s has engine image %s: a tour would upgrade it to the default image; do that first with: "+
				"ankole volume upgrade %s", v.Name, v.Image, v.Name)
		}
	}
	return nil
}

// managers shows that each node has one instance manager for engines and replicas.
func (t *tour) managers(ctx context.Context) error {
	t.say("Consolidate Longhorn Instance Managers", "One instance manager per node, for engines and replicas")
	var all []resource.InstanceManager
	err := t.wait(ctx, "each node has one instance manager of type aio, running", lookEvery, func() (bool, string, error) {
		var err error
		if all, err = t.Client.InstanceManagers(ctx); err != nil {
			return false, "", err
		}
		for _, node := range t.nodes {
			if n := countManagers(all, node); n != 1 {
				return false, fmt.Sprintf("%s has %d", node, n), nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
	for _, im := range all {
		t.tell("%-8s %s  type %s, %s, %d engines and %d replicas", im.NodeID, im.Name, im.ManagerType, im.CurrentState,
			len(im.InstanceEngines), len(im.InstanceReplicas))
	}
	return nil
}

// countManagers counts the running instance managers of a node that run engines and replicas.
func countManagers(all []resource.InstanceManager, node string) (n int) {
	for _, im := range all {
		if im.NodeID == node && im.ManagerType == "aio" && im.CurrentState == "running" {
			n++
		}
	}
	return n
}

// useVolumes makes the volumes of the upgrade and starts their writers.
func (t *tour) useVolumes(ctx context.Context) error {
	node := t.nodes[0]
	t.say("", "%d volumes on %s, each with a writer that flushes and reads back, until the end of the tour", tourVolumes, node)
	for i := range tourVolumes {
		name := fmt.Sprintf("%s-%d", t.Prefix, i+1)
		if err := t.create(ctx, client.VolumeSpec{Name: name, Size: tourSize, NumberOfReplicas: tourReplicas}); err != nil {
			return err
		}
		if err := t.use(ctx, name, node); err != nil {
			return err
		}
	}
	return t.wait(ctx, "the writers write", sampleEvery, func() (bool, string, error) {
		for _, name := range t.names() {
			if s, err := t.users[name].writer.snapshot(); err != nil || s.read < 2 {
				return false, s.String(), err
			}
		}
		return true, "", nil
	})
}

// create makes a volume that is deleted at the end.
func (t *tour) create(ctx context.Context, spec client.VolumeSpec) error {
	if _, err := t.Client.CreateVolume(ctx, spec); err != nil {
		return err
	}
	t.undo = append(t.undo, undo{what: "deleting volume " + spec.Name, volume: true,
		do: func(ctx context.Context) error { return t.remove(ctx, spec.Name) }})
	_, err := follow(ctx, t.Client, t.NewProgress, spec.Name, "usable", readyTimeout, func(v *resource.Volume) bool {
		return v.State == "detached" && v.Ready
	})
	return err
}

// remove deletes a volume and waits until it is gone.
func (t *tour) remove(ctx context.Context, name string) error {
	if err := t.Client.DeleteVolume(ctx, name); err != nil && !client.IsNotFound(err) {
		return err
	}
	return t.Client.WaitVolume(ctx, name, func(v *resource.Volume) (bool, error) { return v == nil, nil })
}

// use attaches a volume and starts a writer on it.
func (t *tour) use(ctx context.Context, name, node string) error {
	d, err := t.open(ctx, name, node)
	if err != nil {
		return err
	}
	t.users[name] = &user{volume: name, device: d, writer: startWriter(context.WithoutCancel(ctx), d, 0, writerArea)}
	return nil
}

// open attaches a volume and opens its device.
func (t *tour) open(ctx context.Context, name, node string) (device, error) {
	in := resource.AttachInput{HostID: node, AttachedBy: "ankole demo"}
	if _, err := t.Client.AttachVolume(ctx, name, in); err != nil {
		return nil, err
	}
	v, err := follow(ctx, t.Client, t.NewProgress, name, "attached to "+node, readyTimeout, func(v *resource.Volume) bool {
		return isAttached(v) && v.Robustness == "healthy"
	})
	if err != nil {
		return nil, err
	}
	t.tell("%s attached to %s, replicas on %s: %s", name, node, strings.Join(replicaNodes(v), " and "), endpointOf(v))
	return openDevice(ctx, endpointOf(v))
}

// stop ends the writer of a volume, reads back everything it was told is written, and closes the
// device.
func (t *tour) stop(name string) error {
	u := t.users[name]
	delete(t.users, name)
	s, err := u.writer.end()
	if err != nil {
		return errors.Join(fmt.Errorf("the writer on volume %s was disturbed: %w", name, err), u.device.Close())
	}
	n, err := u.writer.verify()
	if err != nil {
		return errors.Join(fmt.Errorf("volume %s, after %d good records: %w", name, n, err), u.device.Close())
	}
	t.tell("%s: %d records written without an error, every byte of the last %d is right", name, s.written, n)
	return u.device.Close()
}

// replicaNodes are the nodes of a volume's replicas, sorted.
func replicaNodes(v *resource.Volume) []string {
	var nodes []string
	for _, r := range v.Replicas {
		if r.HostID != "" {
			nodes = append(nodes, r.HostID)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// set changes a setting until the end of the tour.
func (t *tour) set(ctx context.Context, name, value string) error {
	before, err := t.Client.Setting(ctx, name)
	if err != nil {
		return err
	}
	if before.Value == value {
		return nil
	}
	t.later("setting "+name, func(ctx context.Context) error {
		_, err := t.Client.SetSetting(ctx, name, before.Value)
		return err
	})
	_, err = t.Client.SetSetting(ctx, name, value)
	return err
}

func sortedNames[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// percentBeside reads a share, which is stored as a number or by data engine, and gives it as a
// number with another one within the limits of the setting.
func percentBeside(value string) (now, other string, err error) {
	byEngine := map[string]string{}
	now = strings.TrimSpace(value)
	if json.Unmarshal([]byte(value), &byEngine) == nil {
		now = byEngine["v1"]
	}
	n, err := strconv.Atoi(now)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("setting %s is %q, not a number; the tour does not change it", cpuSetting, value)
	case n >= 20:
		return now, strconv.Itoa(n - 1), nil
	}
	return now, strconv.Itoa(n + 1), nil
}
