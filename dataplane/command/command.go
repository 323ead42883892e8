// Package command is the command line of the engine binary: the processes `controller` and
// `replica`, the verbs by which a running engine is asked for something, and `install`, which puts
// the binary where instance managers find it. Verbs, flags and the JSON they print are those
// clients of the reference know; with an instance manager that has no proxy they are how a manager
// reaches engines.
package command

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/daemon"
	"ankole.storage/dataplane/wire"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/logwriter"
	"ankole.storage/host/version"
)

// exitNoReplica is the exit status of an engine that found no usable replica (ENODATA).
const exitNoReplica = 61

// exitDamaged is the exit status of a replica whose directory is not what an engine left
// (EX_DATAERR). Trying again does not help. controlplane/process/instance knows it.
const exitDamaged = 65

// globals are the flags before the verb.
type globals struct {
	volume, instance, url string
	debug                 bool
	// output is the standard error; of a process that serves, one that nobody has to read.
	output io.Writer
}

// serve makes the logger of a process that serves: nothing in it waits for its log.
func (g *globals) serve() *slog.Logger {
	level := slog.LevelInfo
	if g.debug {
		level = slog.LevelDebug
	}
	g.output = logwriter.Standard()
	return slog.New(slog.NewTextHandler(g.output, &slog.HandlerOptions{Level: level}))
}

// end writes what is left of the log.
func (g *globals) end() {
	if w, ok := g.output.(*logwriter.Writer); ok {
		w.Close()
	}
}

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	// SIGHUP has no handler on purpose: it ends the process without hooks.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	g := &globals{output: os.Stderr}
	defer g.end()
	root := &cobra.Command{
		Use: "longhorn", Short: "Engine, replica and their command line", SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return hostpath.Check() },
	}
	f := root.PersistentFlags()
	f.StringVar(&g.volume, "volume-name", "", "volume the call is for; the peer refuses another one")
	f.StringVar(&g.instance, "engine-instance-name", "", "engine instance the call is for")
	f.StringVar(&g.url, "url", "http://localhost:9501", "address of the engine")
	f.BoolVar(&g.debug, "debug", false, "log more")
	root.AddCommand(replicaCommand(g), controllerCommand(g), versionCommand(g), installCommand(), snapshotCommands(g),
		backupCommands(g))
	root.AddCommand(volumeCommands(g)...)
	root.AddCommand(replicaCommands(g)...)
	root.SetArgs(args)
	return g.exitStatus(root.ExecuteContext(ctx))
}

func (g *globals) exitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, daemon.ErrNoReplica):
		fmt.Fprintln(g.output, "error:", err)
		return exitNoReplica
	case errors.Is(err, chain.ErrCorrupt), errors.Is(err, chain.ErrForeign):
		fmt.Fprintln(g.output, "error:", oneLine(err))
		return exitDamaged
	}
	if c := (*coded)(nil); errors.As(err, &c) {
		fmt.Fprintln(g.output, "code:", c.code)
	}
	fmt.Fprintln(g.output, "error:", err)
	return 1
}

// oneLine keeps a reason together that has several parts: who reads the last line reads it all.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// size is a number of bytes, plain or with a binary unit (10g, 10Gi, 10GiB all mean 10 × 2^30).
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type names the value in help texts.
func (s *size) Type() string { return "size" }

// Set parses a size.
func (s *size) Set(v string) error {
	number := strings.TrimRight(strings.ToLower(v), "ib")
	shift := 0
	if n := len(number); n > 0 {
		if i := strings.IndexByte("kmgtp", number[n-1]); i >= 0 {
			shift = 10 * (i + 1)
			number = number[:n-1]
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return fmt.Errorf("%q is not a size in bytes, such as 1073741824 or 1g", v)
	}
	*s = size(n << shift)
	return nil
}

// secret reads the volume's identity from the environment, where the instance manager put it: an
// argument would show it to everybody who may list processes.
func secret() (uuid string, key []byte, err error) {
	uuid = os.Getenv("ANKOLE_VOLUME_UUID")
	if uuid == "" {
		return "", nil, errors.New("ANKOLE_VOLUME_UUID is not set: engines and replicas are started by an instance manager")
	}
	key, err = hex.DecodeString(os.Getenv("ANKOLE_VOLUME_SECRET"))
	if err != nil || len(key) != wire.SecretSize {
		return "", nil, fmt.Errorf("ANKOLE_VOLUME_SECRET must be %d hexadecimal digits", 2*wire.SecretSize)
	}
	return uuid, key, nil
}

// versionOutput is the JSON of `version`.
type versionOutput struct {
	ClientVersion versionNumbers  `json:"clientVersion"`
	ServerVersion *versionNumbers `json:"serverVersion"`
}

type versionNumbers struct {
	Version                 string `json:"version"`
	GitCommit               string `json:"gitCommit"`
	BuildDate               string `json:"buildDate"`
	CLIAPIVersion           int    `json:"cliAPIVersion"`
	CLIAPIMinVersion        int    `json:"cliAPIMinVersion"`
	ControllerAPIVersion    int    `json:"controllerAPIVersion"`
	ControllerAPIMinVersion int    `json:"controllerAPIMinVersion"`
	DataFormatVersion       int    `json:"dataFormatVersion"`
	DataFormatMinVersion    int    `json:"dataFormatMinVersion"`
}

func ownVersion() versionNumbers {
	return versionNumbers{Version: version.Version, GitCommit: version.GitCommit, BuildDate: version.BuildDate,
		CLIAPIVersion: version.CLIAPI, CLIAPIMinVersion: version.CLIAPIMin, ControllerAPIVersion: version.ControllerAPI,
		ControllerAPIMinVersion: version.ControllerAPIMin, DataFormatVersion: version.DataFormat,
		DataFormatMinVersion: version.DataFormatMin}
}

func versionCommand(g *globals) *cobra.Command {
	clientOnly := false
	c := &cobra.Command{Use: "version", Short: "Show versions as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := versionOutput{ClientVersion: ownVersion()}
			if !clientOnly {
				v, err := serverVersion(cmd, g)
				if err != nil {
					return err
				}
				out.ServerVersion = v
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "\t")
			return e.Encode(out)
		}}
	c.Flags().BoolVar(&clientOnly, "client-only", false, "only this binary, do not ask an engine")
	return c
}
