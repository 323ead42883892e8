package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"ankole.storage/rest/resource"
)

// volumeExpand makes a volume larger, or takes back that it should be.
func (a *app) volumeExpand() *cobra.Command {
	var size string
	var cancel bool
	var w waiting
	c := &cobra.Command{Use: "expand NAME --size SIZE", Short: "Make a volume larger, attached or not",
		Long: "Make a volume larger, attached or not. Its block device grows at once; a file system on it is grown with its own\n" +
			"tool, such as resize2fs or xfs_growfs.",
		Example: "  ankole volume expand demo --size 2Gi\n  ankole volume expand demo --cancel",
		Args:    exactly("the volume's name"), ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (size == "") == !cancel {
				return usagef("name the new size, for instance --size 2Gi, or --cancel, and not both")
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			if cancel {
				v, err := api.CancelExpansion(cmd.Context(), args[0])
				if err != nil {
					return named("volume", args[0], err)
				}
				fmt.Fprintf(a.out, "the expansion of volume %s was cancelled; it has %s bytes\n", args[0], v.Size)
				return nil
			}
			v, err := api.ExpandVolume(cmd.Context(), args[0], size)
			if err != nil {
				return named("volume", args[0], err)
			}
			if w.wait {
				wanted := v.Size
				if v, err = a.await(cmd.Context(), api, args[0], w.timeout, "expanded to "+wanted+" bytes", hasSize); err != nil {
					return err
				}
			}
			fmt.Fprintf(a.out, "volume %s: size %s bytes\n", args[0], v.Size)
			return nil
		}}
	c.Flags().StringVar(&size, "size", "", "new size, such as 2Gi")
	c.Flags().BoolVar(&cancel, "cancel", false, "take back an expansion that has not begun")
	w.addTo(c)
	return c
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
