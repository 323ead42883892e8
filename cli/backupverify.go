package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// faultRow is an object of a store that is damaged or missing; of a volume or of a backing image.
type faultRow struct {
	Volume string `json:"volume,omitempty"`
	Image  string `json:"backingImage,omitempty"`
	Target string `json:"target"`
	resource.BackupFault
}

// faultKind shows faults, of volumes or of images as the first header says.
func faultKind(whose, hurt string) output.Kind[faultRow] {
	return output.Kind[faultRow]{
		Name: "fault", Id: func(f faultRow) string { return path.Base(f.Object) }, None: "no faults",
		Columns: []output.Column[faultRow]{
			{Header: whose, Value: func(f faultRow) string { return f.Volume + f.Image }},
			{Header: "KIND", Value: func(f faultRow) string { return f.Kind }},
			{Header: "OBJECT", Value: func(f faultRow) string { return path.Base(f.Object) }},
			{Header: hurt, Value: hurtText},
			{Header: "TARGET", Wide: true, Value: func(f faultRow) string { return f.Target }},
			{Header: "PATH", Wide: true, Value: func(f faultRow) string { return f.Object }},
			{Header: "NOTE", Wide: true, Value: func(f faultRow) string { return f.Message }},
		},
	}
}

func hurtText(f faultRow) string {
	text := strings.Join(f.Backups, ", ")
	if more := f.BackupCount - int64(len(f.Backups)); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return cmp.Or(text, "none")
}

// verifying is what is to be verified: backup volumes, and of them one backup or all ("").
type verifying struct {
	volumes []resource.BackupVolume
	backup  string
}

// subjects are what verifications are ordered of.
func (v verifying) subjects(api *client.Client) (all []verified) {
	for _, b := range v.volumes {
		all = append(all, verified{name: b.Name, of: "volume " + b.VolumeName, target: b.BackupTargetName,
			order: api.VerifyBackups, read: api.BackupVerification})
	}
	return all
}

// verified is what is verified, by the name of the object that stands for it: all backups of a
// volume, or that of a backing image.
type verified struct {
	name, of, target string

	order func(ctx context.Context, name string, in resource.VerifyBackupsInput) (*resource.BackupVerification, error)
	read  func(ctx context.Context, name string) (*resource.BackupVerification, error)
}

func (a backupApp) backupVerify() *cobra.Command {
	target, bandwidth, repair := "", int64(0), false
	var w waiting
	c := &cobra.Command{Use: "verify [VOLUME|BACKUP]",
		Short: "Read all that a backup target has of a volume, or of all, and list what is damaged or missing",
		Long: "Read every block and record that a backup target has of a volume, by the volume's name or by that of one\n" +
			"of its backups, or of all volumes; compare them with their checksums; and list what is damaged or missing,\n" +
			"with the backups that cannot be restored whole because of it. The exit status is 1 if there is something.\n" +
			"It goes on when this command is interrupted.\n\n" +
			"What is found is noted in the store: the next backup of the volume writes it again, if the volume still\n" +
			"holds it. With --repair that backup is made at once, of a new snapshot, and all is verified again.",
		Example: "  ankole backup verify demo --bandwidth 50\n  ankole backup verify --target default\n" +
			"  ankole backup verify demo --repair",
		Args: usage.AtMost(1), ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			v, err := whatToVerify(cmd.Context(), api, strings.Join(args, ""), target)
			if err != nil {
				return err
			}
			if !w.wait {
				_, err := orderVerifications(cmd.Context(), v.subjects(api), bandwidth)
				if err == nil {
					fmt.Fprintf(a.out, "verification of %s ordered\n", output.Count(len(v.volumes), "backup volume"))
				}
				return err
			}
			found, err := a.verify(cmd.Context(), v.subjects(api), bandwidth, w.timeout)
			if err == nil && repair && hasFaults(found) {
				if err = a.repair(cmd.Context(), api, v, found, w.timeout); err == nil {
					found, err = a.verify(cmd.Context(), v.subjects(api), bandwidth, w.timeout)
				}
			}
			if err != nil {
				return err
			}
			return a.showVerified(found, v.backup)
		}}
	w.addFor(c, backupTimeout)
	c.Flags().StringVar(&target, "target", "", "the backup target (default: where the volume has backups, else default)")
	c.Flags().Int64Var(&bandwidth, "bandwidth", 0,
		"most MiB per second to read (default: setting backup-verify-bandwidth-limit)")
	c.Flags().BoolVar(&repair, "repair", false, "back volumes up again whose backups are hurt, and verify once more")
	a.addOutput(c)
	return c
}

// whatToVerify finds what a name means: a volume, a backup, or with "" all.
func whatToVerify(ctx context.Context, api *client.Client, name, target string) (v verifying, err error) {
	all, err := api.BackupVolumes(ctx)
	if err != nil {
		return v, err
	}
	of := func(volume, target string) []resource.BackupVolume {
		return slices.DeleteFunc(slices.Clone(all), func(b resource.BackupVolume) bool {
			return volume != "" && b.VolumeName != volume || target != "" && b.BackupTargetName != target
		})
	}
	if name == "" {
		target = cmp.Or(target, "default")
		if v.volumes = of("", target); len(v.volumes) == 0 {
			return v, fmt.Errorf("backup target %s has no backups that are known; look there with: ankole backup-target sync %s",
				target, target)
		}
		return v, nil
	}
	if v.volumes = of(name, target); len(v.volumes) > 0 {
		return v, nil
	}
	b, err := api.Backup(ctx, name)
	if client.IsNotFound(err) {
		return v, fmt.Errorf("%s is neither a volume with backups nor a backup; list backups with: ankole backup list VOLUME",
			name)
	} else if err != nil {
		return v, err
	}
	if target != "" && b.BackupTargetName != target {
		return v, fmt.Errorf("backup %s is on backup target %s, not on %s", name, b.BackupTargetName, target)
	}
	v.backup, v.volumes = name, of(b.VolumeName, b.BackupTargetName)
	if len(v.volumes) == 0 {
		return v, fmt.Errorf("backup %s is %s: wait for its end", name, cmp.Or(b.State, "new"))
	}
	return v, nil
}

// orderVerifications returns when each was asked for, by name.
func orderVerifications(ctx context.Context, all []verified, bandwidth int64) (map[string]string, error) {
	asked := map[string]string{}
	for _, b := range all {
		ordered, err := b.order(ctx, b.name, resource.VerifyBackupsInput{BandwidthLimit: bandwidth})
		if err != nil {
			return nil, fmt.Errorf("%s on backup target %s: %w", b.of, b.target, err)
		}
		asked[b.name] = ordered.RequestedAt
	}
	return asked, nil
}

// verify orders verifications and follows them to their ends.
func (a backupApp) verify(ctx context.Context, all []verified, bandwidth int64, timeout time.Duration) (
	found []resource.BackupVerification, err error) {
	asked, err := orderVerifications(ctx, all, bandwidth)
	if err != nil {
		return nil, err
	}
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	for i, b := range all {
		state := "not begun"
		err := poll(ctx, timeout, backupEvery, func(ctx context.Context) (bool, error) {
			now, err := b.read(ctx, b.name)
			if err != nil {
				return false, err
			}
			switch over := now.State == resource.VerificationDone && now.RequestedAt >= asked[b.name]; {
			case now.Error != "":
				return false, fmt.Errorf("the backups of %s on backup target %s cannot be verified: %s", b.of, b.target,
					now.Error)
			case over:
				found = append(found, *now)
				return true, nil
			}
			state = fmt.Sprintf("%d blocks read, %d faults", now.Blocks, now.FaultCount)
			line.Set(now.Progress, "%s (%d of %d): %s", b.of, i+1, len(all), state)
			return false, nil
		}, func() error {
			return fmt.Errorf("the backups of %s are not verified after %s: %s; it goes on, and the same command "+
				"follows it", b.of, timeout, state)
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func hasFaults(found []resource.BackupVerification) bool {
	return slices.ContainsFunc(found, func(v resource.BackupVerification) bool { return v.FaultCount > 0 })
}

// repair backs up again what is hurt. The snapshots stay: the next backups go on from them.
func (a backupApp) repair(ctx context.Context, api *client.Client, v verifying, found []resource.BackupVerification,
	timeout time.Duration) error {
	for _, f := range found {
		if f.FaultCount == 0 {
			continue
		}
		volume, err := api.Volume(ctx, f.Volume)
		if client.IsNotFound(err) {
			return errors.Join(a.showVerified(found, v.backup), fmt.Errorf("volume %s is not there any more: what is damaged "+
				"cannot be written again; delete the backups that are hurt, or restore them with: ankole backup restore "+
				"--accept-damage", f.Volume))
		} else if err != nil {
			return err
		}
		if volume.BackupTargetName != f.Target {
			return errors.Join(a.showVerified(found, v.backup), fmt.Errorf("volume %s has its backups on backup target %s by "+
				"now: what is damaged on %s is written again when it has that one", f.Volume, volume.BackupTargetName, f.Target))
		}
		snapshot := "repair-" + a.now().UTC().Format("20060102150405")
		before, err := api.AllBackups(ctx, f.Volume)
		if err != nil {
			return err
		}
		if _, err := api.OrderSnapshot(ctx, f.Volume, resource.SnapshotCRInput{Name: snapshot}); err != nil {
			return err
		}
		if _, err := api.BackUp(ctx, f.Volume, resource.SnapshotInput{Name: snapshot}); err != nil {
			return err
		}
		made, err := a.awaitBackup(ctx, api, f.Volume, snapshot, before, timeout)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.err, "backup %s of snapshot %s has written again what volume %s still holds\n", made, snapshot,
			f.Volume)
	}
	return nil
}

// showVerified lists faults, those of one backup if one is named. It is an error that there are
// some.
func (a backupApp) showVerified(found []resource.BackupVerification, backup string) error {
	var rows []faultRow
	faults, blocks, hurt, backups := int64(0), int64(0), 0, 0
	for _, v := range found {
		blocks += v.Blocks
		if backup == "" {
			faults += v.FaultCount
		}
		for _, b := range v.Backups {
			if backup != "" && b.Name != backup {
				continue
			}
			if backups++; b.Faults > 0 {
				hurt++
			}
			if backup != "" {
				faults += b.Faults
			}
		}
		for _, f := range v.Faults {
			if backup == "" || slices.Contains(f.Backups, backup) {
				rows = append(rows, faultRow{Volume: v.Volume, Target: v.Target, BackupFault: f})
			}
		}
	}
	if faults == 0 && (a.output == output.Plain || a.output == output.Wide) {
		fmt.Fprintf(a.out, "%s of %s: all sound, %s were read\n", output.Count(backups, "backup"),
			output.Count(len(found), "volume"), output.Count(int(blocks), "block"))
		return nil
	}
	if err := show(a.app, faultKind("VOLUME", "BACKUPS HURT"), rows, false); err != nil || faults == 0 {
		return err
	}
	more := ""
	if n := faults - int64(len(rows)); n > 0 {
		more = fmt.Sprintf(" (%d are not listed)", n)
	}
	return fmt.Errorf("%s damaged or missing%s; backups that are hurt: %d of %d; have written again what volumes still hold "+
		"with: ankole backup verify --repair", output.Count(int(faults), "object"), more, hurt, backups)
}
