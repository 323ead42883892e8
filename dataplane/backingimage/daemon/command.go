// Package daemon is the program backing-image-manager: its command line, its listeners, start and
// stop. Orders come at the Pod's address; copies of images are received at the address of the
// storage network, if the Pod has one.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/service"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
	"ankole.storage/host/logwriter"
	"ankole.storage/host/mtls"
)

// Config is everything that either command can be told.
type Config struct {
	// Listen and SyncListen are HOST:PORT of the orders and of the interface for files; a wildcard
	// host means PodIP.
	Listen, SyncListen string
	// Root is the directory of the disk, DiskUUID which disk it must be; empty: any.
	Root, DiskUUID string
	// PortRange is FIRST-LAST, where copies are received.
	PortRange string
	// TLSDir holds ca.crt, tls.crt and tls.key. Before they are there nobody is answered, but see
	// AllowPlaintext.
	TLSDir string
	// AllowPlaintext has connections be plaintext while there is no certificate; it says for whom.
	AllowPlaintext string
	// PodIP comes from the downward API; DataAddress is the IP address where copies are received,
	// empty for that of the storage network, else the Pod's.
	PodIP, DataAddress string
	// ExportPort is where a data source receives the content of a volume.
	ExportPort uint16
	// Source is of a data source.
	Source service.SourceConfig
}

// The defaults are the reference's.
const (
	defaultListen     = "localhost:8000"
	defaultSyncListen = "localhost:8001"
	defaultPortRange  = "30001-31000"
	defaultRoot       = "/data/"
	defaultExportPort = 8002
	// storageInterface is what the network for data is called in a Pod.
	storageInterface = "lhnet1"
)

// address gives a wildcard host the Pod's address.
func (c *Config) address(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("address %q: %w; give HOST:PORT", addr, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if c.PodIP == "" {
			return "", fmt.Errorf("address %q is a wildcard: name the Pod's address (environment POD_IP), or a host", addr)
		}
		host = c.PodIP
	}
	return net.JoinHostPort(host, port), nil
}

// dataAddress is where copies are received: in the storage network if there is one, else where
// orders come.
func (c *Config) dataAddress(orders net.Addr) (string, error) {
	if c.DataAddress != "" {
		return c.DataAddress, nil
	}
	address, err := listener.InterfaceAddress(storageInterface)
	if err != nil {
		return "", fmt.Errorf("storage network: %w", err)
	}
	if address == "" {
		address = listener.Host(orders.String())
	}
	return address, nil
}

func parsePorts(text string) (first, last int, err error) {
	from, to, ok := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(from, 10, 16)
	b, err2 := strconv.ParseUint(to, 10, 16)
	if !ok || errors.Join(err1, err2) != nil || a == 0 || b < a {
		return 0, 0, fmt.Errorf("--port-range %q: give FIRST-LAST", text)
	}
	return int(a), int(b), nil
}

// validate says what is wrong with what was told.
func (c *Config) validate() error {
	for _, ip := range []string{c.PodIP, c.DataAddress} {
		if ip != "" && net.ParseIP(ip) == nil {
			return fmt.Errorf("%q is not an IP address", ip)
		}
	}
	if c.TLSDir == "" && c.AllowPlaintext == "" {
		return errors.New("no certificate: name its directory (--tls-dir, environment TLS_DIR), or for whom connections may be " +
			"plaintext (--allow-plaintext)")
	}
	return hostpath.Check()
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

// command is the command line: backing-image-manager [--debug] [--tls-dir DIR] daemon|data-source.
// It changes the given configuration.
func command(cfg Config) *cobra.Command {
	debug := false
	root := &cobra.Command{
		Use:           "backing-image-manager",
		Short:         "Keeps the files of backing images on one disk, or makes one of them",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().BoolVar(&debug, "debug", false, "log more")
	root.PersistentFlags().StringVar(&cfg.TLSDir, "tls-dir", os.Getenv("TLS_DIR"),
		"directory with ca.crt, tls.crt and tls.key (environment TLS_DIR); before they are there nobody is answered")
	root.PersistentFlags().StringVar(&cfg.AllowPlaintext, "allow-plaintext", "",
		"speak plaintext while there is no certificate, and for whom")
	logger := func(cmd *cobra.Command) *slog.Logger {
		level := slog.LevelInfo
		if debug {
			level = slog.LevelDebug
		}
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	}
	daemon := &cobra.Command{
		Use:   "daemon",
		Short: "Serve the files of a disk until SIGINT or SIGTERM",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return RunManager(cmd.Context(), cfg, logger(cmd)) },
	}
	daemon.Flags().StringVar(&cfg.PortRange, "port-range", defaultPortRange, "ports where copies are received, FIRST-LAST")
	source := &cobra.Command{
		Use:   "data-source",
		Short: "Make the first file of an image, until a manager has taken it over",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return RunSource(cmd.Context(), cfg, logger(cmd)) },
	}
	sourceFlags(source, &cfg)
	for _, c := range []*cobra.Command{daemon, source} {
		c.Flags().StringVar(&cfg.DataAddress, "data-address", "",
			"IP address where copies and volumes are received (default: the IPv4 address of "+storageInterface+
				", else that of --listen)")
		c.Flags().StringVar(&cfg.Listen, "listen", defaultListen,
			"where orders come; a wildcard host means the Pod's address (POD_IP)")
		c.Flags().StringVar(&cfg.SyncListen, "sync-listen", defaultSyncListen, "where files are shown and downloaded")
		c.Flags().StringVar(&cfg.Root, "disk-root", defaultRoot, "directory of the disk")
		c.Flags().StringVar(&cfg.DiskUUID, "disk-uuid", "", "UUID that the disk must have")
		root.AddCommand(c)
	}
	return root
}

func sourceFlags(c *cobra.Command, cfg *Config) {
	s := &cfg.Source
	c.Flags().StringVar(&s.ID.Name, "name", "", "name of the image")
	c.Flags().StringVar(&s.ID.UUID, "uuid", "", "UUID of the image")
	c.Flags().StringVar(&s.Type, "source-type", service.TypeDownload,
		"where its content comes from: download, upload, export-from-volume, clone or restore")
	c.Flags().StringToStringVar(&s.Parameters, "parameters", nil,
		"KEY=VALUE of the source type: url of a download; volume-name, snapshot-name and file-type (raw, qcow2) of an export; "+
			"backing-image of a clone; backup-url of a restore")
	c.Flags().Uint16Var(&cfg.ExportPort, "export-port", defaultExportPort, "port where an export or a clone is received")
	c.Flags().StringVar(&s.Checksum, "checksum", "", "SHA-512 that the file must have")
	c.Flags().StringToString("credential", nil, "KEY=VALUE; those of a restore come with its order")
}

// Main runs the command line until it is done or ctx ends, and returns the exit status.
func Main(ctx context.Context) int { return run(ctx, Config{PodIP: os.Getenv("POD_IP")}) }

func run(ctx context.Context, cfg Config) int {
	output := logwriter.Standard()
	defer output.Close()
	c := command(cfg)
	c.SetErr(output)
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(output, "backing-image-manager:", err)
		return 1
	}
	return 0
}

// id is of messages about a data source.
func (c *Config) id() backingimage.ID { return c.Source.ID }
