package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
)

// volumeTrim gives the space back that the file system on a volume does not use any more.
func (a *app) volumeTrim() *cobra.Command {
	return &cobra.Command{Use: "trim NAME…", Short: "Give back space that the mounted file system does not use any more",
		Long: "Give back space that the file system mounted from a volume does not use any more. The command ends when that is\n" +
			"done, which takes a while for a large volume. What a snapshot holds stays until the snapshot is removed.",
		Example: "  ankole volume trim demo",
		Args:    atLeast(1, "the volume's name"), ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error { return a.trim(cmd.Context(), api, name) })
		}}
}

// trim trims one volume. How far it is nobody can tell, so the line counts the time.
func (a *app) trim(ctx context.Context, api *client.Client, name string) error {
	v, err := volumeByName(ctx, api, name)
	if err != nil {
		return err
	}
	line := newProgress(a.err, a.terminal)
	line.set(unknownPercent, "trimming the file system on volume %s, %s", name, sizeText(v.Size))
	_, err = api.TrimFilesystem(ctx, name)
	line.stop()
	if err != nil {
		return named("volume", name, err)
	}
	fmt.Fprintf(a.out, "the file system on volume %s was trimmed\n", name)
	return nil
}
