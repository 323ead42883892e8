package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/backup/format"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

// backupCommands are the verbs below `backups`. Credentials of a target come by the environment.
func backupCommands(g *globals) *cobra.Command {
	c := group("backups", "Back up, restore, and look into backup stores", backupCreateCommand(g),
		backupStatusCommand(g), backupRestoreCommand(g), backupRestoreStatusCommand(g), backupListCommand(),
		backupRemoveCommand(), backupVerifyCommand(),
		ofObject("inspect URL", "Show a backup as JSON", worker.Inspect, true),
		ofObject("inspect-volume URL", "Show a volume of a store as JSON", worker.InspectOf, false),
		ofObject("head URL", "Show when the record of a volume or a backup was written as JSON", worker.Head, false),
		imageListCommand(), ofImage("inspect-backing-image URL", "Show the backup of a backing image as JSON",
			worker.InspectImage, true), ofImage("rm-backing-image URL", "Remove the backup of a backing image",
			worker.DeleteImage, false))
	c.Aliases = []string{"backup"}
	return c
}

// printLine prints JSON on one line, as some verbs of the reference do.
func printLine(cmd *cobra.Command, v any) error { return json.NewEncoder(cmd.OutOrStdout()).Encode(v) }

// createOutput is the JSON of `backups create`.
type createOutput struct {
	BackupID       string `json:"backupID"`
	IsIncremental  bool   `json:"isIncremental"`
	ReplicaAddress string `json:"replicaAddress"`
}

func backupCreateCommand(g *globals) *cobra.Command {
	q := &enginev1.BackupCreateRequest{}
	var pairs []string
	blockMiB, mib := 0, int64(0)
	c := &cobra.Command{Use: "create SNAPSHOT", Short: "Begin to back a snapshot up", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.Target == "" {
				return errors.New("create: --dest is needed")
			}
			if q.Labels, err = labels(pairs); err != nil {
				return err
			}
			if blockMiB != 0 {
				q.Parameters = map[string]string{format.BlockSizeParameter: strconv.Itoa(blockMiB << 20)}
			}
			if q.NodeBandwidth, err = bandwidth(mib); err != nil {
				return err
			}
			q.Snapshot, q.Credentials = args[0], target.Environ(os.Environ())
			return g.ask(cmd, 0, func(ctx context.Context, to enginev1.EngineClient) error {
				b, err := to.BackupCreate(ctx, q)
				if err != nil {
					return err
				}
				return printLine(cmd, createOutput{b.GetName(), b.GetIncremental(), b.GetFromAddress()})
			})
		}}
	f := c.Flags()
	f.StringVar(&q.Target, "dest", "", "URL of the backup target")
	f.StringVar(&q.Name, "backup-name", "", "name of the backup; one is chosen if there is none")
	f.StringVar(&q.BackingImageName, "backing-image-name", "", "backing image of the volume")
	f.StringVar(&q.BackingImageChecksum, "backing-image-checksum", "", "its checksum")
	f.StringArrayVar(&pairs, "label", nil, "label of the backup, key=value; repeat for each")
	f.StringVar(&q.CompressionMethod, "compression-method", "lz4", "lz4, gzip or none; for a volume's first backup")
	f.Int32Var(&q.ConcurrentLimit, "concurrent-limit", 1, "most blocks that are worked on at a time")
	f.StringVar(&q.StorageClassName, "storage-class-name", "", "storage class of the volume")
	f.IntVar(&blockMiB, "backup-block-size", 0, "size of blocks in MiB, 2 or 16")
	f.Int64Var(&mib, bandwidthFlag, 0, bandwidthUsage)
	return c
}

const (
	bandwidthFlag  = "node-bandwidth"
	bandwidthUsage = "most MiB per second that all backups and restores of the node send and read; 0: no bound"
)

// bandwidth is a number of MiB in bytes.
func bandwidth(mib int64) (int64, error) {
	if mib < 0 || mib > 1<<20 {
		return 0, fmt.Errorf("--%s is at least 0 and at most 1048576", bandwidthFlag)
	}
	return mib << 20, nil
}

// statusOutput is the JSON of `backups status`.
type statusOutput struct {
	Progress       int32  `json:"progress"`
	BackupURL      string `json:"backupURL,omitempty"`
	Error          string `json:"error,omitempty"`
	SnapshotName   string `json:"snapshotName"`
	State          string `json:"state"`
	ReplicaAddress string `json:"replicaAddress"`
}

func backupStatusCommand(g *globals) *cobra.Command {
	c := &cobra.Command{Use: "status BACKUPID", Short: "Show the progress of a backup as JSON", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.order(cmd, func(ctx context.Context, to enginev1.EngineClient) error {
				s, err := to.Get(ctx, &enginev1.GetRequest{})
				if err != nil {
					return err
				}
				b := s.GetBackups()[args[0]]
				if b == nil {
					return fmt.Errorf("cannot find backup %s: this engine has not begun it, or has forgotten it", args[0])
				}
				return printLine(cmd, statusOutput{b.GetProgress(), b.GetUrl(), b.GetError(), b.GetSnapshot(), b.GetState(),
					b.GetFromAddress()})
			})
		}}
	// The engine knows of its backups, whichever replica it reads.
	c.Flags().String("replica", "", "accepted, no effect")
	c.Flags().String("replica-instance-name", "", "accepted, no effect")
	return c
}

// taskError is the JSON of a restore that did not begin.
type taskError struct {
	ReplicaErrors []replicaError
}

type replicaError struct{ Address, Message string }

func backupRestoreCommand(g *globals) *cobra.Command {
	q, mib := &enginev1.BackupRestoreRequest{}, int64(0)
	c := &cobra.Command{Use: "restore URL", Short: "Begin to fill this volume with a backup",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.NodeBandwidth, err = bandwidth(mib); err != nil {
				return err
			}
			q.Url, q.Credentials = args[0], target.Environ(os.Environ())
			err = g.ask(cmd, 0, func(ctx context.Context, to enginev1.EngineClient) error {
				_, err := to.BackupRestore(ctx, q)
				return err
			})
			if err != nil {
				return errors.Join(err, printLine(cmd, taskError{[]replicaError{{engineAddress(g.url), err.Error()}}}))
			}
			return nil
		}}
	c.Flags().Int32Var(&q.ConcurrentLimit, "concurrent-limit", 1, "most blocks that are worked on at a time")
	c.Flags().Int64Var(&mib, bandwidthFlag, 0, bandwidthUsage)
	c.Flags().BoolVar(&q.AcceptDamage, "accept-damage", false, "what the store does not have becomes zero")
	return c
}

// restoreOutput is one replica in the JSON of `backups restore-status`.
type restoreOutput struct {
	IsRestoring            bool   `json:"isRestoring"`
	Progress               int32  `json:"progress,omitempty"`
	Error                  string `json:"error,omitempty"`
	Filename               string `json:"filename,omitempty"`
	State                  string `json:"state"`
	BackupURL              string `json:"backupURL"`
	LastRestored           string `json:"lastRestored"`
	CurrentRestoringBackup string `json:"currentRestoringBackup"`
	Interrupted            bool   `json:"interrupted,omitempty"`
	Damage                 string `json:"damage,omitempty"`
}

func backupRestoreStatusCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "restore-status", Short: "Show the progress of the restore into this volume as JSON",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.order(cmd, func(ctx context.Context, to enginev1.EngineClient) error {
				s, err := to.Get(ctx, &enginev1.GetRequest{})
				if err != nil {
					return err
				}
				return printLine(cmd, restoreStatus(s))
			})
		}}
}

func restoreStatus(s *enginev1.State) map[string]restoreOutput {
	out := map[string]restoreOutput{}
	for _, r := range s.GetReplicas() {
		m := s.GetRestore()
		if r.GetMode() == enginev1.Mode_MODE_ERR {
			m = nil // it has no part in it
		}
		o := restoreOutput{IsRestoring: m.GetRunning(), Progress: m.GetProgress(), Error: m.GetError(), State: m.GetState(),
			BackupURL: s.GetRestoreUrl(), Interrupted: m.GetInterrupted(), Damage: s.GetRestoreDamage()}
		switch {
		case m == nil:
		case m.GetState() == "complete":
			o.LastRestored = m.GetSnapshot()
		default:
			o.CurrentRestoringBackup = m.GetSnapshot()
		}
		if m != nil {
			o.Filename = "volume-snap-" + m.GetName() + ".img"
		}
		out[r.GetAddress()] = o
	}
	return out
}

// look has a worker carry out an order that concerns a store alone, and prints its result.
func look(cmd *cobra.Command, o worker.Order, print bool) error {
	o.Credentials = target.Environ(os.Environ())
	result, err := worker.Run(cmd.Context(), worker.Job{Order: o})
	if err != nil || !print {
		return err
	}
	return printJSON(cmd.OutOrStdout(), json.RawMessage(result))
}

// ofObject is a verb that shows something of a volume or a backup.
func ofObject(use, short, do string, needsBackup bool) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := target.ParseObject(args[0])
			if err == nil && needsBackup && o.Backup == "" {
				err = fmt.Errorf("%w: it names no backup", target.ErrURL)
			}
			if err != nil {
				return err
			}
			return look(cmd, worker.Order{Do: do, Target: o.Target.URL(), Volume: o.Volume, Backup: o.Backup}, true)
		}}
}

func backupListCommand() *cobra.Command {
	o := worker.Order{Do: worker.List}
	c := &cobra.Command{Use: "list DEST", Aliases: []string{"ls"}, Short: "List volumes and backups of a store as JSON",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Target = args[0]
			return look(cmd, o, true)
		}}
	c.Flags().StringVar(&o.Volume, "volume", "", "only this volume")
	c.Flags().BoolVar(&o.VolumeOnly, "volume-only", false, "no backups")
	return c
}

func backupRemoveCommand() *cobra.Command {
	volume := ""
	c := &cobra.Command{Use: "remove URL", Aliases: []string{"rm", "delete"},
		Short: "Remove a backup, or with --volume all of a volume", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if volume != "" {
				return look(cmd, worker.Order{Do: worker.DeleteVolume, Target: args[0], Volume: volume}, false)
			}
			o, err := target.ParseObject(args[0])
			if err == nil && o.Backup == "" {
				err = fmt.Errorf("%w: it names no backup; --volume removes all of a volume", target.ErrURL)
			}
			if err != nil {
				return err
			}
			return look(cmd, worker.Order{Do: worker.Delete, Target: o.Target.URL(), Volume: o.Volume, Backup: o.Backup}, false)
		}}
	c.Flags().StringVar(&volume, "volume", "", "URL is that of a target: remove all of this volume there")
	return c
}

func imageListCommand() *cobra.Command {
	return &cobra.Command{Use: "ls-backing-image DEST", Short: "List the backing images that a store has as JSON",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return look(cmd, worker.Order{Do: worker.ListImages, Target: args[0]}, true)
		}}
}

// ofImage is a verb about the backup of a backing image.
func ofImage(use, short, do string, print bool) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := target.ParseImage(args[0])
			if err != nil {
				return err
			}
			return look(cmd, worker.Order{Do: do, Target: i.Target.URL(), Image: i.Name}, print)
		}}
}

// verified says what a URL has verified: a volume, or a backing image.
func verified(o *worker.Order, url string) error {
	if i, err := target.ParseImage(url); err == nil {
		o.Target, o.Image = i.Target.URL(), i.Name
		return nil
	}
	of, err := target.ParseObject(url)
	if err == nil {
		o.Target, o.Volume = of.Target.URL(), of.Volume
	}
	return err
}

// backupVerifyCommand is a verb that the reference has not.
func backupVerifyCommand() *cobra.Command {
	o := worker.Order{Do: worker.Verify}
	after, mib := "", int64(0)
	c := &cobra.Command{Use: "verify URL", Args: cobra.ExactArgs(1),
		Short: "Read what a store has of a volume, or of a backing image, and show as JSON what is wrong",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := verified(&o, args[0]); err != nil {
				return err
			}
			if after != "" {
				var err error
				if o.Verify.After, err = format.ParseChecksum(after); err != nil {
					return fmt.Errorf("--after: %w", err)
				}
			}
			if mib < 0 || mib > 1<<20 || o.Verify.For < 0 {
				return errors.New("--bandwidth and --for are not negative, and --bandwidth is at most 1048576")
			}
			o.Verify.BytesPerSecond = mib << 20
			return look(cmd, o, true)
		}}
	c.Flags().StringVar(&after, "after", "", "go on behind this block, as an earlier part has said")
	c.Flags().DurationVar(&o.Verify.For, "for", 0, "end after about so long, with the block to go on behind; 0: at the end")
	c.Flags().Int64Var(&mib, "bandwidth", 0, "most MiB per second that are read of blocks; 0: no bound")
	return c
}
