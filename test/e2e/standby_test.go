package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ankole.storage/rest/client"
)

// scenarioStandby: a standby volume takes the backups of another volume, the first one whole and
// the next one by what differs, also where its engine is killed meanwhile. A replica of it that
// dies is rebuilt. Nobody attaches it. It is activated while the newest backup is being restored,
// holds that then, and is used.
func scenarioStandby(t *testing.T, c *cluster) {
	store := t.TempDir()
	c.target("vfs://" + store)
	defer c.target("")
	c.create("w1", cloneSize, 2)
	endpoint := c.attach("w1", "node-1", 2)
	d := c.device(endpoint)
	fill(t, d, 1)
	first := c.backUp("w1", "s1")
	c.complete("w1", first)
	c.command("standby", "create", first, "w2", "--replicas", "2")
	defer c.remove("w2")
	v := c.volume("w2")
	if !v.Standby || v.State != "attached" || v.Controllers[0].Endpoint != "" || v.LastBackup != first {
		t.Errorf("%s, standby %v, newest backup %s, offered at %q", v.State, v.Standby, v.LastBackup,
			v.Controllers[0].Endpoint)
	}
	if status, _, text := c.ankole(t, "volume", "attach", "w2", "node-2"); status == 0 {
		t.Errorf("a standby volume can be attached: %s", text)
	}
	write := func(off int64) {
		t.Helper()
		if _, err := d.WriteAt([]byte(strings.Repeat("later", 1000)), off); err != nil {
			t.Fatal(err)
		}
	}

	t.Log("the next backup: what differs from the one before")
	write(4096)
	second := c.backUp("w1", "s2")
	c.complete("w1", second)
	c.follows("w2", second)
	c.logHas(v.Controllers[0].Name, "backup="+second+" of=w1 from="+first)

	t.Log("a replica dies between two backups, and is rebuilt")
	c.killReplicaOn("w2", v.Replicas[0].HostID)
	c.becomes("w2", "degraded")
	c.becomes("w2", "healthy")

	t.Log("its engine is killed while it takes the next one")
	write(3 << 20)
	third := c.backUp("w1", "s3")
	c.takes("w2", third)
	c.killEngine("w2")
	c.follows("w2", third)

	t.Log("it is activated while it takes the newest one")
	write(5 << 20)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want := hashDevice(t, c, endpoint)
	fourth := c.backUp("w1", "s4")
	c.takes("w2", fourth)
	c.command("standby", "activate", "w2")
	c.detach("w1")
	endpoint = c.attach("w2", "node-2", 2)
	holds(t, c, endpoint, want, "the volume that was activated has another content than the newest backup")
	c.detach("w2")
	c.identical("w2", 2)
	c.remove("w1")
}

// command runs a command that is to succeed.
func (c *cluster) command(args ...string) {
	c.t.Helper()
	if status, out, text := c.ankole(c.t, args...); status != 0 {
		c.t.Fatalf("ankole %s: %s%s", strings.Join(args, " "), out, text)
	}
}

// follows waits until a standby volume holds a backup, and rests.
func (c *cluster) follows(name, backup string) {
	c.t.Helper()
	c.eventually(name+" holds "+backup, func(context.Context) error {
		v := c.volume(name)
		if e := v.Controllers[0]; e.LastRestoredBackup != backup || v.Conditions["Restore"].Status != "False" ||
			v.LastBackup != backup || !v.RestoreRequired {
			return fmt.Errorf("%s holds %s of %s, requested %s: %+v", v.State, e.LastRestoredBackup, v.LastBackup,
				e.RequestedBackupRestore, v.Conditions["Restore"])
		}
		return nil
	})
}

// becomes waits for the robustness of a volume.
func (c *cluster) becomes(name, robustness string) {
	c.t.Helper()
	c.eventually(name+" is "+robustness, func(context.Context) error {
		if v := c.volume(name); v.Robustness != robustness {
			return fmt.Errorf("%s: %+v", v.Robustness, v.RebuildStatus)
		}
		return nil
	})
}

// takes waits until the engine of a standby volume is asked for a backup.
func (c *cluster) takes(name, backup string) {
	c.t.Helper()
	c.eventually(name+" takes "+backup, func(context.Context) error {
		if v := c.volume(name); v.Controllers[0].RequestedBackupRestore != backup {
			return errors.New(v.Controllers[0].RequestedBackupRestore)
		}
		return nil
	})
}

// logHas checks that the log of an engine has a text.
func (c *cluster) logHas(engine, text string) {
	c.t.Helper()
	var log bytes.Buffer
	if err := c.rest.InstanceLog(c.t.Context(), engine, client.LogOptions{}, &log); err != nil {
		c.t.Fatal(err)
	}
	if !strings.Contains(log.String(), text) {
		c.t.Errorf("engine %s does not say %q:\n%s", engine, text, log.String())
	}
}
