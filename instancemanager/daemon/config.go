package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/host/hostpath"
	"ankole.storage/host/logwriter"
	"ankole.storage/host/mtls"
	"ankole.storage/instancemanager/process"
)

// Config is everything the instance manager can be told.
type Config struct {
	// Listen is HOST:PORT of the process service; a wildcard host means PodIP, if that is known.
	Listen string
	// LogsDir receives the logs of instances.
	LogsDir string
	// PortRange is FIRST-LAST, where instances get their ports from.
	PortRange string
	// TLSDir holds ca.crt, tls.crt and tls.key. Before they are there nobody is answered, but see
	// AllowPlaintext.
	TLSDir string
	// AllowPlaintext has connections be plaintext while there is no certificate; it says for whom.
	AllowPlaintext string
	// WitnessSocket is the unix socket for engines; empty: one in the directory for temporary
	// files, named by the address the instance manager listens at.
	WitnessSocket string
	// PodIP and PodName come from the downward API.
	PodIP, PodName string
	// Output shows the output of instances.
	Output io.Writer
	// Debug makes the log verbose.
	Debug bool
}

// The defaults are the reference's.
const (
	defaultListen    = "localhost:8500"
	defaultLogsDir   = "/var/log/instances"
	defaultPortRange = "10000-20000"
)

// logsDir is where logs go unless said otherwise. A Pod without a mount namespace of its own must
// not write to the log directory of the machine, so there it is the same place below the node's
// root.
func logsDir() string {
	if hostpath.Check() == nil && os.Getenv(hostpath.Variable) != "" &&
		hostpath.Resolve(defaultLogsDir) == defaultLogsDir {
		return "/host" + defaultLogsDir
	}
	return defaultLogsDir
}

func (c *Config) validate() (process.PortRange, error) {
	if err := hostpath.Check(); err != nil {
		return process.PortRange{}, err
	}
	if c.PodIP != "" && net.ParseIP(c.PodIP) == nil {
		return process.PortRange{}, fmt.Errorf("POD_IP %q is not an IP address", c.PodIP)
	}
	if c.LogsDir == "" {
		return process.PortRange{}, fmt.Errorf("--logs-dir is empty: name the directory for instance logs")
	}
	if c.TLSDir == "" && c.AllowPlaintext == "" {
		return process.PortRange{}, fmt.Errorf("no certificate: name its directory (--tls-dir, environment TLS_DIR), or for whom " +
			"connections may be plaintext (--allow-plaintext)")
	}
	ports, err := process.ParsePortRange(c.PortRange)
	if err != nil {
		return process.PortRange{}, fmt.Errorf("--port-range: %w", err)
	}
	return ports, nil
}

// certificates are required, unless plaintext is allowed.
func (c *Config) certificates(log *slog.Logger) *mtls.Source {
	s := mtls.Open(hostpath.Resolve(c.TLSDir), log)
	if c.AllowPlaintext == "" {
		s.Require()
	} else {
		log.Warn("connections are plaintext while there is no certificate", "for", c.AllowPlaintext)
	}
	return s
}

// instanceEnvironment is what every instance gets on top of the inherited variables.
func (c *Config) instanceEnvironment(socket string) []string {
	env := []string{"ANKOLE_WITNESS=unix:" + socket, "ANKOLE_KEEPER=unix:" + keeperSocket(socket)}
	if c.TLSDir != "" {
		env = append(env, "ANKOLE_TLS_DIR="+c.TLSDir)
	}
	if c.AllowPlaintext == "" {
		env = append(env, "ANKOLE_TLS=required")
	}
	if c.PodIP != "" {
		env = append(env, "POD_IP="+c.PodIP)
	}
	if c.PodName != "" {
		env = append(env, "POD_NAME="+c.PodName)
	}
	return env
}

// owner is the same at the next start, and of no other instance manager on the machine, though
// another cluster on it may use the same addresses in a network of its own.
func (c *Config) owner(addr net.Addr) string {
	sum := sha256.Sum256([]byte(addr.String() + "\x00" + hostpath.Resolve(c.LogsDir)))
	return hex.EncodeToString(sum[:8])
}

// defaultSocket is short (the kernel's limit is 107 bytes) and the same at the next start, so that
// a killed instance manager leaves nothing behind that is not replaced; and of no other instance
// manager: paths of sockets are the machine's, whatever the network.
func (c *Config) defaultSocket(addr net.Addr) string {
	return filepath.Join(os.TempDir(), "ankole-witness-"+strconv.Itoa(os.Geteuid()), c.owner(addr)+".sock")
}

// keeperSocket lies beside the witness socket, in the same directory of the owner alone.
func keeperSocket(witness string) string { return strings.TrimSuffix(witness, ".sock") + ".dev" }

// Command is the command line: instance-manager [--debug] [--tls-dir DIR] daemon [flags].
func Command() *cobra.Command {
	cfg := Config{PodIP: os.Getenv("POD_IP"), PodName: os.Getenv("POD_NAME"), Output: os.Stdout}
	root := &cobra.Command{
		Use:           "instance-manager",
		Short:         "Starts, watches and stops the engine and replica processes of a node",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().BoolVar(&cfg.Debug, "debug", false, "log more")
	root.PersistentFlags().StringVar(&cfg.TLSDir, "tls-dir", os.Getenv("TLS_DIR"),
		"directory with ca.crt, tls.crt and tls.key (environment TLS_DIR); before they are there nobody is answered")
	daemon := &cobra.Command{
		Use:   "daemon",
		Short: "Serve until SIGINT or SIGTERM, then stop all instances",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("logs-dir") {
				cfg.LogsDir = logsDir()
			}
			log, level := NewLogger(cmd.ErrOrStderr(), cfg.Debug)
			return Run(cmd.Context(), cfg, log, level)
		},
	}
	flags := daemon.Flags()
	flags.StringVar(&cfg.Listen, "listen", defaultListen,
		"address to serve at; a wildcard host means the Pod's address (POD_IP)")
	flags.StringVar(&cfg.LogsDir, "logs-dir", defaultLogsDir, "directory for the logs of instances")
	flags.StringVar(&cfg.PortRange, "port-range", defaultPortRange, "ports for instances, FIRST-LAST")
	flags.StringVar(&cfg.AllowPlaintext, "allow-plaintext", "",
		"speak plaintext while there is no certificate, and for whom: the images of managers that have none")
	flags.StringVar(&cfg.WitnessSocket, "witness-socket", "",
		"unix socket where engines ask the witness (default: in the directory for temporary files)")
	root.AddCommand(daemon)
	return root
}

// Main runs the command line until it is done or ctx ends, and returns the exit status.
func Main(ctx context.Context) int {
	output := logwriter.Standard()
	defer output.Close()
	c := Command()
	c.SetErr(output)
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(output, "instance-manager:", err)
		return 1
	}
	return 0
}
