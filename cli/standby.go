package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

func (a backupApp) standbyCommands() *cobra.Command {
	c := &cobra.Command{Use: "standby", Short: "Keep volumes that follow the backups of others, and activate them"}
	c.AddCommand(a.standbyCreate(), a.standbyActivate())
	return c
}

func (a backupApp) standbyCreate() *cobra.Command {
	spec := client.VolumeSpec{Standby: true}
	var w waiting
	c := &cobra.Command{Use: "create BACKUP VOLUME", Short: "Make a volume that follows the backups of another one",
		Long: "Make a standby volume, and wait until it holds the newest backup of the volume that BACKUP is of. It takes\n" +
			"each later backup by itself, as soon as a poll of the backup target finds it. Nobody can use it before it is\n" +
			"activated: ankole standby activate.",
		Args: usage.Exactly("the backup's name", "the new volume's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, b, err := a.orderFrom(cmd.Context(), args[0], args[1], spec)
			if err != nil {
				return err
			}
			if !w.wait {
				fmt.Fprintf(a.out, "standby volume %s ordered, of volume %s\n", args[1], b.VolumeName)
				return nil
			}
			v, err := a.await(cmd.Context(), api, args[1], w.timeout, "filled", func(v *resource.Volume) (bool, error) {
				return v.LastBackup != "" && findings.HeldBackup(v) == v.LastBackup, nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "standby volume %s holds backup %s of volume %s\n", args[1], v.LastBackup, b.VolumeName)
			return nil
		}}
	w.addFor(c, backupTimeout)
	c.Flags().IntVar(&spec.NumberOfReplicas, "replicas", 0, "number of replicas (default: setting default-replica-count)")
	return c
}

func (a backupApp) standbyActivate() *cobra.Command {
	frontend := ""
	var w waiting
	c := &cobra.Command{Use: "activate VOLUME", Short: "Make an ordinary volume of a standby volume",
		Long: "Make an ordinary volume of a standby volume. It takes the newest backup that the cluster knows of first, and\n" +
			"goes on when this command is interrupted. A target that cannot be reached holds it up only where the volume does not\n" +
			"hold that backup yet; it is activated without it by: ankole volume accept-backup-damage. Ask for a look into the store\n" +
			"before: ankole backup-target sync.",
		Args:              usage.Exactly("the volume's name"),
		ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if _, err := api.ActivateVolume(cmd.Context(), args[0], frontend); err != nil {
				return named("volume", args[0], err)
			}
			if !w.wait {
				fmt.Fprintf(a.out, "volume %s is to be activated\n", args[0])
				return nil
			}
			v, err := a.await(cmd.Context(), api, args[0], w.timeout, "active", func(v *resource.Volume) (bool, error) {
				return !v.Standby && !v.RestoreRequired && v.State == "detached", nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "volume %s is active, with what backup %s held; attach it with: ankole volume attach %s\n",
				args[0], findings.HeldBackup(v), args[0])
			return nil
		}}
	w.addFor(c, backupTimeout)
	c.Flags().StringVar(&frontend, "frontend", "blockdev", "frontend that the volume gets")
	return c
}
