// Package offline has the commands that need no cluster: they read the directories of replicas, and
// print what is in them.
package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/offline"
)

// replicaFiles are the commands that need no cluster: they read replica directories.
type replicaFiles struct {
	out, err io.Writer
	// terminal says that err is a terminal, where progress can be drawn.
	terminal bool
	output   string
}

// Commands are inspect, hash, export and check; export alone does more than read.
func Commands(out, err io.Writer, terminal bool) (inspect, hash, export, check *cobra.Command) {
	a := &replicaFiles{out: out, err: err, terminal: terminal}
	return a.inspect(), a.hash(), a.export(), a.check()
}

func (a *replicaFiles) encode(what any) error { return output.Encode(a.out, a.output, what) }

// offlineFlags are what all of them take.
type offlineFlags struct {
	backing, size, head string
}

func (f *offlineFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.backing, "backing-file", "",
		"raw image below the volume, where the recorded path does not exist here")
	c.Flags().StringVar(&f.size, "size", "", "the volume's size, where volume.meta is lost")
	c.Flags().StringVar(&f.head, "head", "", "the head's file name, where volume.meta is lost and there are several")
}

func (f *offlineFlags) options() (offline.Options, error) {
	o := offline.Options{BackingFile: f.backing, Head: f.head}
	if f.size != "" {
		n, err := output.ParseBytes(f.size)
		if err != nil {
			return o, err
		}
		o.SizeBytes = n
	}
	return o, nil
}

// open opens a directory; the caller closes it.
func (f *offlineFlags) open(dir string) (*offline.Directory, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	return offline.Open(dir, o)
}

func (a *replicaFiles) inspect() *cobra.Command {
	var f offlineFlags
	c := &cobra.Command{Use: "inspect DIR", Short: "Explain a replica directory, without a cluster",
		Long: `Explain a replica directory: its chain of snapshots, what it remembers of the other replicas, and what is wrong with it.
Nothing is changed. The directory may be of a reference engine.`,
		Args: usage.Exactly("the replica's directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := f.open(args[0])
			if err != nil {
				return err
			}
			defer d.Close() // only a lock
			r, err := d.Inspect()
			if err != nil {
				return err
			}
			if a.output != output.Plain {
				return a.encode(r)
			}
			return writeReport(a.out, r)
		}}
	f.add(c)
	output.AddStructured(c, &a.output)
	return c
}

func (a *replicaFiles) hash() *cobra.Command {
	var f offlineFlags
	var snapshot string
	var all bool
	c := &cobra.Command{Use: "hash DIR [--snapshot NAME | --all]",
		Short: "Print the SHA-256 of a volume's content, from a replica directory",
		Args:  usage.Exactly("the replica's directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := f.open(args[0])
			if err != nil {
				return err
			}
			defer d.Close() // only a lock
			a.warnOfContent(d)
			names := []string{snapshot}
			if all {
				if names, err = d.Snapshots(); err != nil {
					return err
				}
			}
			sums, err := a.hashes(cmd.Context(), d, names)
			if err != nil {
				return err
			}
			if a.output != output.Plain {
				if all {
					return a.encode(sums)
				}
				return a.encode(sums[0])
			}
			for _, s := range sums {
				fmt.Fprintf(a.out, "%s  %s\n", s.SHA256, s.Snapshot)
			}
			return nil
		}}
	f.add(c)
	c.Flags().StringVar(&snapshot, "snapshot", offline.Head, "the snapshot to look at")
	c.Flags().BoolVar(&all, "all", false, "every snapshot, and the head")
	c.MarkFlagsMutuallyExclusive("snapshot", "all")
	output.AddStructured(c, &a.output)
	return c
}

func (a *replicaFiles) hashes(ctx context.Context, d *offline.Directory, names []string) ([]offline.Sum, error) {
	p := output.NewSlowLine(a.err, a.terminal)
	defer p.Stop()
	var sums []offline.Sum
	for _, name := range names {
		one, err := d.Hash(ctx, name, bytesOf(p, "reading "+name))
		if err != nil {
			return nil, err
		}
		sums = append(sums, one)
	}
	return sums, nil
}

// bytesOf shows a long operation's progress on p.
func bytesOf(p *output.Line, what string) offline.Progress {
	return func(done, total int64) {
		percent := 100
		if total > 0 {
			percent = int(float64(done) / float64(total) * 100)
		}
		p.Set(percent, "%s, %s of %s", what, output.Size(done), output.Size(total))
	}
}

// warnOfContent says on the error stream where a directory's content is not the volume's.
func (a *replicaFiles) warnOfContent(d *offline.Directory) {
	if r, err := d.Inspect(); err == nil && (r.State == offline.StateRebuilding || r.Membership.State == "WO") {
		fmt.Fprintf(a.err,
			"warning: %s was being rebuilt and is not complete; what it holds is not the volume's content\n", d.Path)
	}
}

func (a *replicaFiles) export() *cobra.Command {
	var f offlineFlags
	var snapshot string
	var o offline.ExportOptions
	c := &cobra.Command{Use: "export DIR [--snapshot NAME] FILE",
		Short: "Copy a volume's content out of a replica directory, as an image",
		Args:  usage.Exactly("the replica's directory", "the image to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(offline.Formats, o.Format) {
				return usage.Errorf("unknown image format %q; use one of %s", o.Format, strings.Join(offline.Formats, ", "))
			}
			d, err := f.open(args[0])
			if err != nil {
				return err
			}
			defer d.Close() // only a lock
			a.warnOfContent(d)
			p := output.NewSlowLine(a.err, a.terminal)
			defer p.Stop()
			o.Progress = bytesOf(p, "copying "+snapshot)
			done, err := d.Export(cmd.Context(), snapshot, args[1], o)
			if err != nil {
				return err
			}
			p.Stop()
			if a.output != output.Plain {
				return a.encode(done)
			}
			fmt.Fprintf(a.out, "%s written: %s of %s, %s, occupies %s\n", done.File, done.Snapshot, d.Path,
				output.Size(done.SizeBytes), output.Size(done.AllocatedBytes))
			return nil
		}}
	f.add(c)
	c.Flags().StringVar(&snapshot, "snapshot", offline.Head, "the snapshot to copy")
	c.Flags().StringVar(&o.Format, "format", offline.FormatRaw, "format: "+strings.Join(offline.Formats, ", "))
	c.Flags().BoolVar(&o.Force, "force", false, "replace a file that is there")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(offline.Formats, cobra.ShellCompDirectiveNoFileComp))
	output.AddStructured(c, &a.output)
	return c
}

// ErrFound is the error of a check that found something: the report has said what.
var ErrFound = errors.New("the check found errors")

// checkResult is the structured output of a check.
type checkResult struct {
	*offline.CheckReport
	Other    *offline.CheckReport `json:"other,omitempty"`
	Compared []offline.Comparison `json:"compared,omitempty"`
}

func (a *replicaFiles) check() *cobra.Command {
	var f offlineFlags
	var other string
	c := &cobra.Command{Use: "check DIR [--compare DIR]",
		Short: "Check a replica directory, compare it with another one",
		Long: `Check a replica directory: its form, that every file can be read, and checksums where they are recorded. With --compare also
whether another replica has the same content at every snapshot that both have. The exit status is 1 if something is wrong.

Nothing is changed. An engine rebuilds a damaged replica from a sound one; without engines, export a sound one and import it.`,
		Args: usage.Exactly("the replica's directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.checkAll(cmd.Context(), &f, args[0], other)
		}}
	f.add(c)
	c.Flags().StringVar(&other, "compare", "", "another replica of the same volume")
	output.AddStructured(c, &a.output)
	return c
}

func (a *replicaFiles) checkAll(ctx context.Context, f *offlineFlags, dir, other string) error {
	d, err := f.open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // only a lock
	p := output.NewSlowLine(a.err, a.terminal)
	defer p.Stop()
	var all checkResult
	if all.CheckReport, err = d.Check(ctx, bytesOf(p, "reading "+dir)); err != nil {
		return err
	}
	failed := all.Failed()
	if other != "" {
		o, err := f.open(other)
		if err != nil {
			return err
		}
		defer o.Close() // only a lock
		if all.Other, err = o.Check(ctx, bytesOf(p, "reading "+other)); err != nil {
			return err
		}
		failed = failed || all.Other.Failed()
		if all.Compared, err = offline.Compare(ctx, d, o, bytesOf(p, "comparing")); err != nil {
			if !failed || errors.Is(err, context.Canceled) || errors.Is(err, disk.ErrNotFound) {
				return err
			}
			fmt.Fprintf(a.err, "not compared: %v\n", err)
		}
		failed = failed || slices.ContainsFunc(all.Compared, func(c offline.Comparison) bool {
			return c.In == offline.InBoth && !c.Equal && !c.Explained
		})
	}
	p.Stop()
	if a.output != output.Plain {
		err = a.encode(all)
	} else {
		err = writeCheck(a.out, all)
	}
	if err == nil && failed {
		err = ErrFound
	}
	return err
}
