package cli

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// States of copies, as the server tells them.
const (
	copyPending = "pending"
	copyReady   = "ready"
	copyFailed  = "failed"
)

var backingImageKind = output.Kind[resource.BackingImage]{
	Name: "backing-image", Id: func(b resource.BackingImage) string { return b.Name },
	None: "no backing images; create one with: ankole backing-image create NAME --url URL",
	Columns: []output.Column[resource.BackingImage]{
		{Header: "NAME", Value: func(b resource.BackingImage) string { return b.Name }},
		{Header: "STATE", Value: imageState},
		{Header: "COPIES", Right: true, Value: func(b resource.BackingImage) string {
			return fmt.Sprintf("%d of %d", copiesIn(b, copyReady), b.MinNumberOfCopies)
		}},
		{Header: "SIZE", Right: true, Value: func(b resource.BackingImage) string { return output.Size(b.Size) }},
		{Header: "SOURCE", Value: func(b resource.BackingImage) string { return b.SourceType }},
		{Header: "FROM", Wide: true, Value: imageFrom},
		{Header: "UUID", Wide: true, Value: func(b resource.BackingImage) string { return b.UUID }},
	},
}

// imageApp has the commands about backing images and their backups.
type imageApp struct{ *app }

// copiesIn is how many copies are in a state.
func copiesIn(b resource.BackingImage, state string) (n int) {
	for _, f := range b.DiskFileStatusMap {
		if f.State == state {
			n++
		}
	}
	return n
}

// imageState is ready if there is a copy to use, else what the first copy that is not says.
func imageState(b resource.BackingImage) string {
	switch {
	case b.DeletionTimestamp != "":
		return "deleting"
	case copiesIn(b, copyReady) > 0:
		return copyReady
	}
	for _, disk := range output.SortedKeys(b.DiskFileStatusMap) {
		if f := b.DiskFileStatusMap[disk]; f.State != "" {
			return copyState(f)
		}
	}
	return copyPending
}

func copyState(f resource.BackingImageDiskFileStatus) string {
	if f.State == "in-progress" {
		return fmt.Sprintf("%s, %d %%", f.State, f.Progress)
	}
	return f.State
}

func backingImageNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.BackingImages(ctx)
	return namesOf(all, func(b resource.BackingImage) string { return b.Name }), err
}

func backingImageByName(ctx context.Context, api *client.Client, name string) (*resource.BackingImage, error) {
	b, err := api.BackingImage(ctx, name)
	return b, named("backing-image", name, err)
}

func (a imageApp) backingImageCommands() *cobra.Command {
	c := &cobra.Command{Use: "backing-image", Aliases: []string{"backing-images"},
		Short: "Golden images, of which volumes are made"}
	c.AddCommand(a.backingImageCreate(), a.backingImageUpload(), a.backingImageDownload(),
		listing(a.app, backingImageKind, "List backing images",
			func(ctx context.Context, api *client.Client) ([]resource.BackingImage, error) {
				return api.BackingImages(ctx)
			}),
		getting(a.app, backingImageKind, "Show backing images", "the backing image's name", backingImageNames,
			backingImageByName),
		lookApp(a).describing("a backing image", "the backing image's name", backingImageNames, describeBackingImage),
		a.backingImageDelete())
	return c
}

// imageWait is how long a first copy may take where nobody says.
const imageWait = time.Hour

// imageSource is where a new image comes from, as flags say.
type imageSource struct{ url, file, volume, snapshot, format, image, encrypt, decrypt string }

// apply completes what is asked for. Secrets are of the namespace, unless they name another one.
func (s *imageSource) apply(spec *client.BackingImageSpec, namespace string) error {
	given := 0
	for _, from := range []string{s.url, s.file, s.volume, s.image} {
		if from != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return usage.Errorf("where the image comes from is missing, or said twice; add --url URL, --file FILE, " +
			"--from-volume VOLUME or --from-image IMAGE")
	case s.volume == "" && (s.snapshot != "" || s.format != ""):
		return usage.Errorf("--snapshot and --format are for images that are made of a volume; add --from-volume VOLUME")
	case s.image == "" && (s.encrypt != "" || s.decrypt != ""):
		return usage.Errorf("--encrypt and --decrypt are for copies of another image; add --from-image IMAGE")
	case s.encrypt != "" && s.decrypt != "":
		return usage.Errorf("an image is encrypted or decrypted; leave out --encrypt or --decrypt")
	case s.url != "":
		spec.SourceType, spec.Parameters = "download", map[string]string{"url": s.url}
	case s.image != "":
		spec.SourceType, spec.Parameters = "clone", map[string]string{"backing-image": s.image}
		for how, secret := range map[string]string{"encrypt": s.encrypt, "decrypt": s.decrypt} {
			if secret != "" {
				recode(spec.Parameters, how, secret, namespace)
			}
		}
	case s.volume != "":
		spec.SourceType, spec.Parameters = "export-from-volume", map[string]string{"volume-name": s.volume}
		if s.snapshot != "" {
			spec.Parameters["snapshot-name"] = s.snapshot
		}
		if s.format != "" {
			spec.Parameters["export-type"] = s.format
		}
	default:
		spec.SourceType = "upload"
		if f, err := os.Stat(s.file); err != nil || !f.Mode().IsRegular() {
			return usage.Errorf("--file %s is not a file that can be uploaded", s.file)
		}
	}
	return nil
}

// imageFrom is what is shown of where an image comes from.
func imageFrom(b resource.BackingImage) string {
	volume, snapshot := b.Parameters["volume-name"], b.Parameters["snapshot-name"]
	if snapshot != "" {
		return "volume " + volume + ", snapshot " + snapshot
	}
	if volume != "" {
		return "volume " + volume
	}
	if image := b.Parameters["backing-image"]; image != "" {
		return "backing image " + image
	}
	return cmp.Or(b.Parameters["url"], b.Parameters["backup-url"])
}

// recode has a copy encrypted or decrypted with the key in a Secret.
func recode(parameters map[string]string, how, secret, namespace string) {
	if other, name, ok := strings.Cut(secret, "/"); ok {
		namespace, secret = other, name
	}
	parameters["encryption"], parameters["secret"], parameters["secret-namespace"] = how, secret, namespace
}

func (a imageApp) backingImageCreate() *cobra.Command {
	var w waiting
	var spec client.BackingImageSpec
	var from imageSource
	c := &cobra.Command{Use: "create NAME (--url URL | --file FILE | --from-volume VOLUME | --from-image IMAGE)",
		Short: "Make a backing image from a URL, from a file of this machine, of a volume, or of another one",
		Example: "  ankole backing-image create debian --url https://example.org/debian.qcow2\n" +
			"  ankole backing-image create golden --file disk.raw --copies 2\n" +
			"  ankole backing-image create template --from-volume vm1 --snapshot installed --format qcow2\n" +
			"  ankole backing-image create secret --from-image golden --encrypt longhorn-crypto",
		Args: usage.Exactly("the backing image's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			if err := from.apply(&spec, a.reach.namespace); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			b, err := api.CreateBackingImage(cmd.Context(), spec)
			if err != nil {
				return err
			}
			if from.file != "" {
				if err := a.upload(cmd.Context(), api, b.Name, from.file, w.timeout); err != nil {
					return fmt.Errorf("backing image %s is there and has no content: %w; try again with: "+
						"ankole backing-image upload %s %s", b.Name, err, b.Name, from.file)
				}
			}
			return a.imageMade(cmd.Context(), api, b.Name, &w)
		}}
	fs := c.Flags()
	fs.StringVar(&from.url, "url", "", "where it is downloaded from: http or https")
	fs.StringVar(&from.file, "file", "", "file that is uploaded: raw, qcow2, or one of them packed by gzip, xz or zstd")
	fs.StringVar(&from.volume, "from-volume", "", "volume of which it is made; it may be in use")
	fs.StringVar(&from.image, "from-image", "", "backing image of which it is a copy under another name")
	fs.StringVar(&from.encrypt, "encrypt", "",
		"with --from-image: Secret with the key that the copy is encrypted with, [NAMESPACE/]NAME")
	fs.StringVar(&from.decrypt, "decrypt", "", "with --from-image: Secret with the key that the copy is decrypted with")
	fs.StringVar(&from.snapshot, "snapshot", "", "snapshot of that volume (default: one of its present content)")
	fs.StringVar(&from.format, "format", "", "format of an image of a volume: raw or qcow2 (default raw)")
	fs.StringVar(&spec.ExpectedChecksum, "checksum", "", "SHA-512 that the image must have, unpacked")
	fs.IntVar(&spec.MinNumberOfCopies, "copies", 0,
		"how many disks have a copy (default: setting default-min-number-of-backing-image-copies)")
	fs.StringSliceVar(&spec.NodeSelector, "node-tag", nil, "tag of nodes that may have a copy; may be repeated")
	fs.StringSliceVar(&spec.DiskSelector, "disk-tag", nil, "tag of disks that may have a copy; may be repeated")
	w.addFor(c, imageWait)
	return c
}

func (a imageApp) backingImageUpload() *cobra.Command {
	var w waiting
	c := &cobra.Command{Use: "upload NAME FILE", Short: "Upload the content of a backing image that waits for it",
		Args: usage.Exactly("the backing image's name", "the file"), ValidArgsFunction: a.completeNames(0, backingImageNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if _, err := backingImageByName(cmd.Context(), api, args[0]); err != nil {
				return err
			}
			if err := a.upload(cmd.Context(), api, args[0], args[1], w.timeout); err != nil {
				return err
			}
			return a.imageMade(cmd.Context(), api, args[0], &w)
		}}
	w.addFor(c, imageWait)
	return c
}

// imageEach is the pause between two looks at an image that is being made.
const imageEach = 500 * time.Millisecond

// upload sends a file once the image waits for it.
func (a imageApp) upload(ctx context.Context, api *client.Client, name, path string, timeout time.Duration) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	state := copyPending
	err = poll(ctx, timeout, imageEach, func(ctx context.Context) (bool, error) {
		b, err := api.BackingImage(ctx, name)
		if err != nil {
			return true, err
		}
		state = imageState(*b)
		for _, c := range b.DiskFileStatusMap {
			// While nobody can take it the message says why.
			if c.State == copyPending && c.Message == "" || c.State == copyFailed {
				return true, nil
			}
		}
		return false, nil
	}, func() error {
		return fmt.Errorf("backing image %s takes no upload after %s: it is %s", name, timeout, state)
	})
	if err != nil {
		return err
	}
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	sent := &counted{r: f, told: func(n int64) {
		line.Set(int(n*100/max(1, info.Size())), "backing image %s: %s of %s sent", name, output.Size(n), output.Size(
			info.Size()))
	}}
	return api.UploadBackingImage(ctx, name, sent, info.Size())
}

// counted tells how many bytes were read or written.
type counted struct {
	r    io.Reader
	w    io.Writer
	n    int64
	told func(int64)
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.told(c.n)
	return n, err
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.told(c.n)
	return n, err
}

func (a imageApp) backingImageDownload() *cobra.Command {
	return &cobra.Command{Use: "download NAME FILE",
		Short:             "Download a backing image, as its disks have it, to a file that is not there yet",
		Args:              usage.Exactly("the backing image's name", "the file"),
		ValidArgsFunction: a.completeNames(0, backingImageNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			b, err := backingImageByName(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			f, err := os.OpenFile(args[1], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
			if err != nil {
				return err
			}
			err = a.download(cmd.Context(), api, b, f)
			if err = errors.Join(err, f.Close()); err != nil {
				return errors.Join(err, os.Remove(args[1]))
			}
			fmt.Fprintf(a.out, "backing image %s is in %s\n", b.Name, args[1])
			return nil
		}}
}

// download writes an image to a file, and compares its checksum.
func (a imageApp) download(ctx context.Context, api *client.Client, b *resource.BackingImage, f io.Writer) error {
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	sum := sha512.New()
	err := api.DownloadBackingImage(ctx, b.Name, &counted{w: io.MultiWriter(f, sum), told: func(n int64) {
		line.Set(int(n*100/max(1, b.Size)), "backing image %s: %s of %s have come", b.Name, output.Size(n),
			output.Size(b.Size))
	}})
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && b.CurrentChecksum != "" && got != b.CurrentChecksum {
		err = fmt.Errorf("backing image %s has come with SHA-512 %s, and not %s: its copy has changed on the disk; see: "+
			"ankole backing-image describe %s", b.Name, got, b.CurrentChecksum, b.Name)
	}
	return err
}

// imageMade waits until an image has a copy that is ready, unless the user does not.
func (a imageApp) imageMade(ctx context.Context, api *client.Client, name string, w *waiting) error {
	if !w.wait {
		fmt.Fprintf(a.out, "backing image %s is being made; see how far it is with: ankole backing-image describe %s\n", name,
			name)
		return nil
	}
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	state := copyPending
	err := poll(ctx, w.timeout, imageEach, func(ctx context.Context) (bool, error) {
		b, err := api.BackingImage(ctx, name)
		if err != nil {
			return true, err
		}
		if state = imageState(*b); state == copyReady {
			return true, nil
		}
		for disk, f := range b.DiskFileStatusMap {
			if f.State == copyFailed {
				return true, fmt.Errorf("backing image %s has failed on disk %s: %s; see: ankole backing-image describe %s", name,
					disk, output.OrUnknown(f.Message), name)
			}
		}
		line.Set(output.UnknownPercent, "backing image %s: %s", name, state)
		return false, nil
	}, func() error {
		return fmt.Errorf("backing image %s is not ready after %s: it is %s; see why with: ankole backing-image describe %s",
			name, w.timeout, state, name)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "backing image %s is ready\n", name)
	return nil
}

func (a imageApp) backingImageDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete NAME…", Short: "Delete backing images on which no volume stands, with all copies",
		Args: usage.AtLeast(1, "the backing image's name"), ValidArgsFunction: a.completeNames(0, backingImageNames)}
	return a.deleting(c, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
		b, err := backingImageByName(ctx, api, t.name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("backing image %s: %s, %s", b.Name, output.Size(b.Size),
			output.Count(len(b.DiskFileStatusMap), "copy")), nil
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		return "backing image " + t.name + " is being deleted", named("backing-image", t.name,
			api.DeleteBackingImage(ctx, t.name))
	})
}

// imageCopy is a row of a sheet.
type imageCopy struct {
	disk string
	resource.BackingImageDiskFileStatus
}

var imageCopyColumns = []output.Column[imageCopy]{
	{Header: "DISK", Value: func(c imageCopy) string { return c.disk }},
	{Header: "STATE", Value: func(c imageCopy) string { return output.OrDash(copyState(c.BackingImageDiskFileStatus)) }},
	{Header: "SINCE", Value: func(c imageCopy) string { return output.OrDash(c.LastStateTransitionTime) }},
	{Header: "MESSAGE", Value: func(c imageCopy) string { return c.Message }},
}

func describeBackingImage(ctx context.Context, api *client.Client, name string) (*described, error) {
	b, err := backingImageByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	var rows []imageCopy
	for _, disk := range output.SortedKeys(b.DiskFileStatusMap) {
		rows = append(rows, imageCopy{disk, b.DiskFileStatusMap[disk]})
	}
	return &described{Object: b, WaitsFor: b.WaitsFor, of: "backing-image/" + b.Name, print: func(s *output.Sheet) {
		s.Pair("Backing image", "%s", b.Name)
		s.Pair("State", "%s", imageState(*b))
		s.Pair("Source", "%s %s", b.SourceType, imageFrom(*b))
		s.Pair("Size", "%s, as a disk %s", output.Size(b.Size), output.Size(b.VirtualSize))
		s.Pair("Checksum", "%s", output.OrDash(b.CurrentChecksum))
		s.Pair("Expected", "%s", b.ExpectedChecksum)
		s.Pair("Copies", "%s of %s ready", strconv.Itoa(copiesIn(*b, copyReady)), strconv.Itoa(b.MinNumberOfCopies))
		s.WaitsFor()
		output.SheetTable(s, "Copies", imageCopyColumns, rows)
	}}, nil
}
