// Package command is the command line of the manager program.
package command

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ankole.storage/controlplane/keys/peerkeys"
	"ankole.storage/controlplane/node/uninstall"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/version"
	"ankole.storage/manager"
)

// statusRefused is the exit status of an uninstallation or an upgrade that waits for a person: it
// is of no use to try again before.
const statusRefused = 2

// Status is the exit status of a process whose command ended with err.
func Status(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, uninstall.ErrRefused), errors.Is(err, manager.ErrUpgradeRefused):
		return statusRefused
	}
	return 1
}

// New returns the root command.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:           "manager",
		Short:         "Control plane of the storage system",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(daemon(), control(), recurringJob(), preUpgrade(), uninstallation())
	return root
}

// environment says who a process is.
const environment = `
The environment says who this process is: POD_NAME, POD_NAMESPACE, POD_IP and NODE_NAME (downward API).
The API server is found as usual: KUBECONFIG, else the Pod's service account.`

// common are the flags of every process of the control plane.
func common(f *pflag.FlagSet, cfg *manager.Common, level *string) {
	f.StringVar(&cfg.HealthListen, "health-listen", "", "address of health checks (default ${POD_IP}:9504)")
	f.StringVar(level, "log-level", "", "debug, info, warn or error; empty: follow setting log-level")
}

// prepare sets the log up and reads the environment.
func prepare(cfg *manager.Common, level string) error {
	l := &slog.LevelVar{}
	if level == "" {
		cfg.LogLevel = l
	} else if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level %q is not one of debug, info, warn, error", level)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})))
	cfg.PodName, cfg.Namespace = os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE")
	cfg.PodIP, cfg.NodeName = os.Getenv("POD_IP"), os.Getenv("NODE_NAME")
	cfg.Version = version.Version
	return nil
}

func daemon() *cobra.Command {
	var cfg manager.Common
	var level string
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run the agent of one node",
		Long: `Run the agent of one node until SIGTERM: it looks after the node's disks, and works for the controllers there.
` + environment,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := prepare(&cfg, level); err != nil {
				return err
			}
			return manager.RunAgent(c.Context(), cfg)
		},
	}
	c.Flags().StringVar(&cfg.Listen, "listen", "", "address of metrics (default ${POD_IP}:9500)")
	common(c.Flags(), &cfg, &level)
	return c
}

func control() *cobra.Command {
	var cfg manager.Config
	var level string
	c := &cobra.Command{
		Use:   "control",
		Short: "Run the controllers, the REST API and the webhooks",
		Long: `Run the REST API and the webhooks until SIGTERM, and the controllers while this process leads. It needs no right
on its node.
` + environment,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := prepare(&cfg.Common, level); err != nil {
				return err
			}
			return manager.RunControl(c.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Listen, "listen", "", "address of REST and metrics (default ${POD_IP}:9500)")
	common(f, &cfg.Common, &level)
	f.BoolVar(&cfg.MutualTLS, peerkeys.FlagMutualTLS, false,
		"look for the certificate by which instance managers know the controllers, and make it where there is none")
	f.StringVar(&cfg.EngineImage, "engine-image", "", "default engine image")
	f.StringVar(&cfg.InstanceManagerImage, "instance-manager-image", "", "image of instance managers")
	f.StringVar(&cfg.BackingImageManagerImage, "backing-image-manager-image", "",
		"image of what keeps backing images (default none: there can be no backing images)")
	f.StringVar(&cfg.ManagerImage, "manager-image", "", "image of this program")
	f.StringVar(&cfg.ServiceAccount, "service-account", naming.ServiceAccount, "service account of the Pods it creates")
	f.StringVar(&cfg.WebhookURL, "webhook-url", "",
		"base URL at which the API server reaches the webhooks; empty: through the Service")
	f.StringVar(&cfg.ListenAlso, "listen-also", "",
		"further address of REST and metrics, such as 127.0.0.1:9500 for kubectl port-forward (default none)")
	f.StringVar(&cfg.WebhookListen, "webhook-listen", "", "address of the webhooks (default ${POD_IP}:9502)")
	f.BoolVar(&cfg.PlaintextREST, "rest-plaintext", false, "answer REST requests without TLS from anywhere, for clients that "+
		"know none; otherwise only the loopback interface may send them")
	f.StringSliceVar(&cfg.Origins.Images, "allowed-image-registries", nil, "registries, or paths in them, from which "+
		"images of engines and instance managers may be (default those of the images above)")
	f.StringSliceVar(&cfg.Origins.BackupDirectories, "allowed-backup-directories", nil,
		"directories in which backup targets of kind vfs may be (default none)")
	f.StringSliceVar(&cfg.Origins.DiskPaths, "allowed-disk-paths", nil, "directories in which disks may be (default any)")
	return c
}

func recurringJob() *cobra.Command {
	return &cobra.Command{
		Use:   "recurring-job NAME",
		Short: "Do once what a recurring job is for",
		Long: `Do once what a recurring job is for, and fail if that fails for one of its volumes.

The Pods of the job's CronJob run it. The environment says who this process is: POD_NAME and POD_NAMESPACE.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
			return manager.RunJob(c.Context(), args[0], os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME"))
		},
	}
}

func preUpgrade() *cobra.Command {
	return &cobra.Command{
		Use:   "pre-upgrade",
		Short: "Judge whether the installation may go to this version",
		Long: `Judge whether the installation may go to the version of this program, as its managers would when they
start, and change nothing.

Exit status 2 says that they would end again, and the error why. The environment says where: POD_NAMESPACE.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
			return manager.PreUpgrade(c.Context(), os.Getenv("POD_NAMESPACE"), version.Version)
		},
	}
}

func uninstallation() *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the installation with all volumes and their data",
		Long: `Remove all volumes with their data, and everything that the managers have made, them included.

Setting deleting-confirmation-flag has to be true, no volume may be in use, and the managers have to run. Exit
status 2 says that a person has to do something first. What an installer has made is left to it.
The environment says where: POD_NAMESPACE.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
			return manager.Uninstall(c.Context(), os.Getenv("POD_NAMESPACE"))
		},
	}
}
