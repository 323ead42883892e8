package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ankole.storage/rest/resource"
)

// cpuSetting is the share of its node's CPU that an instance manager requests.
const cpuSetting = "guaranteed-instance-manager-cpu"

// processesOf lists the engines and replicas of the tour's volumes by name, each with the identity
// of its process.
func (t *tour) processesOf(all []resource.InstanceManager) map[string]string {
	ids := map[string]string{}
	for _, im := range all {
		for _, m := range []map[string]resource.InstanceProcess{im.InstanceEngines, im.InstanceReplicas} {
			for name, p := range m {
				if strings.HasPrefix(name, t.Prefix+"-") {
					ids[name] = p.Status.UUID
				}
			}
		}
	}
	return ids
}

// cpuRequest changes the share of CPU while volumes are in use: nothing is killed, and the waiting
// can be seen.
func (t *tour) cpuRequest(ctx context.Context) error {
	before, err := t.Client.Setting(ctx, cpuSetting)
	if err != nil {
		return err
	}
	share, value, err := percentBeside(before.Value)
	if err != nil {
		return err
	}
	t.say("Enhanced CPU Reservation", "The CPU request of instance managers goes from %s %% of their node to %s %%",
		share, value)
	var all []resource.InstanceManager
	var processes map[string]string
	// Instance managers list a process a moment after it runs.
	err = t.wait(ctx, "instance managers list the processes of the volumes", lookEvery, func() (bool, string, error) {
		var err error
		all, err = t.Client.InstanceManagers(ctx)
		processes = t.processesOf(all)
		want := tourVolumes * (1 + tourReplicas)
		return len(processes) >= want, fmt.Sprintf("%d of %d", len(processes), want), err
	})
	if err != nil {
		return err
	}
	if err := t.set(ctx, cpuSetting, value); err != nil {
		return err
	}
	node, message := t.nodes[0], ""
	err = t.wait(ctx, "the instance manager of "+node+" says what its request waits for", lookEvery,
		func() (bool, string, error) {
			s, err := t.Client.Setting(ctx, cpuSetting)
			if err != nil {
				return false, "", err
			}
			if all, err = t.Client.InstanceManagers(ctx); err != nil {
				return false, "", err
			}
			c := syncedOf(all, node)
			message = c.Message
			return c.Status == "False" && !s.Applied, fmt.Sprintf("%s %s, applied %t", c.Status, c.Message, s.Applied), nil
		})
	if err != nil {
		return err
	}
	t.tell("%s has volumes in use: %s", node, message)
	t.tell("the setting says that it is not applied yet; I/O goes first")
	now := t.processesOf(all)
	for name, id := range processes {
		if now[name] != id {
			return fmt.Errorf("a change of the CPU request has ended %s: processes were %v and are %v", name, processes, now)
		}
	}
	t.tell("the %d engines and replicas go on in the processes they had", len(processes))
	return nil
}

// syncedOf is the condition that says whether the Pod of a node's instance manager follows the
// settings.
func syncedOf(all []resource.InstanceManager, node string) resource.Condition {
	for _, im := range all {
		if im.NodeID == node && im.ManagerType == "aio" {
			return im.Conditions["SettingSynced"]
		}
	}
	return resource.Condition{}
}

// cpuRequestApplied ends the use of the volumes, and shows that the request follows where nothing
// else runs.
func (t *tour) cpuRequestApplied(ctx context.Context) error {
	t.say("Enhanced CPU Reservation", "The writers end, the volumes are deleted, and the CPU request follows")
	for _, name := range t.names() {
		if err := t.stop(name); err != nil {
			return err
		}
	}
	if err := t.stored.end(); err != nil {
		return err
	}
	if err := t.takeBack(ctx, func(u undo) bool { return u.volume }); err != nil {
		return err
	}
	var busy []string
	err := t.wait(ctx, "instance managers without processes have the new request", lookEvery,
		func() (bool, string, error) {
			all, err := t.Client.InstanceManagers(ctx)
			if err != nil {
				return false, "", err
			}
			if n := len(t.processesOf(all)); n > 0 {
				return false, fmt.Sprintf("%d processes of the tour's volumes are listed", n), nil
			}
			busy = nil
			for _, node := range t.nodes {
				if countProcesses(all, node) > 0 {
					busy = append(busy, node)
				} else if c := syncedOf(all, node); c.Status != "True" || countManagers(all, node) != 1 {
					return false, node + ": " + c.Message, nil
				}
			}
			return true, "", nil
		})
	if err != nil {
		return err
	}
	for _, node := range t.nodes {
		if slices.Contains(busy, node) {
			t.tell("%s has engines or replicas of other volumes: its instance manager waits until they are detached", node)
		} else {
			t.tell("%s: nothing runs there any more, and the instance manager's Pod was made again with the new request", node)
		}
	}
	if len(busy) > 0 {
		return nil
	}
	return t.wait(ctx, "the setting says that it is applied", lookEvery, func() (bool, string, error) {
		s, err := t.Client.Setting(ctx, cpuSetting)
		return err == nil && s.Applied, "it does not yet", err
	})
}

// countProcesses counts engines and replicas on a node.
func countProcesses(all []resource.InstanceManager, node string) (n int) {
	for _, im := range all {
		if im.NodeID == node {
			n += len(im.InstanceEngines) + len(im.InstanceReplicas) + len(im.Instances)
		}
	}
	return n
}
