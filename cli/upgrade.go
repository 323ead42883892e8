package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// volumeUpgrade brings a volume to another engine image.
func (a engineApp) volumeUpgrade() *cobra.Command {
	var image string
	var w waiting
	c := &cobra.Command{Use: "upgrade NAME…", Short: "Bring volumes to another engine image, attached or not",
		Long: "Bring a volume to another engine image: without --image to the default one. An attached volume stays in use; its\n" +
			"users notice a pause. While an upgrade is under way, naming the image that the volume had takes it back.",
		Example: "  ankole volume upgrade demo\n  ankole volume upgrade demo --image ankole/engine:v2 --wait",
		Args:    usage.AtLeast(1, "the volume's name"), ValidArgsFunction: a.completeNames(0, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if image == "" {
				if image, err = defaultImage(cmd.Context(), api); err != nil {
					return err
				}
			}
			return a.each(args, func(name string) error { return a.upgrade(cmd.Context(), api, name, image, w) })
		}}
	c.Flags().StringVar(&image, "image", "", "engine image (default: the default engine image)")
	w.addTo(c)
	return c
}

// upgrade brings one volume to an image.
func (a engineApp) upgrade(ctx context.Context, api *client.Client, name, image string, w waiting) error {
	v, err := api.UpgradeEngine(ctx, name, image)
	if err != nil {
		return named("volume", name, err)
	}
	if w.wait {
		if v, err = a.await(ctx, api, name, w.timeout, "upgraded to "+image, hasImage(image)); err != nil {
			return err
		}
	}
	if v.CurrentImage != v.Image {
		fmt.Fprintf(a.out, "volume %s is being upgraded from %s to %s\n", name, v.CurrentImage, v.Image)
		return nil
	}
	fmt.Fprintf(a.out, "volume %s: engine image %s\n", name, v.CurrentImage)
	return nil
}

// defaultImage asks for the image of new volumes.
func defaultImage(ctx context.Context, api *client.Client) (string, error) {
	images, err := api.EngineImages(ctx)
	if err != nil {
		return "", err
	}
	for _, i := range images {
		if i.Default {
			return i.Image, nil
		}
	}
	return "", errors.New("the cluster has no default engine image; name one with --image")
}

// hasImage says whether a volume has come to an image; an error if that is not wanted any more.
func hasImage(image string) func(*resource.Volume) (bool, error) {
	return func(v *resource.Volume) (bool, error) {
		if v.Image != image {
			return false, fmt.Errorf("volume %s stays with engine image %s: %s", v.Name, v.CurrentImage,
				v.Conditions["EngineUpgrade"].Message)
		}
		return v.CurrentImage == image, nil
	}
}
