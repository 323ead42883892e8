package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// repairApp has the commands about what brings replicas and volumes back.
type repairApp struct{ *app }

// volumeScale changes how many copies there are.
func (a repairApp) volumeScale() *cobra.Command {
	var count int
	var w waiting
	c := &cobra.Command{Use: "scale NAME… --replicas N", Short: "Change the number of copies of attached volumes",
		Args:              usage.AtLeast(1, "the volume's name"),
		ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("replicas") {
				return usage.Errorf("the number of replicas is missing; add for instance --replicas 3")
			}
			if count < 1 || count > 20 {
				return usage.Errorf("--replicas %d: a volume has 1 to 20 replicas", count)
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error { return a.scaleVolume(cmd.Context(), api, name, count, w) })
		}}
	c.Flags().IntVar(&count, "replicas", 0, "number of copies, 1 to 20")
	w.addTo(c)
	return c
}

// scaleVolume asks for a number of replicas and, if asked to, waits until so many are in sync.
// Extra ones stay until somebody removes them.
func (a repairApp) scaleVolume(ctx context.Context, api *client.Client, name string, count int, w waiting) error {
	if _, err := api.UpdateReplicaCount(ctx, name, count); err != nil {
		return named("volume", name, err)
	}
	if w.wait {
		_, err := a.await(ctx, api, name, w.timeout, "in sync", func(v *resource.Volume) (bool, error) {
			return v.State != "attached" || v.Robustness == "healthy" && findings.InSync(v) >= count, nil
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(a.out, "volume %s has %d replicas\n", name, count)
	return nil
}

// volumeSalvage tries a faulted volume again.
func (a repairApp) volumeSalvage() *cobra.Command {
	return &cobra.Command{Use: "salvage NAME [REPLICA…]",
		Short: "Try a faulted volume again with some of its replicas, or all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("the volume's name is missing")
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			v, err := api.Volume(cmd.Context(), args[0])
			if err != nil {
				return named("volume", args[0], err)
			}
			replicas := args[1:]
			for _, r := range v.Replicas {
				if len(args) == 1 && r.FailedAt != "" {
					replicas = append(replicas, r.Name)
				}
			}
			if _, err := api.SalvageVolume(cmd.Context(), args[0], replicas); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "volume %s may start again with %d replicas; attach it with: ankole volume attach %s\n",
				args[0], len(replicas), args[0])
			return nil
		}}
}

// replicaDelete gives copies up.
func (a repairApp) replicaDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete VOLUME REPLICA…", Short: "Delete copies of a volume; others are built in their place",
		Args: usage.AtLeast(2, "the volume's name", "the replica's name"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return a.completeNames(1, volumeNames)(cmd, args, prefix)
			}
			return a.completeNames(0, replicaNames(args[0]))(cmd, args, prefix)
		}}
	return a.deleting(c, 1, func(ctx context.Context, api *client.Client, t target) (string, error) {
		v, err := volumeByName(ctx, api, t.lead[0])
		if err != nil {
			return "", err
		}
		for _, r := range v.Replicas {
			if r.Name == t.name {
				return fmt.Sprintf("replica %s of volume %s (%d of %d in sync) on node %s, mode %s", r.Name, v.Name, findings.InSync(v),
					v.NumberOfReplicas, output.OrDash(r.HostID), output.OrDash(r.Mode)), nil
			}
		}
		return "", a.noReplica(ctx, api, v.Name, t.name)
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		if _, err := api.RemoveReplica(ctx, t.lead[0], t.name); err != nil {
			return "", err
		}
		return fmt.Sprintf("replica %s deleted; follow the volume with: ankole volume watch %s", t.name, t.lead[0]), nil
	})
}

// noReplica says why a volume has no replica of a name.
func (a repairApp) noReplica(ctx context.Context, api *client.Client, volume, name string) error {
	if r, _, err := replicaByName(ctx, api, name); err == nil {
		return fmt.Errorf("replica %s belongs to volume %s; delete it with: ankole replica delete %s %s", name, r.Volume, r.Volume,
			name)
	}
	return fmt.Errorf("replica %s not found; list replicas with: ankole replica list %s", name, volume)
}
