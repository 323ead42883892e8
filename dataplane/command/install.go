package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ankole.storage/backup/worker"
	"ankole.storage/host/hostpath"
)

// binaryName is what instance managers start.
const binaryName = "longhorn"

// installCommand is what the container of an engine image runs on every node: it installs the
// binary and stays, so that the Pod's readiness says whether the node has it.
func installCommand() *cobra.Command {
	var to string
	c := &cobra.Command{Use: "install", Short: "Install this binary on the node and wait", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := install(hostpath.Resolve(to)); err != nil {
				return fmt.Errorf("install the engine binary in %s: %w", to, err)
			}
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(versionOutput{ClientVersion: ownVersion()}); err != nil {
				return err
			}
			<-cmd.Context().Done()
			return nil
		}}
	c.Flags().StringVar(&to, "to", "/data", "directory to install into")
	return c
}

// install copies the worker of backups, if it lies beside the running binary, and then that one, by
// which managers see that a node has the image.
func install(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := installProgram(worker.Command()[0], dir, worker.Program)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return installProgram("/proc/self/exe", dir, binaryName)
}

// installProgram copies a program in one step: a process that is being started sees the old file or
// the new one.
func installProgram(path, dir, name string) (err error) {
	src, err := os.Open(path)
	if err != nil {
		return err
	}
	defer src.Close()
	tmp, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err := io.Copy(tmp, src); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(0o755); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Sync(); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), filepath.Join(dir, name))
}
