package cli

import (
	"bytes"
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
	"ankole.storage/rest/resttest"
)

// TestAcceptBackupDamage: of a volume that is being restored damage is accepted, of one that was
// restored so it is acknowledged; only the volume's name does it.
func TestAcceptBackupDamage(t *testing.T) {
	const ranges = "zero, and not what backup b1 held, which the store did not have: 5 bytes: [0, 5)"
	for name, c := range map[string]struct {
		restoring    bool
		conditions   []lh.Condition
		says, wanted string
	}{
		"being restored": {true, []lh.Condition{{Type: "Restore", Status: lh.ConditionFalse, Reason: "RestoreFailure",
			Message: "1 blocks are damaged: [0, 5)"}}, "the last attempt: 1 blocks are damaged: [0, 5)",
			dataloss.DamageAccepted},
		"restored": {false, []lh.Condition{{Type: "BackupDamage", Status: lh.ConditionTrue, Message: ranges}}, ranges,
			dataloss.DamageAcknowledged},
	} {
		objects := resttest.Volume("demo")
		v := objects[0].(*lh.Volume)
		v.Spec.FromBackup, v.Status.Conditions = "s3://b@r/?backup=b1&volume=w", c.conditions
		v.Status.RestoreInitiated, v.Status.RestoreRequired = true, c.restoring
		b := newBed(t, resttest.Cluster(objects...)...)
		run := func(answer string, more ...string) (int, string) {
			var out bytes.Buffer
			args := append([]string{"--server", b.url, "volume", "accept-backup-damage", "demo"}, more...)
			return Main(args, strings.NewReader(answer), &out, &out), out.String()
		}
		decided := func() string {
			var v lh.Volume
			b.change("demo", &v, func() {})
			return v.Annotations[dataloss.DamageAnnotation]
		}
		if status, text := run("yes\n"); status != exitError || decided() != "" || !strings.Contains(text, c.says) ||
			!strings.Contains(text, "not accepted; nothing was changed") {
			t.Errorf("%s: %d %s", name, status, text)
		}
		if status, text := run("demo\n"); status != exitOK || decided() != c.wanted {
			t.Errorf("%s: %d %s, %q", name, status, text, decided())
		}
		if _, text := run("", "--yes"); c.restoring && !strings.Contains(text, "damage is accepted already") ||
			!c.restoring && !strings.Contains(text, "or what is zero was acknowledged") {
			t.Errorf("%s, again: %s", name, text)
		}
	}
}
