package csi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/host/hostpath"
	"ankole.storage/host/version"
	"ankole.storage/rest/client"
)

// Config is what a driver process is told.
type Config struct {
	// Services are those that are served beside the identity service: ServiceNode, which mounts, and
	// ServiceController, which only asks the manager and needs no right on its node.
	Services []string
	// NodeID is the name of this node, which is its Kubernetes node's too; the node service has it.
	NodeID string
	// ManagerURL is where the manager's API is.
	ManagerURL string
	// TokenFile has the bearer token for the manager; empty: none is sent.
	TokenFile string
	// CAFile has the authority by which the manager is known where its URL is https://; empty: those
	// of this machine.
	CAFile string
	// Endpoint is the path of the unix socket on which the services are served.
	Endpoint string
	// RegistrationDir is the kubelet's folder for sockets of plugins; empty: no registration.
	RegistrationDir string
	// KubeletEndpoint is what the kubelet calls Endpoint, whose view of the file system is the
	// host's.
	KubeletEndpoint string
	// HealthPort is where GET /healthz is served, on PodIP; 0: nowhere. An address of IPv6 cannot be
	// joined with a port by the text of a manifest.
	HealthPort int
	PodIP      string
	// Patience bounds what one call waits for.
	Patience time.Duration
}

// The services.
const (
	ServiceNode       = "node"
	ServiceController = "controller"
)

// Defaults of the installation's manifests.
const (
	DefaultManagerURL      = "http://longhorn-backend:9500/v1"
	DefaultEndpoint        = "/csi/csi.sock"
	DefaultKubeletEndpoint = "/var/lib/kubelet/plugins/" + DriverName + "/csi.sock"
	// DefaultPatience is a little less than the time after which the sidecars give up a call.
	DefaultPatience = 110 * time.Second
)

// Validate says what is wrong with a configuration.
func (c *Config) Validate() error {
	for _, s := range c.Services {
		if s != ServiceNode && s != ServiceController {
			return fmt.Errorf("--service %q is none of %s, %s", s, ServiceNode, ServiceController)
		}
	}
	switch {
	case len(c.Services) == 0:
		return errors.New("--service is empty: name node, controller, or both")
	case c.serves(ServiceNode) && c.NodeID == "":
		return errors.New("the name of the node is missing: set NODE_NAME or --node-id")
	case !path.IsAbs(c.Endpoint):
		return fmt.Errorf("endpoint %q is no absolute path of a unix socket", c.Endpoint)
	case c.RegistrationDir != "" && !path.IsAbs(c.KubeletEndpoint):
		return fmt.Errorf("--kubelet-endpoint %q is no absolute path of a unix socket", c.KubeletEndpoint)
	case c.HealthPort < 0 || c.HealthPort > 65535:
		return fmt.Errorf("--health-port %d is no port", c.HealthPort)
	case c.Patience <= 0:
		return fmt.Errorf("--patience is %v: give a time above zero", c.Patience)
	}
	if _, err := client.New(c.ManagerURL, ""); err != nil {
		return err
	}
	return hostpath.Check()
}

func (c *Config) serves(service string) bool { return slices.Contains(c.Services, service) }

// health is where GET /healthz is served, empty for nowhere. Without an address of the Pod it is
// all of them.
func (c *Config) health() string {
	if c.HealthPort == 0 {
		return ""
	}
	return net.JoinHostPort(c.PodIP, strconv.Itoa(c.HealthPort))
}

// Command returns the command line of the program.
func Command() *cobra.Command {
	var cfg Config
	c := &cobra.Command{
		Use:   "csi",
		Short: "CSI driver " + DriverName + ": volumes for claims, and into Pods",
		Long: `Serve the identity, controller and node services of the Container Storage Interface until SIGTERM.

The controller service runs beside each sidecar, and the node service on every node.

The environment says which node this is, NODE_NAME, and which address it has, POD_IP (downward API).`,
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg.Endpoint = strings.TrimPrefix(cfg.Endpoint, "unix://")
			return Run(c.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&cfg.Services, "service", []string{ServiceNode, ServiceController},
		"services to serve: node, controller, or both")
	f.StringVar(&cfg.NodeID, "node-id", os.Getenv("NODE_NAME"), "name of this node")
	f.StringVar(&cfg.ManagerURL, "manager-url", DefaultManagerURL, "where the manager's API is")
	f.StringVar(&cfg.TokenFile, "token-file", "", "file with the bearer token for the manager, read for each request")
	f.StringVar(&cfg.CAFile, "ca-file", "", "file with the authority of the manager's certificate, read for each connection "+
		"(default the authorities of this machine)")
	f.StringVar(&cfg.Endpoint, "endpoint", DefaultEndpoint, "path of the unix socket to serve on")
	f.StringVar(&cfg.RegistrationDir, "registration-dir", "",
		"kubelet's folder for sockets of plugins; empty: no registration")
	f.StringVar(&cfg.KubeletEndpoint, "kubelet-endpoint", DefaultKubeletEndpoint,
		"path of the socket as the kubelet sees it")
	f.IntVar(&cfg.HealthPort, "health-port", 0, "port of GET /healthz on POD_IP; 0: none")
	f.StringVar(&cfg.PodIP, "pod-ip", os.Getenv("POD_IP"), "address of this Pod, IPv4 or IPv6")
	f.DurationVar(&cfg.Patience, "patience", DefaultPatience, "longest time that a call waits for something")
	return c
}
