package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

type imageBackupRow = resource.BackupBackingImage

func imageBackupKind(now func() time.Time) output.Kind[imageBackupRow] {
	return output.Kind[imageBackupRow]{
		Name: "backing-image-backup", Id: func(b imageBackupRow) string { return b.Name },
		None: "no backups of backing images; make one with: ankole backing-image-backup create IMAGE",
		Columns: []output.Column[imageBackupRow]{
			{Header: "NAME", Value: func(b imageBackupRow) string { return b.Name }},
			{Header: "IMAGE", Value: func(b imageBackupRow) string { return b.BackingImageName }},
			{Header: "TARGET", Value: func(b imageBackupRow) string { return b.BackupTargetName }},
			{Header: "STATE", Value: func(b imageBackupRow) string { return b.State }},
			{Header: "PROGRESS", Right: true, Value: func(b imageBackupRow) string { return strconv.Itoa(b.Progress) + " %" },
				Number: func(b imageBackupRow) float64 { return float64(b.Progress) }},
			{Header: "SIZE", Right: true, Value: func(b imageBackupRow) string { return output.Size(b.Size) },
				Number: func(b imageBackupRow) float64 { return float64(b.Size) }},
			{Header: "AGE", Value: func(b imageBackupRow) string { return output.Age(b.Created, now()) },
				Number: func(b imageBackupRow) float64 { return output.AgeSeconds(b.Created, now()) }},
			{Header: "NOTE", Value: imageBackupNote},
			{Header: "URL", Wide: true, Value: func(b imageBackupRow) string { return b.URL }},
			{Header: "LABELS", Wide: true, Value: func(b imageBackupRow) string { return pairs(b.Labels) }},
		},
	}
}

// imageBackupNote is what a person should know of a backup that is not complete.
func imageBackupNote(b imageBackupRow) string {
	return cmp.Or(b.Error, b.Messages["error"]+b.Messages["info"])
}

func imageBackupNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.BackupImages(ctx)
	return namesOf(all, func(b imageBackupRow) string { return b.Name }), err
}

func imageBackupByName(ctx context.Context, api *client.Client, name string) (*imageBackupRow, error) {
	b, err := api.BackupImage(ctx, name)
	return b, named("backing-image-backup", name, err)
}

func (a imageApp) imageBackupCommands() *cobra.Command {
	c := &cobra.Command{Use: "backing-image-backup", Aliases: []string{"backing-image-backups"},
		Short: "Back up backing images, and restore them"}
	get := getting(a.app, imageBackupKind(a.now), "Show backups of backing images", "the backup's name", imageBackupNames,
		imageBackupByName)
	get.Aliases = []string{"describe"}
	remove := &cobra.Command{Use: "delete NAME…", Short: "Delete backups of backing images, in the store too",
		Args: usage.AtLeast(1, "the backup's name"), ValidArgsFunction: a.completeNames(0, imageBackupNames)}
	c.AddCommand(a.imageBackupCreate(), listing(a.app, imageBackupKind(a.now), "List the backups of backing images",
		func(ctx context.Context, api *client.Client) ([]imageBackupRow, error) { return api.BackupImages(ctx) }),
		get, a.imageBackupRestore(), a.imageBackupVerify(),
		a.deleting(remove, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
			b, err := imageBackupByName(ctx, api, t.name)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("backup %s of backing image %s on backup target %s", b.Name, b.BackingImageName,
				b.BackupTargetName), nil
		}, func(ctx context.Context, api *client.Client, t target) (string, error) {
			return "backup " + t.name + " is being deleted", named("backing-image-backup", t.name,
				api.DeleteBackupImage(ctx, t.name))
		}))
	return c
}

func (a imageApp) imageBackupCreate() *cobra.Command {
	var w waiting
	var to string
	c := &cobra.Command{Use: "create IMAGE", Short: "Back a backing image up",
		Long: "Back a backing image up, and wait until the backup is complete. It goes on when this command is interrupted:\n" +
			"ankole backing-image-backup list shows how far it is. A backup target has one backup of each image.",
		Args: usage.Exactly("the backing image's name"), ValidArgsFunction: a.completeNames(1, backingImageNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := api.BackUpImage(cmd.Context(), args[0], to); err != nil {
				return named("backing-image", args[0], err)
			}
			if !w.wait {
				fmt.Fprintf(a.out, "backup of backing image %s to backup target %s ordered\n", args[0], to)
				return nil
			}
			made, err := a.awaitImageBackup(cmd.Context(), api, args[0], to, w.timeout)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "backup %s of backing image %s is complete\n", made, args[0])
			return nil
		}}
	w.addFor(c, backupTimeout)
	c.Flags().StringVar(&to, "target", "default", "the backup target")
	return c
}

// awaitImageBackup waits until the backup of an image on a target is complete, and returns its
// name.
func (a imageApp) awaitImageBackup(ctx context.Context, api *client.Client, image, on string,
	timeout time.Duration) (name string, err error) {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	why := "nothing is known of it yet"
	err = poll(ctx, timeout, backupEvery, func(ctx context.Context) (bool, error) {
		all, err := api.BackupImages(ctx)
		if err != nil {
			return false, err
		}
		for _, b := range all {
			if b.BackingImageName != image || b.BackupTargetName != on {
				continue
			}
			name = b.Name
			if b.State == "Error" {
				return false, fmt.Errorf("backup %s of backing image %s has failed: %s; delete it before another one: "+
					"ankole backing-image-backup delete %s", b.Name, image, b.Error, b.Name)
			}
			why = cmp.Or(b.Messages["error"]+b.Messages["info"], "it is "+cmp.Or(strings.ToLower(b.State), "new"))
			line.Set(b.Progress, "backup %s: %s", b.Name, why)
			return b.State == "Completed", nil
		}
		return false, nil
	}, func() error {
		return fmt.Errorf("backing image %s is not backed up after %s: %s; follow it with: ankole backing-image-backup list",
			image, timeout, why)
	})
	return name, err
}

func (a imageApp) imageBackupRestore() *cobra.Command {
	var w waiting
	c := &cobra.Command{Use: "restore NAME", Short: "Make the backing image of a backup again, under its own name",
		Args: usage.Exactly("the backup's name"), ValidArgsFunction: a.completeNames(1, imageBackupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			b, err := imageBackupByName(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			if err := api.RestoreBackupImage(cmd.Context(), b.Name); err != nil {
				return err
			}
			return a.imageMade(cmd.Context(), api, b.BackingImageName, &w)
		}}
	w.addFor(c, imageWait)
	return c
}

func (a imageApp) imageBackupVerify() *cobra.Command {
	target, bandwidth, repair := "", int64(0), false
	var w waiting
	c := &cobra.Command{Use: "verify [NAME]",
		Short: "Read the backup of a backing image, or all, and list what is damaged or missing",
		Long: "Read every block and the record of the backup of a backing image, or of all that are complete; compare them\n" +
			"with their checksums; and list what is damaged or missing, with the images that cannot be restored whole\n" +
			"because of it. The exit status is 1 if there is something. It goes on when this command is interrupted.\n\n" +
			"A disk that has the image ready writes again what was found. With --repair that is waited for, and all is\n" +
			"verified again.",
		Args: usage.AtMost(1), ValidArgsFunction: a.completeNames(1, imageBackupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, err := imagesToVerify(cmd.Context(), api, strings.Join(args, ""), target)
			if err != nil {
				return err
			}
			if !w.wait {
				_, err := orderVerifications(cmd.Context(), all, bandwidth)
				if err == nil {
					fmt.Fprintf(a.out, "verification of %s ordered\n", output.Count(len(all), "backup"))
				}
				return err
			}
			backups := backupApp(a)
			found, err := backups.verify(cmd.Context(), all, bandwidth, w.timeout)
			if err == nil && repair && hasFaults(found) {
				found, err = backups.verify(cmd.Context(), all, bandwidth, w.timeout) // it begins when that is written again
			}
			if err != nil {
				return err
			}
			return a.showVerifiedImages(found)
		}}
	w.addFor(c, backupTimeout)
	c.Flags().StringVar(&target, "target", "", "only backups on this backup target")
	c.Flags().Int64Var(&bandwidth, "bandwidth", 0,
		"most MiB per second to read (default: setting backup-verify-bandwidth-limit)")
	c.Flags().BoolVar(&repair, "repair", false, "wait until what is damaged is written again, and verify once more")
	a.addOutput(c)
	return c
}

// imagesToVerify finds the backup of a name, or with "" all that are complete.
func imagesToVerify(ctx context.Context, api *client.Client, name, target string) (all []verified, err error) {
	backups, err := api.BackupImages(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range backups {
		if name != "" && b.Name != name || target != "" && b.BackupTargetName != target || name == "" && b.Created == "" {
			continue
		}
		all = append(all, verified{name: b.Name, of: "backing image " + b.BackingImageName, target: b.BackupTargetName,
			order: func(ctx context.Context, name string, in resource.VerifyBackupsInput) (*resource.BackupVerification, error) {
				return client.VerifyBackupImage(ctx, api, name, in)
			},
			read: func(ctx context.Context, name string) (*resource.BackupVerification, error) {
				return client.BackupImageVerification(ctx, api, name)
			}})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no such backup; list backups with: ankole backing-image-backup list")
	}
	return all, nil
}

// showVerifiedImages lists faults. It is an error that there are some.
func (a imageApp) showVerifiedImages(found []resource.BackupVerification) error {
	var rows []faultRow
	faults, blocks, hurt := int64(0), int64(0), map[string]bool{}
	for _, v := range found {
		blocks, faults = blocks+v.Blocks, faults+v.FaultCount
		for _, b := range v.Backups {
			if b.Faults > 0 {
				hurt[v.Target+" "+b.Name] = true
			}
		}
		for _, f := range v.Faults {
			rows = append(rows, faultRow{Image: v.BackingImage, Target: v.Target, BackupFault: f})
		}
	}
	if faults == 0 && (a.output == output.Plain || a.output == output.Wide) {
		fmt.Fprintf(a.out, "%s of backing images: all sound, %s were read\n", output.Count(len(found), "backup"),
			output.Count(int(blocks), "block"))
		return nil
	}
	if err := show(a.app, faultKind("IMAGE", "IMAGES HURT"), rows, false); err != nil || faults == 0 {
		return err
	}
	more := ""
	if n := faults - int64(len(rows)); n > 0 {
		more = fmt.Sprintf(" (%d are not listed)", n)
	}
	return fmt.Errorf("%s damaged or missing%s; images that are hurt: %d; a disk that has an image ready writes it again: "+
		"verify once more with --repair, or see ankole backing-image-backup list",
		output.Count(int(faults), "object"), more, len(hurt))
}
