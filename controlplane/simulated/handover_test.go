package simulated_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/instance"
)

// nextImage is another engine image than the one that volumes begin with.
const nextImage = "ankole/engine:next"

// proxy is the connection to every proxy, which is always alive. Nothing of it belongs to a bubble.
var proxy, _ = grpc.NewClient("passthrough:///proxy", grpc.WithTransportCredentials(insecure.NewCredentials()),
	grpc.WithUnaryInterceptor(func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker,
		...grpc.CallOption) error {
		return nil
	}))

func dialProxy(string) (*grpc.ClientConn, error) { return proxy, nil }

// outcome is how an instance manager carries out a replacement.
type outcome int

const (
	handsOver outcome = iota
	// refuses: the old engine keeps the volume.
	refuses
	// losesOrder: nothing arrives, and nobody knows.
	losesOrder
	// losesAnswer: it is carried out, and nobody knows.
	losesAnswer
	// newDies: the new engine takes the volume and dies before anybody has seen it.
	newDies
	// oldDies: the old engine dies before it gives the volume away.
	oldDies
	// takesBack: the old engine has stopped serving when it learns that the new one does not take the
	// volume, and serves again.
	takesBack
)

// image makes an engine image that is on every node.
func (w *world) image(name string) {
	ei := &v1beta2.EngineImage{ObjectMeta: metav1.ObjectMeta{Name: naming.EngineImageName(name)},
		Spec: v1beta2.EngineImageSpec{Image: name}}
	st := &ei.Status
	st.State, st.Version, st.GitCommit = v1beta2.EngineImageStateDeployed, name, name
	st.ControllerAPIVersion, st.ControllerAPIMinVersion = 5, 3
	st.Conditions = []v1beta2.Condition{{Type: v1beta2.EngineImageConditionReady, Status: v1beta2.ConditionTrue}}
	st.NodeDeploymentMap = map[string]bool{}
	for _, h := range w.nodes {
		st.NodeDeploymentMap[h.name] = true
	}
	w.create(ei)
}

// Replace implements instance.Processes: docs/design/upgrade.md in the small. The new engine has an
// epoch of its own, and exactly the agreed members, each through a process that had no lock so far.
// It is called from a goroutine of its own; the answer comes after the news of what has ended.
func (o *orders) Replace(ctx context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	answered := make(chan struct{})
	o.w.mu.Lock()
	err := o.w.replace(im, p)
	o.w.after(o.w.between(100*time.Millisecond, time.Second), func() { close(answered) })
	o.w.mu.Unlock()
	select {
	case <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) replace(im *v1beta2.InstanceManager, p instance.Process) error {
	how := handsOver
	if w.outcomes != nil {
		how = w.outcomes()
	}
	at, err := w.ordered(im, "replace", p.Name)
	if err != nil || how == losesOrder {
		return fmt.Errorf("%w: instance manager %s does not answer", instance.ErrUnsettled, im.Name)
	}
	old := at.processes[p.Name]
	switch {
	case old == nil:
		return fmt.Errorf("process %s does not exist", p.Name)
	case old.binary == p.Binary:
		return nil
	case !slices.Contains(p.Args, "--upgrade"):
		w.failf("engine %s is to be replaced by %v", p.Name, p.Args)
	case how == oldDies:
		w.end(old, "killed while it hands over")
		return fmt.Errorf("the old engine has ended")
	}
	if how == takesBack && old.alive() && old.engine != nil && old.engine.contact {
		old.engine.takeBack()
		return fmt.Errorf("the old engine has taken the volume back")
	}
	next := w.newProcess(at, p)
	next.state = v1beta2.InstanceStateRunning
	if !old.alive() || old.engine == nil || old.engine.ended || how == refuses || !w.takeOver(old.engine, next) {
		return fmt.Errorf("the old engine refuses")
	}
	w.note("%s is handed over to %s", old.uuid, next.uuid)
	at.processes[p.Name] = next
	old.engine.stop()
	w.streams.changed(at)
	if how == newDies {
		w.end(next, "killed when it had taken over")
		return nil
	}
	w.handedOver++
	if how == losesAnswer {
		return fmt.Errorf("%w: the answer is lost", instance.ErrUnsettled)
	}
	return nil
}

// takeBack has an engine begin anew, as after its start: it knows its replicas' states a moment
// later.
func (s *serving) takeBack() {
	s.told.Replicas = nil
	close(s.changed)
	s.changed = make(chan struct{})
	s.w.after(s.w.between(time.Second, 3*time.Second), func() {
		if !s.ended {
			s.publish()
		}
	})
}

// takeOver makes p the engine of a volume, if it reaches exactly the members.
func (w *world) takeOver(from *serving, p *proc) bool {
	next := w.newServing(p)
	next.contact, next.has, next.size, next.epoch = true, from.has, from.size, from.epoch+1
	var dirs []string
	for _, r := range next.replicas {
		process := w.processAt(r.address, p.pod.host)
		if process == nil {
			return false
		}
		r.dir, r.mode = process.directory(), engineclient.ModeRW
		dirs = append(dirs, r.dir)
	}
	slices.Sort(dirs)
	e, m := from.witness()
	if !slices.Equal(dirs, from.has.members) || e == nil || from.replaced() {
		return false
	}
	next.record(e, m)
	w.startsWith(next, dirs)
	for _, r := range next.replicas {
		d := w.copies[r.dir]
		d.promised, d.holder = next.epoch, w.processAt(r.address, p.pod.host)
	}
	if !next.commit(dirs) {
		w.failf("the witness refuses the engine that has taken over")
	}
	p.engine = next
	next.acknowledge()
	next.publish()
	return true
}

// lockedOut says whether another process that lives has the directory of a replica's process.
func (w *world) lockedOut(p *proc) bool {
	d := w.copies[p.directory()]
	return d != nil && d.holder != nil && d.holder != p && d.holder.alive()
}

// standsIn says whether this engine only offers what another one serves.
func (s *serving) standsIn() bool { return isStandIn(s.p) }

// behind is the engine for which one stands in; nil if it does not answer.
func (s *serving) behind() *serving {
	address := strings.TrimPrefix(argument(s.p.args, "--stand-in-for"), "tcp://")
	for _, o := range s.w.servings() {
		if o.p.address() == address && o.p.pod.host.reachable() && s.p.pod.host.reachable() {
			return o
		}
	}
	return nil
}

// offer is the check of an engine that stands in: without the other one it ends.
func (s *serving) offer() {
	o := s.behind()
	if o == nil {
		s.w.end(s.p, "the connection to the volume's engine has ended")
		return
	}
	if s.contact, s.size = true, o.size; s.told.Endpoint == "" {
		s.publish()
	}
	s.checkIn(time.Second)
}
