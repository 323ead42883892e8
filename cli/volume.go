package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/api/volumefield"
	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

func (a *app) volumeCommands() *cobra.Command {
	c := &cobra.Command{Use: "volume", Aliases: []string{"volumes", "vol"},
		Short: "Create, attach, watch and delete volumes"}
	size, repair, losses := expandApp{a}, repairApp{a}, lossApp{a}
	c.AddCommand(a.volumeCreate(), a.volumeList(), a.volumeGet(),
		lookApp{a}.describing("a volume", "the volume's name", volumeNames, describeVolume),
		a.volumeAttach(), a.volumeDetach(), a.volumeDelete(), a.volumeWatch(), repair.volumeScale(), a.volumeSetLocality(),
		size.volumeExpand(), size.volumeTrim(), engineApp{a}.volumeUpgrade(), repair.volumeSalvage(),
		losses.volumeAcceptDataLoss(), losses.volumeAcceptBackupDamage())
	return c
}

func (a *app) volumeList() *cobra.Command {
	c := listing(a, view.VolumeKind(a.now), "List volumes",
		func(ctx context.Context, api *client.Client) ([]view.VolumeRow, error) { return api.Volumes(ctx) })
	c.Example = "  ankole volume list --filter robustness=degraded --sort -size"
	return c
}

func volumeByName(ctx context.Context, api *client.Client, name string) (*view.VolumeRow, error) {
	v, err := api.Volume(ctx, name)
	return v, named("volume", name, err)
}

func (a *app) volumeGet() *cobra.Command {
	return getting(a, view.VolumeKind(a.now), "Show volumes", "the volume's name", volumeNames, volumeByName)
}

func (a *app) volumeCreate() *cobra.Command {
	var spec client.VolumeSpec
	var w waiting
	var from string
	c := &cobra.Command{Use: "create NAME --size SIZE", Short: "Create a volume, empty or as a clone",
		Args: usage.Exactly("the volume's name"),
		Example: "  ankole volume create demo --size 1Gi --replicas 3\n" +
			"  ankole volume create copy --from demo --timeout 1h\n  ankole volume create copy --from demo/snapshot",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			if strings.TrimSpace(spec.Size) == "" && from == "" {
				return usage.Errorf("the size is missing; add for instance --size 1Gi")
			}
			n := volumefield.Get("numberOfReplicas")
			if cmd.Flags().Changed("replicas") && !n.Within(int64(spec.NumberOfReplicas)) {
				return usage.Errorf("--replicas %d: a volume has %d to %d replicas", spec.NumberOfReplicas, n.Least, n.Most)
			}
			return a.createVolume(cmd.Context(), spec, from, w)
		}}
	addFieldFlags(c, &spec)
	c.Flags().StringVar(&from, "from", "", "VOLUME or VOLUME/SNAPSHOT whose content the volume is to have; its size is taken")
	w.addTo(c)
	a.addOutput(c)
	return c
}

// addFieldFlags adds the flags of the table of volume fields; what they are given goes to spec.
func addFieldFlags(c *cobra.Command, spec *client.VolumeSpec) {
	for i := range volumefield.All {
		f := &volumefield.All[i]
		if f.Flag == nil {
			continue
		}
		switch field := f.In(spec).Addr().Interface().(type) {
		case *string:
			c.Flags().StringVar(field, f.Flag.Name, "", f.Flag.Usage)
		case *int:
			c.Flags().IntVar(field, f.Flag.Name, 0, f.Flag.Usage)
		case *bool:
			c.Flags().BoolVar(field, f.Flag.Name, false, f.Flag.Usage)
		case *[]string:
			c.Flags().StringSliceVar(field, f.Flag.Name, nil, f.Flag.Usage)
		default:
			panic("cli: no flag can set volume field " + f.Name)
		}
		if f.Words != nil {
			_ = c.RegisterFlagCompletionFunc(f.Flag.Name,
				cobra.FixedCompletions(f.Words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// createVolume creates a volume; from is what it is a clone of, empty for none.
func (a *app) createVolume(ctx context.Context, spec client.VolumeSpec, from string, w waiting) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	if from != "" {
		if err := cloneFrom(ctx, api, &spec, from); err != nil {
			return err
		}
	}
	v, err := api.CreateVolume(ctx, spec)
	if err != nil {
		return err
	}
	if w.wait {
		v, err = a.await(ctx, api, v.Name, w.timeout, "created", func(v *resource.Volume) (bool, error) {
			if from != "" {
				return cloned(v)
			}
			return v.State == "detached" && placed(v) || v.State == "attached", nil
		})
		if err != nil {
			return err
		}
		if n := findings.Note(*v); n != "" {
			fmt.Fprintf(a.err, "warning: %s\n", n)
		}
	}
	if a.output == output.Plain {
		fmt.Fprintf(a.out, "volume %s created (%s, %d replicas); attach it with: ankole volume attach %s\n", v.Name,
			output.SizeText(v.Size), v.NumberOfReplicas, v.Name)
		return nil
	}
	return show(a, view.VolumeKind(a.now), []view.VolumeRow{*v}, true)
}

func (a *app) volumeAttach() *cobra.Command {
	var node string
	var noFrontend bool
	var w waiting
	c := &cobra.Command{Use: "attach NAME…", Short: "Attach volumes to a node and print their endpoints",
		Args:              usage.AtLeast(1, "the volume's name"),
		Example:           "  ankole volume attach demo --node node-1",
		ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error {
				v, err := a.attachVolume(cmd.Context(), api, name, node, noFrontend, w)
				if err != nil {
					return err
				}
				return a.showAttached(v)
			})
		}}
	c.Flags().StringVar(&node, "node", "", "node to attach to (default: the node it is on, or a ready one)")
	c.Flags().BoolVar(&noFrontend, "disable-frontend", false, "attach for maintenance, without an endpoint")
	_ = c.RegisterFlagCompletionFunc("node", a.completeNames(0, nodeNames))
	w.addTo(c)
	a.addOutput(c)
	return c
}

// attachVolume attaches and, if asked to, waits until the endpoint is there.
func (a *app) attachVolume(ctx context.Context, api *client.Client, name, node string, noFrontend bool,
	w waiting) (*resource.Volume, error) {
	v, err := api.Volume(ctx, name)
	if err != nil {
		return nil, named("volume", name, err)
	}
	if node == "" {
		if node, err = chooseNode(ctx, api, v); err != nil {
			return nil, err
		}
	}
	v, err = api.AttachVolume(ctx, name, resource.AttachInput{HostID: node, DisableFrontend: noFrontend,
		AttachedBy: "ankole"})
	if client.IsNotFound(err) {
		if _, gone := api.Volume(ctx, name); gone != nil {
			return nil, named("volume", name, gone)
		}
		return nil, &missing{"node", node}
	}
	if err != nil || !w.wait {
		return v, err
	}
	goal := "attached"
	if noFrontend {
		goal = "attached without a frontend"
	}
	return a.await(ctx, api, name, w.timeout, goal, func(v *resource.Volume) (bool, error) {
		if v.Robustness == "faulted" {
			return false, errors.New("the volume is faulted: none of its replicas can be used; look at them with: " +
				"ankole replica list " + name)
		}
		here := v.Migratable || findings.AttachedTo(*v) == node // a volume that migrates is on two nodes
		// For another ticket the volume may be there already, with the frontend that this one is without.
		return v.State == "attached" && here && (view.Endpoint(*v) == "") == noFrontend, nil
	})
}

func (a *app) showAttached(v *resource.Volume) error {
	if a.output != output.Plain {
		return show(a, view.VolumeKind(a.now), []view.VolumeRow{*v}, true)
	}
	at := view.Endpoint(*v)
	if at == "" {
		fmt.Fprintf(a.out, "volume %s is %s; follow it with: ankole volume watch %s\n", v.Name, v.State, v.Name)
		return nil
	}
	fmt.Fprintf(a.out, "volume %s attached to %s, %s\n%s\n", v.Name, findings.AttachedTo(*v), v.Robustness, at)
	return nil
}

// chooseNode picks where to attach a volume: where it is wanted already, or a ready node with one
// of its replicas, or any ready node.
func chooseNode(ctx context.Context, api *client.Client, v *resource.Volume) (string, error) {
	if t, ok := v.VolumeAttachment.Attachments[""]; ok {
		return t.NodeID, nil
	}
	nodes, err := api.Nodes(ctx)
	if err != nil {
		return "", err
	}
	var ready []string
	for _, n := range nodes {
		if n.Conditions["Ready"].Status == "True" {
			ready = append(ready, n.Name)
		}
	}
	if len(ready) == 0 {
		return "", errors.New("no node is ready; look at them with: ankole node list")
	}
	holds := func(node string) bool {
		return slices.ContainsFunc(v.Replicas, func(r resource.Replica) bool { return r.HostID == node && r.FailedAt == "" })
	}
	sort.SliceStable(ready, func(i, j int) bool { return holds(ready[i]) && !holds(ready[j]) })
	return ready[0], nil
}

func (a *app) volumeDetach() *cobra.Command {
	var in resource.DetachInput
	var w waiting
	c := &cobra.Command{Use: "detach NAME…", Short: "Detach volumes", Args: usage.AtLeast(1, "the volume's name"),
		ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error { return a.detachVolume(cmd.Context(), api, name, in, w) })
		}}
	c.Flags().BoolVar(&in.ForceDetach, "force", false, "withdraw every attachment ticket, those of workloads too")
	w.addTo(c)
	return c
}

// detachVolume withdraws tickets of a volume and, if asked to, waits until it is detached.
func (a *app) detachVolume(ctx context.Context, api *client.Client, name string, in resource.DetachInput,
	w waiting) error {
	v, err := api.DetachVolume(ctx, name, in)
	if err != nil {
		return named("volume", name, err)
	}
	if others := output.SortedKeys(v.VolumeAttachment.Attachments); len(others) > 0 {
		fmt.Fprintf(a.out, "volume %s is not attached by hand any more; it stays attached for %s; withdraw every ticket "+
			"with --force\n", name, describeTickets(v))
		return nil
	}
	if w.wait {
		if _, err := a.await(ctx, api, name, w.timeout, "detached", func(v *resource.Volume) (bool, error) {
			return v.State == "detached", nil
		}); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.out, "volume %s detached\n", name)
	return nil
}

func describeTickets(v *resource.Volume) string {
	var who []string
	for _, id := range output.SortedKeys(v.VolumeAttachment.Attachments) {
		t := v.VolumeAttachment.Attachments[id]
		who = append(who, fmt.Sprintf("%s on %s", t.AttachmentType, t.NodeID))
	}
	return strings.Join(who, ", ")
}

func (a *app) volumeDelete() *cobra.Command {
	var w waiting
	c := &cobra.Command{Use: "delete NAME…", Short: "Delete volumes and all their data", Args: usage.AtLeast(1,
		"the volume's name"),
		ValidArgsFunction: a.completeNames(0, volumeNames)}
	w.addTo(c)
	return a.deleting(c, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
		v, err := volumeByName(ctx, api, t.name)
		if err != nil {
			return "", err
		}
		snapshots, err := api.SnapshotObjects(ctx, t.name)
		if err != nil {
			return "", named("volume", t.name, err)
		}
		return "volume " + t.name + " with all its data: " + whatVolume(v) + whatSnapshots(snapshots), nil
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		if err := api.DeleteVolume(ctx, t.name); err != nil {
			return "", named("volume", t.name, err)
		}
		if w.wait {
			if err := a.awaitGone(ctx, api, t.name, w.timeout); err != nil {
				return "", err
			}
		}
		return "volume " + t.name + " deleted", nil
	})
}

// whatVolume says what is lost with a volume, and who still uses it.
func whatVolume(v *resource.Volume) string {
	text := output.SizeText(v.Size) + ", " + v.State
	if at := findings.AttachedTo(*v); at != "" {
		text += " to " + at
	}
	if k := v.KubernetesStatus; k.PVCName != "" {
		text += ", claim " + k.Namespace + "/" + k.PVCName
	}
	return text
}

// placed says whether it is known if the replicas of a new volume have places: worth a wait, but
// where one is to be on the node that the volume is attached to first.
func placed(v *resource.Volume) bool {
	return v.Conditions["Scheduled"].Status != "" || v.DataLocality != "" && v.DataLocality != localities[0]
}

// whatSnapshots says which snapshots that VolumeSnapshots stand on are lost with their volume.
func whatSnapshots(all []resource.SnapshotCR) string {
	var names []string
	for i := range all {
		if s := &all[i]; !s.MarkRemoved && s.OrderedByCSI {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", with snapshots that VolumeSnapshots stand on: " + strings.Join(names, ", ")
}

func (a *app) volumeWatch() *cobra.Command {
	c := &cobra.Command{Use: "watch [NAME]", Short: "Print every change of a volume, or of all", Args: usage.AtMost(1),
		ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
				if _, err := api.Volume(cmd.Context(), name); err != nil {
					return named("volume", name, err)
				}
			}
			err = a.watch(cmd.Context(), api, name)
			if cmd.Context().Err() != nil {
				return nil // Interrupting is how a watch ends.
			}
			return err
		}}
	return c
}

// cloneFrom makes a volume's spec one of a clone: from is VOLUME or VOLUME/SNAPSHOT, or a data
// source as the API has it. The size is the source's.
func cloneFrom(ctx context.Context, api *client.Client, spec *client.VolumeSpec, from string) error {
	source := findings.SourceText(from)
	volume, _, hasSnapshot := strings.Cut(source, "/")
	spec.DataSource = "vol://" + source
	if hasSnapshot {
		spec.DataSource = "snap://" + source
	}
	v, err := api.Volume(ctx, volume)
	if err != nil {
		return named("volume", volume, err)
	}
	if spec.Size == "" {
		spec.Size = v.Size
	}
	return nil
}

// cloned says whether a clone holds its content.
func cloned(v *resource.Volume) (bool, error) {
	if v.CloneStatus.State == "failed" && v.CloneStatus.NextAllowedAttemptAt == "" {
		return false, fmt.Errorf("volume %s could not be cloned from %s in %d attempts; look why with: ankole event list --for volume/%s, "+
			"and delete it with: ankole volume delete %s", v.Name, findings.SourceText(v.DataSource), v.CloneStatus.AttemptCount,
			v.Name, v.Name)
	}
	_, _, copying := findings.CloneText(v)
	return !copying, nil
}
