package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// expandApp has the commands about a volume's size.
type expandApp struct{ *app }

// volumeExpand makes a volume larger, or takes back that it should be.
func (a expandApp) volumeExpand() *cobra.Command {
	var size string
	var cancel bool
	var w waiting
	c := &cobra.Command{Use: "expand NAME… --size SIZE", Short: "Make volumes larger, attached or not",
		Long: "Make a volume larger, attached or not. Its block device grows at once; a file system on it is grown with its own\n" +
			"tool, such as resize2fs or xfs_growfs.",
		Example: "  ankole volume expand demo --size 2Gi\n  ankole volume expand demo --cancel",
		Args:    usage.AtLeast(1, "the volume's name"), ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (size == "") == !cancel {
				return usage.Errorf("name the new size, for instance --size 2Gi, or --cancel, and not both")
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error {
				if cancel {
					return a.cancelExpansion(cmd.Context(), api, name, w)
				}
				return a.expandVolume(cmd.Context(), api, name, size, w)
			})
		}}
	c.Flags().StringVar(&size, "size", "", "new size, such as 2Gi")
	c.Flags().BoolVar(&cancel, "cancel", false, "take back an expansion that has not begun")
	w.addTo(c)
	return c
}

// cancelExpansion takes back a wish for a larger size, and tells what has become of it: the engine
// may have been about to fulfil it, and that may already be seen in the answer. What was wished for
// is therefore looked up before.
func (a expandApp) cancelExpansion(ctx context.Context, api *client.Client, name string, w waiting) error {
	before, err := api.Volume(ctx, name)
	if err != nil {
		return named("volume", name, err)
	}
	if _, err := api.CancelExpansion(ctx, name); err != nil {
		return named("volume", name, err)
	}
	if !w.wait {
		fmt.Fprintf(a.out, "the expansion of volume %s is being cancelled\n", name)
		return nil
	}
	v, err := a.awaitSettled(ctx, api, name, w.timeout)
	if err != nil {
		return err
	}
	if v.Size == before.Size {
		return fmt.Errorf("the expansion of volume %s was complete before it was cancelled; it has %s bytes", name, v.Size)
	}
	fmt.Fprintf(a.out, "the expansion of volume %s was cancelled; it has %s bytes\n", name, v.Size)
	return nil
}

// settledEvery is how often a volume is looked at whose expansion is being cancelled.
const settledEvery = 200 * time.Millisecond

// awaitSettled waits until nothing is under way that would give a volume another size. It asks for
// the volume alone: lists and streams do not say what the engine was asked for and has not begun.
func (a expandApp) awaitSettled(ctx context.Context, api *client.Client, name string, timeout time.Duration) (
	v *resource.Volume, err error) {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	text := "nothing is known of it yet"
	err = poll(ctx, timeout, settledEvery, func(ctx context.Context) (bool, error) {
		now, err := api.Volume(ctx, name)
		if err != nil {
			return false, named("volume", name, err)
		}
		v = now
		if hasSettled(v) {
			return true, nil
		}
		percent := output.UnknownPercent
		percent, text = findings.Describe(v)
		line.Set(percent, "volume %s: %s", name, text)
		return false, nil
	}, func() error {
		return fmt.Errorf("volume %s is not of a settled size after %s: it is %s; follow it with: ankole volume watch %s", name,
			timeout, text, name)
	})
	return v, err
}

// expandVolume asks for a size of a volume and, if asked to, waits until it has it.
func (a expandApp) expandVolume(ctx context.Context, api *client.Client, name, size string, w waiting) error {
	v, err := api.ExpandVolume(ctx, name, size)
	if err != nil {
		return named("volume", name, err)
	}
	if w.wait {
		wanted := v.Size
		if v, err = a.await(ctx, api, name, w.timeout, "expanded to "+wanted+" bytes", hasSize); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.out, "volume %s: size %s bytes\n", name, v.Size)
	return nil
}

// hasSize says whether the engine has the size that is wanted of the volume.
func hasSize(v *resource.Volume) (bool, error) {
	wanted, _ := strconv.ParseInt(v.Size, 10, 64)
	for _, e := range v.Controllers {
		if has, _ := strconv.ParseInt(e.Size, 10, 64); has < wanted {
			return false, nil
		}
	}
	return true, nil
}

// hasSettled says whether the volume has the size that is wanted of it, and nothing is under way
// that would give it another one.
func hasSettled(v *resource.Volume) bool {
	for _, e := range v.Controllers {
		if e.IsExpanding || e.Size != v.Size && e.Size != "0" {
			return false
		}
	}
	return !v.ExpansionRequired
}

// volumeTrim gives the space back that the file system on a volume does not use any more.
func (a expandApp) volumeTrim() *cobra.Command {
	return &cobra.Command{Use: "trim NAME…", Short: "Give back space that the mounted file system does not use any more",
		Long: "Give back space that the file system mounted from a volume does not use any more. The command ends when that is\n" +
			"done, which takes a while for a large volume. What a snapshot holds stays until the snapshot is removed.",
		Example: "  ankole volume trim demo",
		Args:    usage.AtLeast(1, "the volume's name"), ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error { return a.trim(cmd.Context(), api, name) })
		}}
}

// trim trims one volume. How far it is nobody can tell, so the line counts the time.
func (a expandApp) trim(ctx context.Context, api *client.Client, name string) error {
	v, err := volumeByName(ctx, api, name)
	if err != nil {
		return err
	}
	line := output.NewLine(a.err, a.terminal)
	line.Set(output.UnknownPercent, "trimming the file system on volume %s, %s", name, output.SizeText(v.Size))
	_, err = api.TrimFilesystem(ctx, name)
	line.Stop()
	if err != nil {
		return named("volume", name, err)
	}
	fmt.Fprintf(a.out, "the file system on volume %s was trimmed\n", name)
	return nil
}
