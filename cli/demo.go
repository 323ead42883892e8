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
	c.AddCommand(a.tourCommand())
	a.noDryRun(c)
	return c
}

// tourCommand shows what the five proposals promised.
func (a *app) tourCommand() *cobra.Command {
	cfg := demo.TourConfig{Out: a.out, Proc: "/proc"}
	c := &cobra.Command{Use: "proposals", Short: "Show on a running cluster what the five proposals promised, in two minutes",
		Long: `Show on a running cluster what the five proposals promised, while writers write and read back: one instance manager per
node; its CPU request changed; data on the storage network, where the cluster has one; a volume whose replica follows its
user; engines of three attached volumes upgraded, by hand and by themselves within a limit, as a time line.

The tour makes volumes of its own, and changes settings, and takes all of that back at its end, also when it is
interrupted. It ends with status 1 when something that was promised was not seen.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			cfg.Client = api
			cfg.NewProgress = func() demo.Progress { return demoProgress{newProgress(a.err, a.terminal)} }
			return demo.Tour(cmd.Context(), cfg)
		}}
	c.Flags().StringVar(&cfg.Prefix, "prefix", "tour", "what the names of the tour's volumes begin with")
	c.Flags().StringVar(&cfg.Image, "image", "",
		"engine image to upgrade to (default: one besides the default image, else that with -next at its end)")
	c.Flags().DurationVar(&cfg.Timeout, "timeout", demo.TourTimeout, "how long each thing that was promised is waited for")
	a.noDryRun(c)
	return c
}

// demoProgress is a line of progress for the demonstration.
type demoProgress struct{ line *progress }

func (p demoProgress) Set(percent int, text string) { p.line.set(percent, "%s", text) }
func (p demoProgress) Stop()                        { p.line.stop() }
