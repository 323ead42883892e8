package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// locality shows that the only replica of a volume follows its user, who goes on writing while it
// moves, and that it follows again when the user has moved.
func (t *tour) locality(ctx context.Context) error {
	t.say("Data Locality - Option To Keep A Local Replica On The Same Node As The Engine",
		"A volume of one replica follows its user")
	name := t.Prefix + "-local"
	if err := t.create(ctx, client.VolumeSpec{Name: name, Size: tourSize, NumberOfReplicas: 1}); err != nil {
		return err
	}
	v, err := t.Client.Volume(ctx, name)
	if err != nil {
		return err
	}
	first := t.otherNode(replicaNodes(v))
	if err := t.use(ctx, name, first); err != nil {
		return err
	}
	t.tell("ankole volume set-locality %s best-effort", name)
	if _, err := t.Client.UpdateDataLocality(ctx, name, "best-effort"); err != nil {
		return err
	}
	if err := t.follows(ctx, name, first); err != nil {
		return err
	}
	second := t.otherNode([]string{first})
	t.tell("its user moves to %s", second)
	if err := t.stop(name); err != nil {
		return err
	}
	if _, err := t.Client.DetachVolume(ctx, name, resource.DetachInput{}); err != nil {
		return err
	}
	if _, err := follow(ctx, t.Client, t.NewProgress, name, "detached", readyTimeout, func(v *resource.Volume) bool {
		return v.State == "detached"
	}); err != nil {
		return err
	}
	if err := t.use(ctx, name, second); err != nil {
		return err
	}
	if err := t.follows(ctx, name, second); err != nil {
		return err
	}
	return t.stop(name)
}

// otherNode is the last node that is none of these, so that it is another one than where the
// volumes of the upgrade are, if there is a choice.
func (t *tour) otherNode(these []string) string {
	for _, n := range slices.Backward(t.nodes) {
		if !slices.Contains(these, n) {
			return n
		}
	}
	return t.nodes[0]
}

// follows waits until a volume's only replica is on a node, and tells what happened until then.
func (t *tour) follows(ctx context.Context, name, node string) error {
	began := time.Now()
	u := t.users[name]
	before, err := u.writer.snapshot()
	if err != nil {
		return err
	}
	u.writer.takePause()
	told := ""
	err = t.wait(ctx, "the only replica of "+name+" is on "+node, sampleEvery, func() (bool, string, error) {
		v, err := t.Client.Volume(ctx, name)
		if err != nil {
			return false, "", err
		}
		now := replicaStates(v)
		if now != told {
			told = now
			t.tell("%5.1f s  %s", time.Since(began).Seconds(), now)
		}
		return len(v.Replicas) == 1 && v.Replicas[0].HostID == node && v.Replicas[0].Mode == "RW" &&
			v.Robustness == "healthy", now, nil
	})
	if err != nil {
		return err
	}
	after, err := u.writer.snapshot()
	t.tell("meanwhile %d records written, longest wait of the writer %d ms", after.written-before.written,
		u.writer.takePause().Milliseconds())
	return err
}

// replicaStates says where the replicas of a volume are, and which are in sync.
func replicaStates(v *resource.Volume) string {
	var all []string
	for _, r := range v.Replicas {
		state := map[string]string{"RW": "in sync", "WO": "being rebuilt", "ERR": "failed"}[r.Mode]
		if state == "" {
			state = "starting or ending"
		}
		all = append(all, fmt.Sprintf("%s (%s)", orNone(r.HostID), state))
	}
	slices.Sort(all)
	return "replicas: " + orNone(strings.Join(all, ", "))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
