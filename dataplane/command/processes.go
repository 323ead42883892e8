package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/daemon"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/mtls"
	"ankole.storage/host/patience"
)

func replicaCommand(g *globals) *cobra.Command {
	var cfg daemon.ReplicaConfig
	var bytes, maxSize size
	c := &cobra.Command{Use: "replica DIRECTORY", Short: "Serve a replica directory", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			cfg.Dir, cfg.Size, cfg.SnapshotMaxSize, cfg.VolumeName, cfg.Log = strings.TrimRight(args[0], "/"),
				int64(bytes), int64(maxSize), g.volume, g.serve()
			if cfg.VolumeUUID, cfg.Secret, err = secret(); err != nil {
				return err
			}
			cfg.Network, cfg.Certificates = dataNetwork(), certificates(cfg.Log)
			return daemon.RunReplica(cmd.Context(), cfg)
		}}
	f := c.Flags()
	f.StringVar(&cfg.Listen, "listen", "localhost:9502",
		"address of the control interface; data is served on the next port")
	f.Var(&bytes, "size", "size of the volume; makes the directory if there is none")
	f.StringVar(&cfg.Instance, "replica-instance-name", "", "name of this instance")
	f.StringVar(&cfg.BackingFile, "backing-file", "", "image, raw or qcow2, below the bottom layer")
	f.IntVar(&cfg.SnapshotMaxCount, "snapshot-max-count", 250, "most snapshots, 2 to 250")
	f.Var(&maxSize, "snapshot-max-size", "most bytes in snapshots, 0 for no limit")
	f.BoolVar(&cfg.Standby, "standby", false,
		"if another process has the directory, wait to take it over instead of refusing: for a live upgrade")
	f.BoolVar(&cfg.Encrypted, "encrypted", false, "note in the directory that a LUKS header begins the volume")
	accept(c, replicaInert)
	return c
}

func controllerCommand(g *globals) *cobra.Command {
	var cfg daemon.EngineConfig
	var bytes, current, maxSize, budget size
	var timeout, maxCount int
	var exact time.Duration
	c := &cobra.Command{Use: "controller VOLUME", Short: "Run the engine of a volume", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			cfg.VolumeName, cfg.Instance, cfg.Log = args[0], g.instance, g.serve()
			if g.volume != "" && g.volume != args[0] {
				return fmt.Errorf("--volume-name %s contradicts volume %s", g.volume, args[0])
			}
			cfg.Size = int64(bytes)
			if current > 0 {
				cfg.Size = int64(current)
			}
			cfg.RebuildBudget = int64(budget)
			cfg.Options.SnapshotMaxCount, cfg.Options.SnapshotMaxSize = maxCount, int64(maxSize)
			if err := cfg.Options.Validate(); err != nil {
				return err
			}
			cfg.ReplicaTimeout = time.Duration(timeout) * time.Second
			if err := finishEngineConfig(&cfg); err != nil {
				return err
			}
			if exact > 0 {
				cfg.ReplicaTimeout = exact
			}
			return daemon.RunEngine(cmd.Context(), cfg)
		}}
	f := c.Flags()
	f.StringVar(&cfg.Listen, "listen", "localhost:9501", "address of the control interface")
	f.Var(&bytes, "size", "size of the volume")
	f.Var(&current, "current-size", "size the volume had last")
	f.StringVar(&cfg.Frontend, "frontend", "", "how the volume is offered: tgt-blockdev, or nothing")
	f.StringArrayVar(&cfg.Replicas, "replica", nil, "address of a replica, tcp://ip:port; repeat for each")
	f.IntVar(&timeout, "engine-replica-timeout", 8, "seconds a replica may keep requests without an answer, 8 to 30")
	f.DurationVar(&cfg.NoReplicaTimeout, "no-replica-timeout", 30*time.Second,
		"how long requests wait when no replica is left")
	f.Var(&budget, "rebuild-bandwidth", "most bytes per second that a rebuild sends, 0 for no limit")
	f.IntVar(&cfg.Options.RebuildConcurrency, "rebuild-sync-concurrent-limit", 1,
		"how many of a rebuild's steps go on at once, 1 to 5")
	f.StringArrayVar(&cfg.AcceptDataLoss, "accept-data-loss", nil,
		"data directory of a replica to start from if the volume cannot start otherwise; what only other replicas "+
			"have is lost; repeat for each")
	f.StringArrayVar(&cfg.InSync, "in-sync", nil,
		"data directory of a replica that holds what all others of this flag hold, for a volume that no engine of "+
			"Ankole has served yet; repeat for each")
	f.BoolVar(&cfg.Upgrade, "upgrade", false,
		"follow the engine of the same instance that runs in this instance manager, when it has left the volume: for a "+
			"live upgrade")
	f.StringVar(&cfg.StandInFor, "stand-in-for", "",
		"address of the volume's engine on another node, tcp://ip:port: offer the volume here and pass requests on to "+
			"it, for a live migration")
	f.IntVar(&maxCount, "snapshot-max-count", 250, "most snapshots, 2 to 250")
	f.Var(&maxSize, "snapshot-max-size", "most bytes in snapshots, 0 for no limit")
	f.BoolVar(&cfg.Options.UnmapMarkSnapChainRemoved, "unmap-mark-snap-chain-removed", false,
		"let a discard mark the snapshots above the nearest branch as removed")
	accept(c, controllerInert)
	f.DurationVar(&exact, "replica-timeout", 0,
		"for tests, which cannot wait that long: instead of --engine-replica-timeout")
	f.DurationVar(&cfg.GatherTimeout, "gather-timeout", 0, "for tests: how long a start waits for silent replicas")
	f.DurationVar(&cfg.Lease, "lease", 0,
		"for tests: how long reads may be answered without proof that nobody has taken over")
	for _, n := range []string{"replica-timeout", "gather-timeout", "lease"} {
		_ = f.MarkHidden(n) // the flag exists
	}
	return c
}

// dataNetwork is what logs call the network between engines and replicas, which a manager has told.
func dataNetwork() string {
	if name := os.Getenv("ANKOLE_DATA_NETWORK"); name != "" {
		return name
	}
	return "network that nobody has named"
}

// certificates secure the control interface of an instance. An instance manager of an older version
// names none, and speaks plaintext.
func certificates(log *slog.Logger) *mtls.Source {
	dir := os.Getenv("ANKOLE_TLS_DIR")
	if dir == "" {
		return nil
	}
	source := mtls.Open(hostpath.Resolve(dir), log)
	if os.Getenv("ANKOLE_TLS") == "required" {
		source.Require()
	}
	return source
}

func finishEngineConfig(cfg *daemon.EngineConfig) (err error) {
	if cfg.Size <= 0 || cfg.Size%4096 != 0 {
		return fmt.Errorf("--size %d: must be a positive multiple of 4096", cfg.Size)
	}
	if cfg.ReplicaTimeout < 8*time.Second || cfg.ReplicaTimeout > 30*time.Second {
		cfg.ReplicaTimeout = 8 * time.Second
	}
	cfg.ReplicaTimeout = patience.Of(cfg.ReplicaTimeout)
	cfg.StandInFor = strings.TrimPrefix(cfg.StandInFor, "tcp://")
	if (len(cfg.Replicas) == 0) == (cfg.StandInFor == "") {
		return errors.New("either --replica or --stand-in-for has to be given")
	}
	for i, r := range cfg.Replicas {
		cfg.Replicas[i] = strings.TrimPrefix(r, "tcp://")
	}
	if cfg.VolumeUUID, cfg.Secret, err = secret(); err != nil {
		return err
	}
	cfg.Transport, cfg.Network = os.Getenv("ANKOLE_BLOCK_TRANSPORT"), dataNetwork()
	cfg.Certificates = certificates(cfg.Log)
	cfg.LocalHost = os.Getenv("ANKOLE_LOCAL_ADDRESS")
	cfg.InstanceManager = os.Getenv("POD_NAME")
	if p := strings.TrimPrefix(os.Getenv("ANKOLE_KEEPER"), "unix:"); p != "" {
		cfg.Keeper = hostpath.Resolve(p)
	}
	if wait := os.Getenv("ANKOLE_DEVICE_WAIT"); wait != "" {
		if cfg.DeviceWait, err = time.ParseDuration(wait); err != nil {
			return fmt.Errorf("ANKOLE_DEVICE_WAIT: %w", err)
		}
	}
	cfg.Predecessor = os.Getenv("ANKOLE_PREDECESSOR")
	address := os.Getenv("ANKOLE_WITNESS")
	if address == "" {
		return errors.New("ANKOLE_WITNESS is not set: engines are started by an instance manager")
	}
	cfg.Witness, err = daemon.DialWitness(address, daemon.WitnessCaller{Volume: cfg.VolumeName, VolumeUUID: cfg.VolumeUUID,
		Engine: cfg.Instance, Order: os.Getenv("ANKOLE_ORDER")})
	return err
}

// serverTimeout bounds a simple question to an engine.
const serverTimeout = time.Minute

func serverVersion(cmd *cobra.Command, g *globals) (v *versionNumbers, err error) {
	err = g.ask(cmd, serverTimeout, func(ctx context.Context, c enginev1.EngineClient) error {
		a, err := c.Version(ctx, &enginev1.VersionRequest{})
		if err != nil {
			return err
		}
		v = &versionNumbers{Version: a.Version, GitCommit: a.GitCommit, BuildDate: a.BuildDate,
			CLIAPIVersion: int(a.CliApiVersion), CLIAPIMinVersion: int(a.CliApiMinVersion),
			ControllerAPIVersion: int(a.ControllerApiVersion), ControllerAPIMinVersion: int(a.ControllerApiMinVersion),
			DataFormatVersion: int(a.DataFormatVersion), DataFormatMinVersion: int(a.DataFormatMinVersion)}
		return nil
	})
	return v, err
}
