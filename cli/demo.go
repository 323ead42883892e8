package cli

import (
	"github.com/spf13/cobra"

	"ankole.storage/cli/demo"
)

func (a *app) demoCommand() *cobra.Command {
	cfg := demo.Config{Out: a.out, Proc: "/proc"}
	c := &cobra.Command{Use: "demo", Short: "Show on a running cluster that a volume survives the loss of a replica",
		Long: `Show on a running cluster that a volume survives the loss of a replica.

It creates a volume, writes a tree of files to it, kills one replica process while a writer goes on, watches the rebuild
and verifies every checksum. Run again, it verifies the files of the last time first. The volume stays attached.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			cfg.Client = api
			cfg.NewProgress = func() demo.Progress { return demoProgress{newProgress(a.err, a.terminal)} }
			return demo.Run(cmd.Context(), cfg)
		}}
	c.Flags().StringVar(&cfg.Volume, "volume", "demo", "name of the volume")
	c.Flags().StringVar(&cfg.Size, "size", "1Gi", "size of a new volume, at least 320Mi")
	c.Flags().IntVar(&cfg.Replicas, "replicas", 3, "replicas of a new volume; fewer if there are fewer nodes")
	return c
}

// demoProgress is a line of progress for the demonstration.
type demoProgress struct{ line *progress }

func (p demoProgress) Set(percent int, text string) { p.line.set(percent, "%s", text) }
func (p demoProgress) Stop()                        { p.line.stop() }
