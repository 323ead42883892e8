package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	restclient "ankole.storage/rest/client"
)

// losses kills what takes part in a backup or a restore of a volume, on its engine's node.
type losses struct {
	*cluster
	store string
	seed  byte
}

// loss is something that is lost, and comes back.
type loss struct {
	name string
	do   func(l *losses, volume, node string)
	undo func(l *losses, node string)
}

func nothing(*losses, string) {}

var backupLosses = []loss{
	{"the leader and all managers", func(l *losses, _, _ string) { l.awaitManagers(l.killManagers()) }, nothing},
	{"a replica on another node", func(l *losses, volume, node string) {
		l.kill(l.directoryOn(volume, l.elsewhere(volume, node)))
	}, nothing},
	{"the replica beside the engine", func(l *losses, volume, node string) {
		l.kill(l.directoryOn(volume, node))
	}, nothing},
	{"the engine", func(l *losses, volume, _ string) { l.killEngine(volume) }, nothing},
	{"the instance manager of a replica", func(l *losses, volume, node string) {
		l.kill("daemon\x00--listen\x00" + l.address(l.elsewhere(volume, node)) + ":")
	}, nothing},
	{"the instance manager of the engine", func(l *losses, _, node string) {
		l.kill("daemon\x00--listen\x00" + l.address(node) + ":")
	}, nothing},
	{"the node of the engine", func(l *losses, _, node string) { l.KillNode(l.t, l.number(node)) },
		func(l *losses, node string) { l.StartNode(l.t, l.number(node)) }},
}

// elsewhere is a node with a replica of a volume, other than one.
func (l *losses) elsewhere(volume, node string) string {
	l.t.Helper()
	for _, n := range l.nodesOf(volume) {
		if n != node {
			return n
		}
	}
	l.t.Fatalf("volume %s has replicas on %v", volume, l.nodesOf(volume))
	return ""
}

// TestBackupLosses: whatever is lost while a volume is backed up, or restored, or followed by a
// standby volume, the backup ends complete or with a reason, the next one is complete, and restores
// end by themselves with the content of the backup.
func TestBackupLosses(t *testing.T) {
	t.Parallel()
	l := &losses{cluster: start(t), store: t.TempDir()}
	l.Permit(t, managersRestart)
	l.setting("replica-replenishment-wait-interval", "5")
	l.setting("backup-bandwidth-limit", "2")
	l.target("vfs://" + l.store)
	l.eventually("the backup target is available", func(context.Context) error {
		if b := l.backupTarget(); !b.Available {
			return errors.New(b.Message)
		}
		return nil
	})
	l.create("source", cloneSize, 3)
	l.attach("source", "node-1", 3)
	first := l.backUp("source", "s")
	l.complete("source", first)
	l.command("standby", "create", first, "standby", "--replicas", "2")
	var want [sha256.Size]byte
	for _, loss := range backupLosses {
		t.Run(loss.name, func(t *testing.T) {
			outer := l.t
			l.t = t
			defer func() { l.t = outer }()
			want = l.backUpAndLose(loss)
			l.followAndLose(loss)
			l.restoreAndLose(l.backup(l.newest()).URL, want, loss)
		})
		if t.Failed() {
			return
		}
	}
	l.command("standby", "activate", "standby")
	holds(t, l.cluster, l.attach("standby", "node-3", 2), want, "the standby volume has another content than the backup")
	l.detach("standby")
	l.identical("standby", 2)
}

// answers waits until the API does, and goes on to: its leader may have been lost.
func (l *losses) answers() {
	l.t.Helper()
	l.eventually("the API answers", func(ctx context.Context) error {
		_, err := l.rest.Volumes(ctx)
		return err
	})
}

// newest is the newest backup of the source.
func (l *losses) newest() string {
	l.t.Helper()
	return l.volume("source").LastBackup
}

// backUpAndLose returns the hash of what is backed up.
func (l *losses) backUpAndLose(loss loss) (want [sha256.Size]byte) {
	l.t.Helper()
	l.seed++
	endpoint := l.awaitUsable("source", "node-1", 3)
	d := l.device(endpoint)
	fill(l.t, d, l.seed)
	if err := d.Close(); err != nil {
		l.t.Fatal(err)
	}
	want = hashDevice(l.t, l.cluster, endpoint)
	snapshot := fmt.Sprint("s", l.seed)
	name := l.backUp("source", snapshot)
	l.eventually("the backup is under way", func(context.Context) error {
		if b := l.backup(name); b.State != "InProgress" || b.Progress == 0 {
			return fmt.Errorf("%s %d %% %s", b.State, b.Progress, b.Error)
		}
		return nil
	})
	loss.do(l, "source", "node-1")
	loss.undo(l, "node-1")
	l.eventually("the backup has ended", func(ctx context.Context) error {
		switch b, err := l.rest.Backup(ctx, name); {
		case err != nil:
			return err
		case b.State == "Completed":
			l.t.Logf("backup: complete")
			return nil
		case b.State == "Error" && b.Error != "":
			l.t.Logf("backup: %s", b.Error)
			return nil
		default:
			return fmt.Errorf("%s %d %% %v", b.State, b.Progress, b.Messages)
		}
	})
	l.answers()
	l.awaitUsable("source", "node-1", 3)
	if l.backup(name).State != "Completed" {
		name = l.order("source", snapshot)
		l.complete("source", name)
	}
	l.eventually("the volume shows its newest backup", func(context.Context) error {
		if got := l.newest(); got != name {
			return errors.New(got)
		}
		return nil
	})
	return want
}

// begun waits until a volume takes a backup, and returns the node on which it does.
func (l *losses) begun(name string) (node string) {
	l.t.Helper()
	l.eventually(name+" takes a backup", func(context.Context) error {
		v := l.volume(name)
		for _, r := range v.RestoreStatus {
			if r.IsRestoring && r.Progress > 0 {
				node = v.Controllers[0].HostID
				return nil
			}
		}
		return fmt.Errorf("%s, %+v", v.State, v.RestoreStatus)
	})
	return node
}

// followAndLose: a standby volume takes the newest backup by what differs.
func (l *losses) followAndLose(loss loss) {
	l.t.Helper()
	node := l.begun("standby")
	loss.do(l, "standby", node)
	loss.undo(l, node)
	l.answers()
	l.follows("standby", l.newest())
	l.becomes("standby", "healthy")
}

func (l *losses) restoreAndLose(url string, want [sha256.Size]byte, loss loss) {
	l.t.Helper()
	const name = "restored"
	if _, err := l.rest.CreateVolume(context.Background(), restclient.VolumeSpec{Name: name, NumberOfReplicas: 2,
		FromBackup: url}); err != nil {
		l.t.Fatal(err)
	}
	defer l.remove(name)
	node := l.begun(name)
	loss.do(l, name, node)
	loss.undo(l, node)
	l.answers()
	l.eventually("the volume is restored, and rests", func(context.Context) error {
		v := l.volume(name)
		if v.RestoreRequired || v.State != "detached" {
			return fmt.Errorf("%s %s, restore required %v: %+v", v.State, v.Robustness, v.RestoreRequired,
				v.Conditions["Restore"])
		}
		return nil
	})
	endpoint := l.attach(name, "node-2", 2)
	holds(l.t, l.cluster, endpoint, want, "the restored volume has another content than the backup")
	l.detach(name)
	l.identical(name, 2)
	if left, err := filepath.Glob(filepath.Join(l.store, "backupstore/volumes/*/*/source/backups/*.cfg")); err != nil ||
		len(left) == 0 {
		l.t.Errorf("%v %v", left, err)
	}
}
