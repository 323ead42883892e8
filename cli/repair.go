package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// volumeScale changes how many copies there are.
func (a *app) volumeScale() *cobra.Command {
	var count int
	var w waiting
	c := &cobra.Command{Use: "scale NAME --replicas N", Short: "Change the number of copies of an attached volume",
		Args:              exactly("the volume's name"),
		ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > 20 {
				return usagef("--replicas %d: a volume has 1 to 20 replicas", count)
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			if _, err := api.UpdateReplicaCount(cmd.Context(), args[0], count); err != nil {
				return named("volume", args[0], err)
			}
			if w.wait {
				// Extra copies stay until somebody removes them; what is waited for is that enough are in sync.
				_, err := a.await(cmd.Context(), api, args[0], w.timeout, "in sync", func(v *resource.Volume) (bool, error) {
					return v.State != "attached" || v.Robustness == "healthy" && inSync(v) >= count, nil
				})
				if err != nil {
					return err
				}
			}
			fmt.Fprintf(a.out, "volume %s has %d replicas\n", args[0], count)
			return nil
		}}
	c.Flags().IntVar(&count, "replicas", 0, "number of copies, 1 to 20")
	w.addTo(c)
	return c
}

func inSync(v *resource.Volume) int {
	n := 0
	for _, r := range v.Replicas {
		if r.Mode == "RW" {
			n++
		}
	}
	return n
}

// volumeSalvage tries a faulted volume again.
func (a *app) volumeSalvage() *cobra.Command {
	return &cobra.Command{Use: "salvage NAME [REPLICA…]",
		Short: "Try a faulted volume again with some of its replicas, or all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("the volume's name is missing")
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

// replicaDelete gives a copy up.
func (a *app) replicaDelete() *cobra.Command {
	return &cobra.Command{Use: "delete VOLUME REPLICA", Aliases: []string{"rm"},
		Short: "Delete a copy of a volume; another one is built in its place",
		Args:  exactly("the volume's name", "the replica's name"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return a.completeNames(1, volumeNames)(cmd, args, prefix)
			}
			return a.completeNames(2, replicaNames(args[0]))(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if _, err := api.Volume(cmd.Context(), args[0]); err != nil {
				return named("volume", args[0], err)
			}
			_, err = api.RemoveReplica(cmd.Context(), args[0], args[1])
			if client.IsNotFound(err) {
				return fmt.Errorf("replica %s not found; list replicas with: ankole replica list %s", args[1], args[0])
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "replica %s deleted; follow the volume with: ankole volume watch %s\n", args[1], args[0])
			return nil
		}}
}
