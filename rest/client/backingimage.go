package client

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"

	"ankole.storage/rest/resource"
)

// BackingImageSpec is what is wanted of a new backing image.
type BackingImageSpec struct {
	Name string `json:"name"`
	// SourceType is download, with parameter url, or upload.
	SourceType       string            `json:"sourceType"`
	Parameters       map[string]string `json:"parameters"`
	ExpectedChecksum string            `json:"expectedChecksum,omitempty"`
	// MinNumberOfCopies is how many disks have one; 0 is left to the server.
	MinNumberOfCopies int      `json:"minNumberOfCopies,omitempty"`
	NodeSelector      []string `json:"nodeSelector,omitempty"`
	DiskSelector      []string `json:"diskSelector,omitempty"`
}

// BackingImages lists all backing images.
func (c *Client) BackingImages(ctx context.Context) ([]resource.BackingImage, error) {
	return list[resource.BackingImage](ctx, c, resource.TypeBackingImage)
}

// BackingImage reads one backing image.
func (c *Client) BackingImage(ctx context.Context, name string) (*resource.BackingImage, error) {
	return one[resource.BackingImage](ctx, c, http.MethodGet, resource.TypeBackingImage, name, nil)
}

// CreateBackingImage orders a backing image; it returns at once, before there is a file.
func (c *Client) CreateBackingImage(ctx context.Context, spec BackingImageSpec) (*resource.BackingImage, error) {
	if spec.Parameters == nil {
		spec.Parameters = map[string]string{}
	}
	var out resource.BackingImage
	if err := c.call(ctx, http.MethodPost, c.url(resource.Path(resource.TypeBackingImage)), spec, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteBackingImage orders the deletion of a backing image and all its copies; it returns at once.
func (c *Client) DeleteBackingImage(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeBackingImage, name)
}

// UploadBackingImage sends the content of an image, size bytes, and returns when it is stored. It
// has no time limit but that of the context.
func (c *Client) UploadBackingImage(ctx context.Context, name string, content io.Reader, size int64) error {
	u, err := c.object(resource.TypeBackingImage, name)
	if err != nil {
		return err
	}
	u.RawQuery = url.Values{"action": {resource.ActionUpload}, "size": {strconv.FormatInt(size, 10)}}.Encode()
	if c.options.DryRun != nil {
		c.options.DryRun(http.MethodPost, u.RequestURI(), nil)
		return ErrDryRun
	}
	body, to := io.Pipe()
	form := multipart.NewWriter(to)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		part, err := form.CreateFormFile("chunk", name)
		if err == nil {
			_, err = io.Copy(part, content)
		}
		to.CloseWithError(errors.Join(err, form.Close()))
	}()
	defer func() {
		_ = body.Close() // the content is not read after the return
		<-sent
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return err
	}
	if req.Header, err = c.header(ctx); err != nil {
		return err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	return stored(ctx, c, req)
}

// DownloadBackingImage writes the content of an image to w, unpacked. It has no time limit but that
// of the context.
func (c *Client) DownloadBackingImage(ctx context.Context, name string, w io.Writer) error {
	u, err := c.object(resource.TypeBackingImage, name)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("download").String(), http.NoBody)
	if err != nil {
		return err
	}
	if req.Header, err = c.header(ctx); err != nil {
		return err
	}
	return given(ctx, c, req, func(body io.Reader) error {
		packed, err := gzip.NewReader(body)
		if err == nil {
			_, err = io.Copy(w, packed)
		}
		return err
	})
}

// stored sends a request whose answer has no content.
func stored(ctx context.Context, c *Client, req *http.Request) error {
	return given(ctx, c, req, func(io.Reader) error { return nil })
}

// given sends a request, and has the content of the answer read.
func given(ctx context.Context, c *Client, req *http.Request, read func(io.Reader) error) error {
	resp, err := c.patient().http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return read(resp.Body)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return refusal(resp.StatusCode, req.URL.Path, text)
}

// BackupImages lists the backups of backing images.
func (c *Client) BackupImages(ctx context.Context) ([]resource.BackupBackingImage, error) {
	return list[resource.BackupBackingImage](ctx, c, resource.TypeBackupBackingImage)
}

// BackupImage reads one backup of a backing image.
func (c *Client) BackupImage(ctx context.Context, name string) (*resource.BackupBackingImage, error) {
	return one[resource.BackupBackingImage](ctx, c, http.MethodGet, resource.TypeBackupBackingImage, name, nil)
}

// BackUpImage orders the backup of a backing image; it returns before there is one.
func (c *Client) BackUpImage(ctx context.Context, image, backupTarget string) error {
	_, err := action[struct{}](ctx, c, resource.TypeBackingImage, image, resource.ActionBackupImageCreate,
		resource.BackupBackingImage{BackupTargetName: backupTarget})
	return err
}

// RestoreBackupImage makes the backing image of a backup again; it returns before there is a copy.
func (c *Client) RestoreBackupImage(ctx context.Context, backup string) error {
	_, err := action[struct{}](ctx, c, resource.TypeBackupBackingImage, backup, resource.ActionBackupImageRestore,
		resource.BackingImageRestoreInput{DataEngine: "v1"})
	return err
}

// DeleteBackupImage deletes the backup of a backing image, in the store too; it returns before
// that.
func (c *Client) DeleteBackupImage(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeBackupBackingImage, name)
}
