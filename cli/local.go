package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"ankole.storage/cli/demo"
	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/host/version"
)

func (a *app) demoCommand() *cobra.Command {
	cfg := demo.Config{Out: a.out, Proc: "/proc"}
	c := &cobra.Command{Use: "demo", Short: "Show on a running cluster that a volume survives the loss of a replica",
		Long: `Show on a running cluster that a volume survives the loss of a replica.

It creates a volume, writes a tree of files to it, kills one replica process while a writer goes on, watches the rebuild
and verifies every checksum. Run again, it verifies the files of the last time first. The volume stays attached.`,
		Args: usage.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			cfg.Client = api
			cfg.NewProgress = func() demo.Progress { return demoProgress{output.NewLine(a.err, a.terminal)} }
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
		Args: usage.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			cfg.Client = api
			cfg.NewProgress = func() demo.Progress { return demoProgress{output.NewLine(a.err, a.terminal)} }
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
type demoProgress struct{ line *output.Line }

func (p demoProgress) Set(percent int, text string) { p.line.Set(percent, "%s", text) }
func (p demoProgress) Stop()                        { p.line.Stop() }

// standaloneProgram is the program that runs a cluster on one machine. It is one of its own so that
// nobody else has to carry a Kubernetes control plane.
const standaloneProgram = "ankole-standalone"

func (a *app) standaloneCommand() *cobra.Command {
	return &cobra.Command{Use: "standalone [flags]", Short: "Run a whole cluster on this machine, in the foreground",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := standalonePath()
			if err != nil {
				return err
			}
			// The program takes the place of this one, so signals and the exit status are its own.
			err = syscall.Exec(program, append([]string{program}, args...), os.Environ())
			return fmt.Errorf("starting %s: %w", program, err)
		}}
}

// standalonePath finds the program beside this one.
func standalonePath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), standaloneProgram)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s is not there; build it with: make build", path)
	}
	return path, nil
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: usage.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(a.out, "ankole %s, commit %s, built %s\n", version.Version, version.GitCommit, version.BuildDate)
			return nil
		}}
}
