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

// engineImageRow is an engine image with the volumes that have it, and those that are on their way
// to it or away from it.
type engineImageRow struct {
	resource.EngineImage
	// Volumes have the image, of Total volumes in all.
	Volumes int `json:"volumes"`
	Total   int `json:"total"`
	// Coming are being upgraded to it, Leaving from it to another one.
	Coming  int `json:"coming"`
	Leaving int `json:"leaving"`
}

var engineImageKind = output.Kind[engineImageRow]{
	Name: "engine-image", Id: func(i engineImageRow) string { return i.Name },
	None: "no engine images; the manager makes that of its default engine image by itself",
	Columns: []output.Column[engineImageRow]{
		{Header: "IMAGE", Value: func(i engineImageRow) string { return i.Image }},
		{Header: "DEFAULT", Value: func(i engineImageRow) string { return output.YesNo(i.Default) }},
		{Header: "STATE", Value: func(i engineImageRow) string { return i.State }},
		{Header: "NODES", Right: true, Value: func(i engineImageRow) string { return findings.DeployedNodes(i.EngineImage) }},
		{Header: "VOLUMES", Right: true, Value: func(i engineImageRow) string {
			return fmt.Sprintf("%d of %d", i.Volumes, i.Total)
		}},
		{Header: "UPGRADING", Value: underWay},
		{Header: "VERSION", Wide: true, Value: func(i engineImageRow) string { return i.Version }},
		{Header: "COMMIT", Wide: true, Value: func(i engineImageRow) string { return i.GitCommit }},
		{Header: "CONTROLLER API", Wide: true, Value: func(i engineImageRow) string {
			return fmt.Sprintf("%d to %d", i.ControllerAPIMinVersion, i.ControllerAPIVersion)
		}},
		{Header: "USED BY", Wide: true, Right: true, Value: func(i engineImageRow) string {
			return strconv.Itoa(i.RefCount)
		}},
		{Header: "NAME", Value: func(i engineImageRow) string { return i.Name }},
	},
}

// engineApp has the commands about engine images and upgrades to them.
type engineApp struct{ *app }

// underWay says how many volumes come and go.
func underWay(i engineImageRow) string {
	switch {
	case i.Coming > 0 && i.Leaving > 0:
		return fmt.Sprintf("%d come, %d leave", i.Coming, i.Leaving)
	case i.Coming > 0:
		return fmt.Sprintf("%d come", i.Coming)
	case i.Leaving > 0:
		return fmt.Sprintf("%d leave", i.Leaving)
	}
	return ""
}

// engineImageRows counts the volumes of each image. A volume counts for the image that its engine
// runs, or is started from next, until an upgrade has ended.
func engineImageRows(images []resource.EngineImage, volumes []resource.Volume) []engineImageRow {
	var rows []engineImageRow
	for _, image := range images {
		row := engineImageRow{EngineImage: image, Total: len(volumes)}
		for _, v := range volumes {
			moves := v.CurrentImage != "" && v.CurrentImage != v.Image
			switch {
			case v.CurrentImage == image.Image || v.CurrentImage == "" && v.Image == image.Image:
				row.Volumes++
				if moves {
					row.Leaving++
				}
			case moves && v.Image == image.Image:
				row.Coming++
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func engineImageNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.EngineImages(ctx)
	return namesOf(all, func(i resource.EngineImage) string { return i.Name }), err
}

func (a engineApp) engineImageCommands() *cobra.Command {
	c := &cobra.Command{Use: "engine-image", Aliases: []string{"engine-images"},
		Short: "Look at the versions of the data path's programs"}
	list := listing(a.app, engineImageKind, "List engine images, with the progress of upgrades to them",
		func(ctx context.Context, api *client.Client) ([]engineImageRow, error) {
			images, err := api.EngineImages(ctx)
			if err != nil {
				return nil, err
			}
			volumes, err := api.Volumes(ctx)
			return engineImageRows(images, volumes), err
		})
	list.Long = "List engine images. VOLUMES says how many of all volumes have an image, UPGRADING how many are being upgraded to\n" +
		"it or from it. With setting concurrent-automatic-engine-upgrade-per-node-limit above 0 volumes go to the default\n" +
		"image by themselves, so many of a node at once; otherwise see: ankole volume upgrade --help"
	get := getting(a.app, engineImageKind, "Show engine images, by name or by image", "the engine image's name",
		engineImageNames,
		func(ctx context.Context, api *client.Client, name string) (*engineImageRow, error) {
			i, _, err := engineImageByName(ctx, api, name)
			return i, err
		})
	c.AddCommand(list, get, lookApp(a).describing("an engine image", "the engine image's name", engineImageNames,
		describeEngineImage),
		a.engineImageCreate(), a.engineImageDelete())
	return c
}

// imageEvery is the pause between two looks at an engine image that is being put on the nodes.
const imageEvery = 500 * time.Millisecond

func (a engineApp) engineImageCreate() *cobra.Command {
	var w waiting
	c := &cobra.Command{Use: "create IMAGE", Short: "Put an engine image on the nodes, so that volumes can be upgraded to it",
		Args: usage.Exactly("the image"), Example: "  ankole engine-image create ankole/engine:v2",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			i, err := api.CreateEngineImage(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !w.wait {
				fmt.Fprintf(a.out, "engine image %s is being put on the nodes; see how far it is with: ankole engine-image list\n",
					i.Name)
				return nil
			}
			if err := a.awaitImage(cmd.Context(), api, i.Name, w.timeout); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "engine image %s is deployed; bring a volume to it with: ankole volume upgrade NAME --image %s\n",
				i.Name, args[0])
			return nil
		}}
	w.addTo(c)
	return c
}

// awaitImage waits until an engine image is deployed.
func (a engineApp) awaitImage(ctx context.Context, api *client.Client, name string, timeout time.Duration) error {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	why := "nothing is known of it yet"
	return poll(ctx, timeout, imageEvery, func(ctx context.Context) (bool, error) {
		i, err := findImage(ctx, api, name)
		switch {
		case err != nil:
			return true, err
		case i.State == "deployed" && i.Incompatible:
			return true, fmt.Errorf("engine image %s is deployed, and no volume can have it: it is %s; see: "+
				"ankole engine-image describe %s", name, findings.Incompatible, name)
		case i.State == "deployed":
			return true, nil
		}
		why = "it is " + output.OrUnknown(i.State) + ", on " + findings.DeployedNodes(*i) + " nodes"
		line.Set(output.UnknownPercent, "engine image %s: %s", name, why)
		return false, nil
	}, func() error {
		return fmt.Errorf("engine image %s is not deployed after %s: %s; see why with: ankole engine-image describe %s",
			name, timeout, why, name)
	})
}

func (a engineApp) engineImageDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete NAME…", Short: "Take engine images that nothing uses off the nodes",
		Args: usage.AtLeast(1, "the engine image's name"), ValidArgsFunction: a.completeNames(0, engineImageNames)}
	return a.deleting(c, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
		i, err := findImage(ctx, api, t.name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("engine image %s: %s, used by %d", i.Name, i.Image, i.RefCount), nil
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		i, err := findImage(ctx, api, t.name)
		if err != nil {
			return "", err
		}
		return "engine image " + i.Name + " is being removed", api.DeleteEngineImage(ctx, i.Name)
	})
}
