package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"ankole.storage/host/version"
)

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
	return &cobra.Command{Use: "version", Short: "Print the version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(a.out, "ankole %s, commit %s, built %s\n", version.Version, version.GitCommit, version.BuildDate)
			return nil
		}}
}
