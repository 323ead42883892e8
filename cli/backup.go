package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

type backupRow = resource.Backup

// backupApp has the commands about backups, their targets, and volumes that follow them.
type backupApp struct{ *app }

func backupKind(now func() time.Time) output.Kind[backupRow] {
	return output.Kind[backupRow]{
		Name: "backup", Id: func(b backupRow) string { return b.Name },
		None: "no backups; make one with: ankole backup create VOLUME SNAPSHOT",
		Columns: []output.Column[backupRow]{
			{Header: "NAME", Value: func(b backupRow) string { return b.Name }},
			{Header: "VOLUME", Value: func(b backupRow) string { return b.VolumeName }},
			{Header: "SNAPSHOT", Value: func(b backupRow) string { return b.SnapshotName }},
			{Header: "STATE", Value: func(b backupRow) string { return b.State }},
			{Header: "PROGRESS", Right: true, Value: func(b backupRow) string { return strconv.Itoa(b.Progress) + " %" },
				Number: func(b backupRow) float64 { return float64(b.Progress) }},
			{Header: "AGE", Value: func(b backupRow) string { return output.Age(b.Created, now()) },
				Number: func(b backupRow) float64 { return output.AgeSeconds(b.Created, now()) }},
			{Header: "NOTE", Value: backupNote},
			{Header: "TARGET", Wide: true, Value: func(b backupRow) string { return b.BackupTargetName }},
			{Header: "URL", Wide: true, Value: func(b backupRow) string { return b.URL }},
			{Header: "LABELS", Wide: true, Value: func(b backupRow) string { return pairs(b.Labels) }},
		},
	}
}

// backupNote is what a person should know of a backup that is not complete.
func backupNote(b backupRow) string {
	if b.Error != "" {
		return b.Error
	}
	return b.Messages["error"] + b.Messages["info"]
}

func (a backupApp) backupCommands() *cobra.Command {
	c := &cobra.Command{Use: "backup", Aliases: []string{"backups"},
		Short: "Back up snapshots of volumes, and restore volumes from backups"}
	one := func(ctx context.Context, api *client.Client, name string) (*backupRow, error) {
		return api.Backup(ctx, name)
	}
	get := getting(a.app, backupKind(a.now), "Show backups", "the backup's name", nobody, one)
	get.Aliases = []string{"describe"}
	remove := &cobra.Command{Use: "delete NAME…", Short: "Delete backups, in the store too",
		Args: usage.AtLeast(1, "the backup's name")}
	c.AddCommand(a.backupCreate(), a.backupList(), get, a.backupRestore(), a.backupVerify(),
		a.deleting(remove, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
			b, err := api.Backup(ctx, t.name)
			if err != nil {
				return "", noBackup(t.name, err)
			}
			return fmt.Sprintf("backup %s of snapshot %s of volume %s", b.Name, b.SnapshotName, b.VolumeName), nil
		}, func(ctx context.Context, api *client.Client, t target) (string, error) {
			return "backup " + t.name + " is being deleted", noBackup(t.name, api.DeleteBackup(ctx, t.name))
		}))
	return c
}

// noBackup says where to look for a backup that is not there.
func noBackup(name string, err error) error {
	if client.IsNotFound(err) {
		return fmt.Errorf("backup %s not found; list backups with: ankole backup list VOLUME", name)
	}
	return err
}

// nobody completes no names.
func nobody(context.Context, *client.Client) ([]string, error) { return nil, nil }

// backupTimeout is how long a backup or a restore is waited for.
const backupTimeout = 24 * time.Hour

// backupEvery is how often a backup under way is looked at.
const backupEvery = 500 * time.Millisecond

func (a backupApp) backupCreate() *cobra.Command {
	var in resource.SnapshotInput
	var labels []string
	var w waiting
	c := &cobra.Command{Use: "create VOLUME SNAPSHOT", Short: "Back a snapshot up to the volume's backup target",
		Long: "Back a snapshot up to the volume's backup target, and wait until it is there. It goes on when this command\n" +
			"is interrupted: ankole backup list VOLUME shows how far it is.",
		Args:              usage.Exactly("the volume's name", "the snapshot's name"),
		ValidArgsFunction: snapshotApp(a).completeSnapshots(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if in.Labels, err = parsePairs("label", labels); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			in.Name = args[1]
			before, err := api.AllBackups(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := api.BackUp(cmd.Context(), args[0], in); err != nil {
				return named("volume", args[0], err)
			}
			if !w.wait {
				fmt.Fprintf(a.out, "backup of snapshot %s of volume %s ordered\n", args[1], args[0])
				return nil
			}
			made, err := a.awaitBackup(cmd.Context(), api, args[0], args[1], before, w.timeout)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "backup %s of snapshot %s of volume %s is complete\n", made, args[1], args[0])
			return nil
		}}
	w.addFor(c, backupTimeout)
	c.Flags().StringSliceVar(&labels, "label", nil, "label KEY=VALUE kept with the backup; may be repeated")
	c.Flags().StringVar(&in.BackupMode, "mode", "incremental", "incremental or full: whether blocks are taken over")
	return c
}

// awaitBackup waits until a backup of a snapshot that was not there before is complete, and returns
// its name.
func (a backupApp) awaitBackup(ctx context.Context, api *client.Client, volume, snapshot string, before []backupRow,
	timeout time.Duration) (name string, err error) {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	why := "nothing is known of it yet"
	err = poll(ctx, timeout, backupEvery, func(ctx context.Context) (bool, error) {
		if name == "" {
			all, err := api.AllBackups(ctx, volume)
			if name = newBackup(all, before, snapshot); name == "" {
				return false, err
			}
		}
		b, err := api.Backup(ctx, name)
		if err != nil {
			return false, noBackup(name, err)
		}
		if b.State == "Error" {
			return false, fmt.Errorf("backup %s of snapshot %s has failed: %s", b.Name, snapshot, b.Error)
		}
		why = "it is " + cmp.Or(strings.ToLower(b.State), "new")
		line.Set(b.Progress, "backup %s: %s", b.Name, cmp.Or(b.Messages["info"], why))
		return b.State == "Completed", nil
	}, func() error {
		return fmt.Errorf("snapshot %s is not backed up after %s: %s; follow it with: ankole backup list %s", snapshot, timeout,
			why, volume)
	})
	return name, err
}

// newBackup is a backup of a snapshot that was not there before; empty: there is none.
func newBackup(all, before []backupRow, snapshot string) string {
	for _, b := range all {
		if b.SnapshotName == snapshot && !slices.ContainsFunc(before, func(o backupRow) bool { return o.Name == b.Name }) {
			return b.Name
		}
	}
	return ""
}

func (a backupApp) backupList() *cobra.Command {
	c := &cobra.Command{Use: "list VOLUME", Aliases: []string{"ls"},
		Short: "List the backups of a volume, which need not be there any more",
		Args:  usage.Exactly("the volume's name"), ValidArgsFunction: a.completeNames(1, volumeNames)}
	s := output.AddSelection(c, backupKind(a.now))
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		all, err := api.AllBackups(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return showSelected(a.app, backupKind(a.now), all, s)
	}
	a.addOutput(c)
	return c
}

func (a backupApp) backupRestore() *cobra.Command {
	spec, damaged := client.VolumeSpec{}, false
	var w waiting
	c := &cobra.Command{Use: "restore BACKUP VOLUME", Short: "Make a new volume of a backup",
		Long: "Make a new volume of a backup, and wait until it is whole. It goes on when this command is interrupted; nobody\n" +
			"can attach the volume before: ankole volume describe VOLUME shows condition Restore.",
		Args: usage.Exactly("the backup's name", "the new volume's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, b, err := a.orderFrom(cmd.Context(), args[0], args[1], spec)
			if err != nil {
				return err
			}
			if damaged {
				if err := acceptDamage(cmd.Context(), api, args[1]); err != nil {
					return err
				}
			}
			if !w.wait {
				fmt.Fprintf(a.out, "volume %s ordered, from backup %s of volume %s\n", args[1], b.Name, b.VolumeName)
				return nil
			}
			v, err := a.await(cmd.Context(), api, args[1], w.timeout, "restored", func(v *resource.Volume) (bool, error) {
				return v.RestoreInitiated && !v.RestoreRequired && v.State == "detached", nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "volume %s restored from backup %s of volume %s (%s bytes)\n", args[1], b.Name, b.VolumeName, v.Size)
			a.tellDamage(v)
			return nil
		}}
	w.addFor(c, backupTimeout)
	c.Flags().IntVar(&spec.NumberOfReplicas, "replicas", 0, "number of replicas (default: setting default-replica-count)")
	c.Flags().BoolVar(&damaged, "accept-damage", false,
		"what the backup target does not have any more becomes zero; the volume tells which ranges that are")
	return c
}

// orderFrom orders a volume that is made of a backup, as spec says.
func (a backupApp) orderFrom(ctx context.Context, backup, volume string, spec client.VolumeSpec) (
	*client.Client, *backupRow, error) {
	api, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	b, err := api.Backup(ctx, backup)
	if err != nil {
		return nil, nil, noBackup(backup, err)
	}
	spec.Name, spec.FromBackup = volume, b.URL
	_, err = api.CreateVolume(ctx, spec)
	return api, b, err
}

type targetRow = resource.BackupTarget

var targetKind = output.Kind[targetRow]{
	Name: "backup-target", Id: func(t targetRow) string { return t.Name }, None: "no backup targets",
	Columns: []output.Column[targetRow]{
		{Header: "NAME", Value: func(t targetRow) string { return t.Name }},
		{Header: "URL", Value: func(t targetRow) string { return output.OrDash(t.BackupTargetURL) }},
		{Header: "SECRET", Value: func(t targetRow) string { return output.OrDash(t.CredentialSecret) }},
		{Header: "INTERVAL", Value: func(t targetRow) string { return t.PollInterval }},
		{Header: "AVAILABLE", Value: func(t targetRow) string { return output.YesNo(t.Available) }},
		{Header: "NOTE", Value: func(t targetRow) string { return t.Message }},
	},
}

func (a backupApp) backupTargetCommands() *cobra.Command {
	c := &cobra.Command{Use: "backup-target", Aliases: []string{"backup-targets"},
		Short: "Say where backups are kept, and look there"}
	c.AddCommand(listing(a.app, targetKind, "List backup targets",
		func(ctx context.Context, api *client.Client) ([]targetRow, error) { return api.BackupTargets(ctx) }),
		a.targetSet(), a.targetSync())
	return c
}

func targetNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.BackupTargets(ctx)
	return namesOf(all, func(t targetRow) string { return t.Name }), err
}

func (a backupApp) targetSet() *cobra.Command {
	var in targetRow
	interval := 0
	c := &cobra.Command{Use: "set NAME", Short: "Say where a backup target is; without --url it is turned off",
		Example: "  ankole backup-target set default --url s3://bucket@region/ --secret aws-secret",
		Args:    usage.Exactly("the backup target's name"), ValidArgsFunction: a.completeNames(1, targetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			in.Name, in.PollInterval = args[0], strconv.Itoa(interval)
			if _, err := api.UpdateBackupTarget(cmd.Context(), in); err != nil {
				return named("backup-target", args[0], err)
			}
			fmt.Fprintf(a.out, "backup target %s set; see whether it is available with: ankole backup-target list\n", args[0])
			return nil
		}}
	c.Flags().StringVar(&in.BackupTargetURL, "url", "", "s3://bucket@region/path, nfs://server:/path, "+
		"cifs://server/share/path, or vfs:///directory where that is allowed")
	c.Flags().StringVar(&in.CredentialSecret, "secret", "", "the Secret with the credentials")
	c.Flags().IntVar(&interval, "interval", 300, "seconds between two looks at the store; 0 for none")
	return c
}

func (a backupApp) targetSync() *cobra.Command {
	return &cobra.Command{Use: "sync NAME", Short: "Look at what a backup target has now",
		Args: usage.Exactly("the backup target's name"), ValidArgsFunction: a.completeNames(1, targetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if _, err := api.SyncBackupTarget(cmd.Context(), args[0]); err != nil {
				return named("backup-target", args[0], err)
			}
			fmt.Fprintf(a.out, "a look at backup target %s ordered\n", args[0])
			return nil
		}}
}
