package volume_test

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/instance"
	"ankole.storage/controlplane/naming"
)

// nextImage is another engine image than the one that volumes begin with.
const nextImage = "ankole/engine:next"

// outcome is how a world's instance manager carries out a replacement.
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
)

// addImage makes an engine image that is on every node.
func (w *world) addImage(name string, nodes int) {
	ei := &v1beta2.EngineImage{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: naming.EngineImageName(name)},
		Spec: v1beta2.EngineImageSpec{Image: name}}
	w.create(ei)
	st := &ei.Status
	st.State, st.Version, st.GitCommit = v1beta2.EngineImageStateDeployed, name, name
	st.ControllerAPIVersion, st.ControllerAPIMinVersion = 5, 3
	st.Conditions = conditions(v1beta2.EngineImageConditionReady)
	st.NodeDeploymentMap = map[string]bool{}
	for i := 1; i <= nodes; i++ {
		st.NodeDeploymentMap[fmt.Sprintf("n%d", i)] = true
	}
	must(w.t, w.c.Status().Update(context.Background(), ei))
}

// Replace implements instance.Processes: docs/upgrade.md in the small. The new engine has an epoch
// of its own, and exactly the agreed members, each through a process that had no lock so far.
func (w *world) Replace(_ context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := im.Name + "/" + p.Name
	old := w.procs[key]
	how := handsOver
	if w.outcomes != nil {
		how = w.outcomes()
	}
	switch {
	case w.down[im.Spec.NodeID], how == losesOrder:
		return fmt.Errorf("%w: instance manager %s does not answer", instance.ErrUnsettled, im.Name)
	case old == nil:
		return fmt.Errorf("process %s does not exist", p.Name)
	case old.binary == p.Binary:
		return nil
	case !slices.Contains(p.Args, "--upgrade"):
		w.t.Fatalf("engine %s is to be replaced by %v", p.Name, p.Args)
	}
	m := w.engines[w.address(old)]
	w.nextID++
	pr := &proc{im: im.Name, name: p.Name, node: im.Spec.NodeID, state: v1beta2.InstanceStateRunning,
		uuid: fmt.Sprintf("run-%d", w.nextID), port: 10000 + 10*(w.nextID%3), env: p.Environment, args: p.Args,
		order: p.Order, binary: p.Binary}
	for w.portTaken(pr) {
		pr.port += 10
	}
	if how == oldDies {
		w.end(key, "killed while it hands over")
		return fmt.Errorf("the old engine has ended")
	}
	if m == nil || m.proc != old || how == refuses || !w.takeOver(m, pr) {
		return fmt.Errorf("the old engine refuses")
	}
	delete(w.engines, w.address(old))
	w.procs[key] = pr
	if how == newDies {
		w.end(key, "killed when it had taken over")
		return nil
	}
	w.handedOver++
	if how == losesAnswer {
		return fmt.Errorf("%w: the answer is lost", instance.ErrUnsettled)
	}
	return nil
}

// takeOver makes p the engine of m's volume, if it reaches exactly the members.
func (w *world) takeOver(m *engineModel, p *proc) bool {
	var dirs []string
	addresses := map[string]string{}
	for i, a := range p.args {
		if a != "--replica" {
			continue
		}
		address := p.args[i+1][len("tcp://"):]
		r := w.replicaAt(address, p.node)
		if r == nil {
			return false
		}
		dirs, addresses[dirOf(r)] = append(dirs, dirOf(r)), address
	}
	slices.Sort(dirs)
	members := slices.Clone(m.record.members)
	slices.Sort(members)
	if !slices.Equal(dirs, members) || w.down[p.node] || m.replaced() {
		return false
	}
	next := &engineModel{w: w, proc: p, uid: m.uid, epoch: m.epoch + 1, record: m.record, size: m.size}
	granted, _ := w.witness(p.name)
	granted.Epoch, granted.Engine = next.epoch, p.name
	w.setWitness(p.name, granted)
	w.checkStart(p, dirs)
	for _, dir := range dirs {
		w.disks[dir].promised, w.disks[dir].holder = next.epoch, w.replicaAt(addresses[dir], p.node)
		next.replicas = append(next.replicas, engineclient.Replica{Address: addresses[dir], Mode: engineclient.ModeRW,
			Member: dir})
	}
	w.engines[w.address(p)] = next
	if !next.commit(dirs) {
		w.t.Fatalf("the witness refuses the engine that has taken over\n%s", w.dump())
	}
	next.write()
	return true
}

// lockedOut says whether another process that lives has the directory of a replica's process.
func (w *world) lockedOut(p *proc) bool {
	h := w.disks[dirOf(p)].holder
	return h != nil && h != p && h.state == v1beta2.InstanceStateRunning && w.procs[h.im+"/"+h.name] == h
}
