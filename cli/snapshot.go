package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// snapshotEvery is the pause between two looks at a snapshot that is waited for: the API has no
// stream of snapshots.
const snapshotEvery = 250 * time.Millisecond

// snapshotApp has the commands about snapshots.
type snapshotApp struct{ *app }

func (a snapshotApp) snapshotCommands() *cobra.Command {
	c := &cobra.Command{Use: "snapshot", Aliases: []string{"snapshots", "snap"},
		Short: "Take, list, delete and return to snapshots of volumes"}
	c.AddCommand(a.snapshotCreate(), a.snapshotList(), a.snapshotGet(), a.snapshotDelete(), a.snapshotRevert(),
		a.snapshotPurge())
	return c
}

// snapshotRow is a row of the table of snapshots.
type snapshotRow = resource.SnapshotCR

func snapshotKind(now func() time.Time, volume string) output.Kind[snapshotRow] {
	return output.Kind[snapshotRow]{
		Name: "snapshot", Id: func(s snapshotRow) string { return s.Name },
		None: "no snapshots; take one with: ankole snapshot create " + volume,
		Columns: []output.Column[snapshotRow]{
			{Header: "NAME", Value: func(s snapshotRow) string { return s.Name }},
			{Header: "READY", Value: func(s snapshotRow) string { return output.YesNo(s.ReadyToUse) }},
			{Header: "SIZE", Right: true, Value: func(s snapshotRow) string { return output.Size(s.Size) },
				Number: func(s snapshotRow) float64 { return float64(s.Size) }},
			{Header: "PARENT", Value: func(s snapshotRow) string { return s.Parent }},
			{Header: "BY", Value: madeBy},
			{Header: "AGE", Value: func(s snapshotRow) string { return output.Age(s.CreationTime, now()) },
				Number: func(s snapshotRow) float64 { return output.AgeSeconds(s.CreationTime, now()) }},
			{Header: "NOTE", Value: func(s snapshotRow) string { return snapshotNote(s) }},
			{Header: "CREATED", Wide: true, Value: func(s snapshotRow) string { return s.CreationTime }},
			{Header: "CHECKSUM", Wide: true, Value: func(s snapshotRow) string { return s.Checksum }},
			{Header: "LABELS", Wide: true, Value: func(s snapshotRow) string { return pairs(s.Labels) }},
		},
	}
}

func madeBy(s snapshotRow) string {
	if s.UserCreated || s.CreateSnapshot {
		return "user"
	}
	return "system"
}

// snapshotNote is what a person should know of a snapshot that is not as it should be.
func snapshotNote(s snapshotRow) string {
	switch {
	case s.Error != "":
		return s.Error
	case s.MarkRemoved:
		return "removed; its space comes back with: ankole snapshot purge " + s.Volume
	}
	return ""
}

func (a snapshotApp) snapshotList() *cobra.Command {
	c := &cobra.Command{Use: "list VOLUME", Aliases: []string{"ls"}, Short: "List the snapshots of a volume",
		Args: usage.Exactly("the volume's name"), ValidArgsFunction: a.completeNames(1, volumeNames)}
	s := output.AddSelection(c, snapshotKind(a.now, ""))
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		all, err := api.SnapshotObjects(cmd.Context(), args[0])
		if err != nil {
			return named("volume", args[0], err)
		}
		return showSelected(a.app, snapshotKind(a.now, args[0]), all, s)
	}
	a.addOutput(c)
	return c
}

func (a snapshotApp) snapshotGet() *cobra.Command {
	c := &cobra.Command{Use: "get VOLUME SNAPSHOT…", Short: "Show snapshots",
		Args: usage.AtLeast(2, "the volume's name", "the snapshot's name"), ValidArgsFunction: a.completeSnapshots(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			var rows []snapshotRow
			err = a.each(args[1:], func(name string) error {
				s, err := snapshotOf(cmd.Context(), api, args[0], name)
				if err == nil {
					rows = append(rows, *s)
				}
				return err
			})
			if len(rows) == 0 {
				return err
			}
			return errors.Join(show(a.app, snapshotKind(a.now, args[0]), rows, len(args) == 2), err)
		}}
	a.addOutput(c)
	return c
}

// snapshotOf reads a snapshot of a volume.
func snapshotOf(ctx context.Context, api *client.Client, volume, name string) (*resource.SnapshotCR, error) {
	if _, err := api.Volume(ctx, volume); err != nil {
		return nil, named("volume", volume, err)
	}
	s, err := api.SnapshotObject(ctx, volume, name)
	if err == nil && s.Volume != volume {
		return nil, fmt.Errorf("snapshot %s is one of volume %s", name, s.Volume)
	}
	if client.IsNotFound(err) {
		return nil, fmt.Errorf("snapshot %s not found; list snapshots with: ankole snapshot list %s", name, volume)
	}
	return s, err
}

func (a snapshotApp) snapshotCreate() *cobra.Command {
	var in resource.SnapshotCRInput
	var labels []string
	var w waiting
	c := &cobra.Command{Use: "create VOLUME [SNAPSHOT]", Short: "Take a snapshot of a volume, attached or not",
		Example: "  ankole snapshot create demo before-upgrade --label why=upgrade",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("the volume's name is missing")
			}
			return usage.AtMost(2)(nil, args)
		},
		ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Labels, err = parsePairs("label", labels); err != nil {
				return err
			}
			if len(args) > 1 {
				in.Name = args[1]
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			s, err := api.OrderSnapshot(cmd.Context(), args[0], in)
			if err != nil {
				return named("volume", args[0], err)
			}
			if !w.wait {
				fmt.Fprintf(a.out, "snapshot %s of volume %s ordered\n", s.Name, args[0])
				return nil
			}
			if err := a.awaitSnapshot(cmd.Context(), api, args[0], s.Name, "taken", w.timeout, taken); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "snapshot %s of volume %s taken\n", s.Name, args[0])
			return nil
		}}
	c.Flags().StringSliceVar(&labels, "label", nil, "label KEY=VALUE kept with the snapshot; may be repeated")
	w.addTo(c)
	return c
}

func taken(s *resource.SnapshotCR) bool { return s != nil && s.ReadyToUse }

func (a snapshotApp) snapshotDelete() *cobra.Command {
	var w waiting
	c := &cobra.Command{Use: "delete VOLUME SNAPSHOT…", Short: "Delete snapshots and give their space back, of a detached volume too",
		Args: usage.AtLeast(2, "the volume's name", "the snapshot's name"), ValidArgsFunction: a.completeSnapshots(0)}
	w.addTo(c)
	return a.deleting(c, 1, func(ctx context.Context, api *client.Client, t target) (string, error) {
		s, err := snapshotOf(ctx, api, t.lead[0], t.name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("snapshot %s of volume %s, %s, taken %s", t.name, t.lead[0], output.Size(s.Size),
			output.OrDash(s.CreationTime)), nil
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		if err := api.DeleteSnapshotObject(ctx, t.lead[0], t.name); err != nil {
			return "", err
		}
		kept := "deleted"
		if w.wait {
			err := a.awaitSnapshot(ctx, api, t.lead[0], t.name, "deleted", w.timeout, func(s *resource.SnapshotCR) bool {
				if s != nil && s.MarkRemoved && s.Error != "" && s.Children[volumeHead] {
					kept = s.Error
					return true
				}
				return s == nil
			})
			if err != nil {
				return "", err
			}
		}
		if kept != "deleted" {
			return fmt.Sprintf("snapshot %s of volume %s: %s", t.name, t.lead[0], kept), nil
		}
		return fmt.Sprintf("snapshot %s of volume %s deleted", t.name, t.lead[0]), nil
	})
}

// volumeHead is the name under which the API shows what a volume holds now.
const volumeHead = "volume-head"

// awaitSnapshot looks at a snapshot until done says so; it is given nil for one that is gone.
func (a snapshotApp) awaitSnapshot(ctx context.Context, api *client.Client, volume, name, goal string,
	timeout time.Duration, done func(*resource.SnapshotCR) bool) error {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	why := "nothing is known of it yet"
	return poll(ctx, timeout, snapshotEvery, func(ctx context.Context) (bool, error) {
		s, err := api.SnapshotObject(ctx, volume, name)
		if client.IsNotFound(err) {
			s, err = nil, nil
		}
		switch {
		case err != nil:
			return false, err
		case done(s):
			return true, nil
		case s == nil:
			return false, fmt.Errorf("snapshot %s was deleted before it was %s", name, goal)
		case s.Error != "":
			why = s.Error
			line.Set(output.UnknownPercent, "snapshot %s: %s", name, why)
		}
		return false, nil
	}, func() error {
		return fmt.Errorf("snapshot %s is not %s after %s: %s; follow it with: ankole snapshot get %s %s", name, goal,
			timeout, why, volume, name)
	})
}

func (a snapshotApp) snapshotRevert() *cobra.Command {
	c := &cobra.Command{Use: "revert VOLUME SNAPSHOT", Short: "Make the content of a volume what it was at a snapshot",
		Long: "Make the content of a volume what it was at a snapshot. The volume must be attached for maintenance:\n" +
			"ankole volume attach VOLUME --disable-frontend. What was written since is given up.",
		Args: usage.Exactly("the volume's name", "the snapshot's name"), ValidArgsFunction: a.completeSnapshots(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := a.attachedForSnapshots(cmd.Context(), api, args[0], "--disable-frontend "); err != nil {
				return err
			}
			if err := api.RevertSnapshot(cmd.Context(), args[0], args[1]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "volume %s has the content of snapshot %s\n", args[0], args[1])
			return nil
		}}
	return c
}

// attachedForSnapshots refuses a volume that is not attached, with the command that attaches it.
func (a snapshotApp) attachedForSnapshots(ctx context.Context, api *client.Client, volume, flags string) error {
	v, err := api.Volume(ctx, volume)
	if err != nil {
		return named("volume", volume, err)
	}
	if v.State != "attached" {
		return fmt.Errorf("volume %s is %s; attach it with: ankole volume attach %s%s", volume, v.State, flags, volume)
	}
	return nil
}

func (a snapshotApp) snapshotPurge() *cobra.Command {
	var w waiting
	c := &cobra.Command{Use: "purge VOLUME…", Short: "Give the space of removed snapshots of attached volumes back",
		Args: usage.AtLeast(1, "the volume's name"), ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(volume string) error { return a.purge(cmd.Context(), api, volume, w) })
		}}
	w.addTo(c)
	return c
}

// purge has the snapshots of a volume purged and, if asked to, waits for that.
func (a snapshotApp) purge(ctx context.Context, api *client.Client, volume string, w waiting) error {
	if err := a.attachedForSnapshots(ctx, api, volume, ""); err != nil {
		return err
	}
	if _, err := api.PurgeSnapshots(ctx, volume); err != nil {
		return err
	}
	if !w.wait {
		fmt.Fprintf(a.out, "purge of volume %s ordered\n", volume)
		return nil
	}
	if err := a.awaitPurge(ctx, api, volume, w.timeout); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "snapshots of volume %s purged\n", volume)
	return nil
}

// awaitPurge waits until nothing is left that the purge takes away, and shows its progress.
func (a snapshotApp) awaitPurge(ctx context.Context, api *client.Client, volume string, timeout time.Duration) error {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	why := "nothing is known of it yet"
	return poll(ctx, timeout, snapshotEvery, func(ctx context.Context) (bool, error) {
		left, err := purgeable(ctx, api, volume)
		if err != nil || left == 0 {
			return true, err
		}
		v, err := api.Volume(ctx, volume)
		if err != nil {
			return false, named("volume", volume, err)
		}
		var percent int
		percent, why = purgeText(v, left)
		line.Set(percent, "volume %s: %s", volume, why)
		return false, nil
	}, func() error {
		return fmt.Errorf("volume %s is not purged after %s: %s; look at its snapshots with: ankole snapshot list %s",
			volume, timeout, why, volume)
	})
}

// purgeable counts the removed snapshots that a purge takes away: not the one that the head stands
// on, nor one with several on it.
func purgeable(ctx context.Context, api *client.Client, volume string) (n int, err error) {
	all, err := api.Snapshots(ctx, volume)
	for _, s := range all {
		if s.Removed && !s.Children[volumeHead] && len(s.Children) < 2 {
			n++
		}
	}
	return n, err
}

// purgeText says how far the slowest replica is.
func purgeText(v *resource.Volume, left int) (percent int, text string) {
	percent, text = output.UnknownPercent, output.Count(left, "snapshot")+" to purge"
	for _, p := range v.PurgeStatus {
		switch {
		case p.Error != "":
			text += fmt.Sprintf("; replica %s: %s", p.Replica, p.Error)
		case p.IsPurging && (percent == output.UnknownPercent || p.Progress < percent):
			percent = p.Progress
		}
	}
	return percent, text
}

// completeSnapshots completes the name of a volume, then those of its snapshots, up to so many
// arguments in all; 0: any number.
func (a snapshotApp) completeSnapshots(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return a.completeNames(most, func(ctx context.Context, api *client.Client) ([]string, error) {
				all, err := api.SnapshotObjects(ctx, args[0])
				return namesOf(all, func(s snapshotRow) string { return s.Name }), err
			})(cmd, args, part)
		}
		return a.completeNames(1, volumeNames)(cmd, args, part)
	}
}
