package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// lossApp has the commands about what a person decides about lost data.
type lossApp struct{ *app }

// volumeAcceptDataLoss shows what copies there are of a volume, and writes down that a person goes
// on with some of them.
func (a lossApp) volumeAcceptDataLoss() *cobra.Command {
	var members []string
	var yes bool
	c := &cobra.Command{Use: "accept-data-loss NAME [--copy DIRECTORY…]",
		Short: "Go on with old copies of a volume whose newest ones are lost for good",
		Long: "Show which copies of a volume there are and which of them hold every acknowledged write. With --copy, go on with\n" +
			"those: what was written since they were in sync is lost. Only the next start of the volume takes that, only if it\n" +
			"cannot start otherwise, and only if no engine has served the volume since the copies were shown.",
		Example: "  ankole volume accept-data-loss demo\n  ankole volume accept-data-loss demo --copy demo-1a2b3c4d",
		Args:    usage.Exactly("the volume's name"), ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			shown, err := api.DataLoss(cmd.Context(), args[0])
			if err != nil {
				return named("volume", args[0], err)
			}
			a.showCopies(shown)
			if len(members) == 0 || shown.Refused != "" {
				return refusedLoss(shown)
			}
			fmt.Fprintln(a.out, whatIsLost(shown, members))
			if !yes {
				fmt.Fprintf(a.out, "Type the volume's name to accept that: ")
				line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // an end without a name is no
				if strings.TrimSpace(line) != args[0] {
					return fmt.Errorf("not accepted; nothing was changed")
				}
			}
			return a.acceptLoss(cmd.Context(), api, shown, members)
		}}
	c.Flags().StringArrayVar(&members, "copy", nil, "data directory of a copy to go on with; may be repeated")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func refusedLoss(shown *resource.DataLoss) error {
	if shown.Refused != "" {
		return fmt.Errorf("volume %s: %s", shown.Volume, shown.Refused)
	}
	return nil
}

func (a lossApp) acceptLoss(ctx context.Context, api *client.Client, shown *resource.DataLoss, members []string) error {
	_, err := api.AcceptDataLoss(ctx, shown.Volume, resource.AcceptDataLossInput{Members: members,
		RecordEpoch: shown.RecordEpoch, Generation: shown.Generation})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "accepted for record %d/%d; attach the volume with: ankole volume attach %s\n", shown.RecordEpoch,
		shown.Generation, shown.Volume)
	return nil
}

// showCopies prints what there is.
func (a lossApp) showCopies(shown *resource.DataLoss) {
	fmt.Fprintf(a.out, "volume %s, record %d/%d: every acknowledged write is held by %s\n", shown.Volume, shown.RecordEpoch,
		shown.Generation, orNobody(shown.Members))
	for _, c := range shown.Copies {
		state := "lacks writes"
		switch {
		case c.LastInSync == "":
			state = "never in sync"
		case c.Current:
			state = "current"
		case slices.Contains(shown.Members, c.Member):
			state = "damaged"
		}
		ready := "ready"
		if !c.NodeReady {
			ready = "not ready"
		}
		fmt.Fprintf(a.out, "  %s  %s (%s)  %s  last in sync %s  failed at %s\n", c.Member, output.OrDash(c.NodeID), ready,
			state, output.OrDash(c.LastInSync), output.OrDash(c.FailedAt))
		if c.Problem != "" {
			fmt.Fprintf(a.out, "    what it holds is not known: %s\n", c.Problem)
		}
	}
	if shown.Problem != "" {
		fmt.Fprintf(a.out, "the last engine: %s\n", shown.Problem)
	}
	if len(shown.Decided) > 0 {
		fmt.Fprintf(a.out, "decided already: go on with %s\n", strings.Join(shown.Decided, ", "))
	}
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "nobody (there is no record)"
	}
	return strings.Join(names, ", ")
}

// whatIsLost says what going on with some copies gives up.
func whatIsLost(shown *resource.DataLoss, members []string) string {
	var given []string
	for _, m := range shown.Members {
		if !slices.Contains(members, m) {
			given = append(given, m)
		}
	}
	oldest := ""
	for _, c := range shown.Copies {
		if slices.Contains(members, c.Member) && !c.Current && (oldest == "" || c.LastInSync < oldest) {
			oldest = c.LastInSync
		}
	}
	text := "Given up: " + orNobody(given) + "."
	if oldest != "" {
		text += " Lost: writes that were acknowledged after " + oldest + " and that only they hold."
	}
	return text
}

// volumeAcceptBackupDamage shows what a volume lacks of its backup, and writes down that a person
// accepts that, or knows it.
func (a lossApp) volumeAcceptBackupDamage() *cobra.Command {
	var yes bool
	c := &cobra.Command{Use: "accept-backup-damage NAME",
		Short: "Restore a volume though its backup is damaged, activate a standby volume without it, or acknowledge the loss",
		Long: "Of a volume that is being restored: accept that what the backup target does not have any more becomes zero,\n" +
			"in this restore. Without that the restore fails, and is tried again. Of a volume that was restored so: say that\n" +
			"it is known which ranges are zero. The volume tells them until then. Of a standby volume that is being activated\n" +
			"and cannot take the newest backup, since its backup target is gone or damaged: activate it with the backup that\n" +
			"it holds.",
		Example: "  ankole volume accept-backup-damage restored",
		Args:    usage.Exactly("the volume's name"), ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			shown, err := api.BackupDamage(cmd.Context(), args[0])
			if err != nil {
				return named("volume", args[0], err)
			}
			return a.decideDamage(cmd.Context(), api, shown, cmd.InOrStdin(), yes)
		}}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func (a lossApp) decideDamage(ctx context.Context, api *client.Client, shown *resource.BackupDamage, in io.Reader,
	yes bool) error {
	decision, done := resource.DecisionAcknowledge, "acknowledged"
	switch {
	case shown.Refused != "":
		return fmt.Errorf("volume %s: %s", shown.Volume, shown.Refused)
	case shown.Accepted:
		fmt.Fprintf(a.out, "volume %s is being restored, and damage is accepted already\n", shown.Volume)
		return nil
	case shown.Activating:
		decision, done = resource.DecisionAccept, "accepted; follow the activation with: ankole volume watch "+shown.Volume
		fmt.Fprintf(a.out, "volume %s is being activated; the last attempt to take the newest backup: %s\nIt is activated with "+
			"backup %s, which it holds.\n", shown.Volume, output.OrDash(shown.Problem), shown.Held)
	case shown.Restoring:
		decision, done = resource.DecisionAccept, "accepted; follow the restore with: ankole volume watch "+shown.Volume
		fmt.Fprintf(a.out, "volume %s is being restored; the last attempt: %s\nWhat the backup target does not have becomes "+
			"zero.\n", shown.Volume, output.OrDash(shown.Problem))
	default:
		fmt.Fprintf(a.out, "volume %s: %s\n", shown.Volume, shown.Damage)
	}
	if !yes {
		fmt.Fprintf(a.out, "Type the volume's name to accept that: ")
		line, _ := bufio.NewReader(in).ReadString('\n') // an end without a name is no
		if strings.TrimSpace(line) != shown.Volume {
			return fmt.Errorf("not accepted; nothing was changed")
		}
	}
	if _, err := api.DecideBackupDamage(ctx, shown.Volume, resource.BackupDamageInput{Decision: decision}); err != nil {
		return err
	}
	fmt.Fprintln(a.out, done)
	return nil
}

// acceptDamage accepts it for a volume that was just ordered.
func acceptDamage(ctx context.Context, api *client.Client, volume string) error {
	_, err := api.DecideBackupDamage(ctx, volume, resource.BackupDamageInput{Decision: resource.DecisionAccept})
	if err != nil {
		return fmt.Errorf("volume %s is ordered, and damage is not accepted yet: %w; accept it with: ankole volume "+
			"accept-backup-damage %s", volume, err, volume)
	}
	return nil
}

// tellDamage says what a volume that was restored lacks of its backup.
func (a *app) tellDamage(v *resource.Volume) {
	if c := v.Conditions["BackupDamage"]; c.Status == "True" {
		fmt.Fprintf(a.out, "volume %s is not whole: %s\nacknowledge that with: ankole volume accept-backup-damage %s\n",
			v.Name, c.Message, v.Name)
	}
}
