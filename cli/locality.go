package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/api/volumefield"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// localities are the modes of data locality.
var localities = volumefield.Get("dataLocality").Words

// volumeSetLocality changes whether a volume has a replica on the node where it is attached.
func (a *app) volumeSetLocality() *cobra.Command {
	var w waiting
	complete := a.completeNames(0, volumeNames)
	c := &cobra.Command{Use: "set-locality NAME… disabled|best-effort|strict-local",
		Short: "Set whether volumes are to have a replica on the node where they are attached",
		Long: "Set whether a volume is to have a replica on the node where it is attached. With best-effort one is built there,\n" +
			"and then one elsewhere is removed; the volume stays in use, also where there is no room for a replica. With disabled\n" +
			"replicas stay where they are. To and from strict-local, for volumes of one replica, a volume is changed while it is\n" +
			"detached.",
		Example: "  ankole volume set-locality demo best-effort",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage.Exactly("the volume's name", "the data locality")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			names, directive := complete(cmd, args, prefix)
			if len(args) > 0 {
				names = append(names, localities...)
			}
			return names, directive
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, locality := args[:len(args)-1], args[len(args)-1]
			if !slices.Contains(localities, locality) {
				return usage.Errorf("the data locality %q is none of %s", locality, strings.Join(localities, ", "))
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(names, func(name string) error { return a.setLocality(cmd.Context(), api, name, locality, w) })
		}}
	w.addTo(c)
	return c
}

// setLocality sets the data locality of a volume and, if asked to, waits for what follows from it.
func (a *app) setLocality(ctx context.Context, api *client.Client, name, locality string, w waiting) error {
	v, err := api.UpdateDataLocality(ctx, name, locality)
	if err != nil {
		return named("volume", name, err)
	}
	if w.wait && locality == "best-effort" {
		if v, err = a.await(ctx, api, name, w.timeout, "where it is attached", settledLocality); err != nil {
			return err
		}
	}
	if why := v.Conditions["Scheduled"]; w.wait && cannotBeLocal(v) {
		fmt.Fprintf(a.err, "warning: there is no replica on %s yet: %s\n", findings.AttachedTo(*v), why.Message)
	}
	fmt.Fprintf(a.out, "volume %s: data locality %s%s\n", name, v.DataLocality, whereReplicas(v))
	return nil
}

// settledLocality says whether a best-effort volume has all its replicas in sync, one of them on
// its node, and none too many; or cannot have it so now; or is not in use.
func settledLocality(v *resource.Volume) (bool, error) {
	if v.DataLocality != "best-effort" {
		return false, fmt.Errorf("data locality of volume %s is %s: somebody else has changed it", v.Name, v.DataLocality)
	}
	if v.State != "attached" || v.DisableFrontend || cannotBeLocal(v) {
		return v.State == "attached" || v.State == "detached", nil
	}
	return isLocal(v) && findings.InSync(v) == v.NumberOfReplicas && len(v.Replicas) == v.NumberOfReplicas, nil
}

// isLocal says whether a replica in sync is on the node where the volume is attached.
func isLocal(v *resource.Volume) bool {
	return slices.ContainsFunc(v.Replicas, func(r resource.Replica) bool {
		return r.Mode == "RW" && r.HostID == findings.AttachedTo(*v)
	})
}

// cannotBeLocal says whether there is no place for a replica on the node of the volume.
func cannotBeLocal(v *resource.Volume) bool {
	c := v.Conditions["Scheduled"]
	return v.State == "attached" && c.Status == "False" && c.Reason == "LocalReplicaSchedulingFailure"
}

// whereReplicas names the nodes of an attached volume's replicas.
func whereReplicas(v *resource.Volume) string {
	var nodes []string
	for _, r := range v.Replicas {
		if r.HostID != "" {
			nodes = append(nodes, r.HostID)
		}
	}
	if v.State != "attached" || len(nodes) == 0 {
		return ""
	}
	slices.Sort(nodes)
	return fmt.Sprintf("; attached to %s, replicas on %s", findings.AttachedTo(*v), strings.Join(nodes, ", "))
}
