// Command ankole-bed runs a Kubernetes cluster of real nodes on one machine, for tests and for
// trying the system as it is installed: kubelets, containerd, containers. See package cluster.
//
// The program is also what runs in it: kubelet, kube-proxy, the first process of a node, a network
// program that containerd calls, and kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"ankole.storage/standalone/control"
	"ankole.storage/test/bed/cluster"
	"ankole.storage/test/bed/networks"
	"ankole.storage/test/bed/node"
	"ankole.storage/test/bed/plan"
)

func main() {
	switch command := append(os.Args, "")[1]; {
	case filepath.Base(os.Args[0]) == networks.Program:
		os.Exit(networks.Main(os.Stdin, os.Stdout))
	case command == "kubelet":
		os.Exit(component(kubelet.NewKubeletCommand(context.Background())))
	case command == "kube-proxy":
		os.Exit(component(proxy.NewProxyCommand()))
	case command == "kubectl":
		os.Args = os.Args[1:]
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	}
	if err := root().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "ankole-bed:", err)
		if errors.Is(err, plan.ErrConfig) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// component runs a part of Kubernetes with the arguments behind its name.
func component(cmd *cobra.Command) int {
	cmd.SetArgs(os.Args[2:])
	return cli.Run(cmd)
}

// gibibyte is the unit of a disk's size.
const gibibyte = 1 << 30

func root() *cobra.Command {
	cmd := &cobra.Command{Use: "ankole-bed", Short: "A Kubernetes cluster of real nodes on this machine",
		SilenceUsage: true, SilenceErrors: true}
	p := plan.Plan{Dir: ".ankole-bed", Nodes: 3, Network: "10.213.0.0"}
	f := cmd.PersistentFlags()
	f.StringVar(&p.Dir, "dir", p.Dir, "folder that keeps all state; not below /var or /run")
	f.IntVar(&p.Nodes, "nodes", p.Nodes, "number of nodes")
	f.StringVar(&p.Network, "network", p.Network, "the bed's network, a /16")
	cmd.AddCommand(up(&p), down(&p), load(&p), nodeCommand(&p), enter(&p),
		&cobra.Command{Use: "kubectl", Short: "The ordinary kubectl", Run: func(*cobra.Command, []string) {}},
		&cobra.Command{Use: cluster.NodeCommand, Hidden: true,
			RunE: func(*cobra.Command, []string) error { return node.Run() }})
	return cmd
}

func up(p *plan.Plan) *cobra.Command {
	cfg := cluster.Config{NodeGrace: 20 * time.Second}
	disk := 20
	exitWithStdin := false
	cmd := &cobra.Command{Use: "up", Short: "Start the cluster, and end it with SIGINT or SIGTERM", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if cfg.Plan, err = p.Validate(); err != nil {
				return err
			}
			if cfg.PauseImage == "" {
				return fmt.Errorf("%w: --pause-image names no archive; make images makes one", plan.ErrConfig)
			}
			if cfg.PauseImage, err = filepath.Abs(cfg.PauseImage); err != nil { // nodes read it too
				return err
			}
			if cfg.DNS != "" {
				if cfg.DNS, err = exec.LookPath(cfg.DNS); err != nil {
					return fmt.Errorf("%w: --dns: %w", plan.ErrConfig, err)
				}
			}
			cfg.DiskBytes = int64(disk) * gibibyte
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if exitWithStdin {
				go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
			}
			return cluster.Run(ctx, cfg, os.Stdout)
		}}
	f := cmd.Flags()
	f.StringVar(&cfg.PauseImage, "pause-image", "", "archive of the image that holds a Pod's namespaces")
	f.StringArrayVar(&cfg.Images, "image", nil, "archive of an image that every node gets (repeatable)")
	f.StringVar(&cfg.DNS, "dns", "", "program that answers names of Services (tools/addons.sh builds it)")
	f.IntVar(&disk, "disk", disk, "size in GiB of each node's disk for volumes, sparse")
	f.DurationVar(&cfg.NodeGrace, "node-grace", cfg.NodeGrace, "time without heartbeat after which a node is NotReady")
	f.StringVar(&cfg.ReadyFile, "ready-file", "", "file that gets one JSON line when the cluster is ready")
	f.BoolVar(&exitWithStdin, "exit-with-stdin", false, "end when standard input ends")
	f.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "let etcd skip fsync (tests only)")
	return cmd
}

func down(p *plan.Plan) *cobra.Command {
	remove := false
	cmd := &cobra.Command{Use: "down", Short: "End the cluster, and remove all that it has on the machine",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			at, err := p.Validate()
			if err != nil {
				return err
			}
			if err := cluster.Down(at); err != nil {
				return err
			}
			left, err := cluster.Left(at)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("left on the machine: %s", strings.Join(left, ", "))
			}
			if err == nil && remove {
				err = os.RemoveAll(at.Dir)
			}
			return err
		}}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the folder too, with the nodes' disks")
	return cmd
}

func load(p *plan.Plan) *cobra.Command {
	return &cobra.Command{Use: "load ARCHIVE…", Short: "Give every node images", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := p.Validate()
			if err != nil {
				return err
			}
			return cluster.Load(cmd.Context(), at, args)
		}}
}

func nodeCommand(p *plan.Plan) *cobra.Command {
	return &cobra.Command{Use: "node stop|kill|start NODE", Short: "Shut a node down, cut its power, start it again",
		Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
			at, err := p.Validate()
			if err != nil {
				return err
			}
			return control.Call(cmd.Context(), at.Dir, control.Request{Command: "node-" + args[0], Node: args[1]})
		}}
}

func enter(p *plan.Plan) *cobra.Command {
	cmd := &cobra.Command{Use: "enter NODE [COMMAND…]", Short: "Run a command in a node, by default a shell",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := p.Validate()
			if err != nil {
				return err
			}
			k, err := strconv.Atoi(strings.TrimPrefix(args[0], "node-"))
			if err != nil {
				return fmt.Errorf("%w: %q is not a node such as node-1", plan.ErrConfig, args[0])
			}
			what := args[1:]
			if len(what) == 0 {
				what = []string{"sh"}
			}
			inside, err := cluster.Inside(cmd.Context(), at, k, what...)
			if err != nil {
				return err
			}
			inside.Stdin, inside.Stdout, inside.Stderr = os.Stdin, os.Stdout, os.Stderr
			return inside.Run()
		}}
	cmd.Flags().SetInterspersed(false)
	return cmd
}
