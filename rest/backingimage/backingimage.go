package backingimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var backingImages = serve.Kind[lh.BackingImage, *lh.BackingImage, resource.BackingImage]{
	TypeID: resource.TypeBackingImage, What: "backing image", View: backingImageView,
	List: func() (client.ObjectList, *[]lh.BackingImage) {
		l := &lh.BackingImageList{}
		return l, &l.Items
	},
}

// API answers requests about backing images.
type API struct {
	// DialPod connects to the processes of backing images, for uploads and downloads. Nil: those are
	// refused.
	DialPod func(ctx context.Context, address string) (net.Conn, error)
}

// Routes are those of backing images.
func (i *API) Routes() []serve.Route {
	return []serve.Route{
		{Path: "/v1/backingimages", Methods: map[string]serve.Handler{http.MethodGet: backingImages.All,
			http.MethodPost: createBackingImage}},
		{Path: "/v1/backingimages/{name}", Methods: map[string]serve.Handler{http.MethodGet: backingImages.One,
			http.MethodDelete: deleteBackingImage}, Actions: map[string]serve.Handler{
			resource.ActionBackingImageCleanup: cleanUpBackingImage, resource.ActionUpload: i.uploadBackingImage,
			resource.ActionUpdateMinNumberOfCopies: updateCopies, resource.ActionBackupImageCreate: backUpImage},
			Limits: map[string]time.Duration{resource.ActionUpload: imageLimit}},
		{Path: "/v1/backingimages/{name}/download", Raw: i.serveImage, Stream: true},
	}
}

// Streams are the lists of the same.
func (i *API) Streams() map[string]serve.Stream {
	return map[string]serve.Stream{"backingimages": backingImages.Stream()}
}

// fileNotStarted is what a client reads of a copy that is wanted and of which nothing is known yet.
const fileNotStarted = "File processing is not started"

func backingImageView(q *serve.Request, b *lh.BackingImage) resource.BackingImage {
	spec, s := &b.Spec, &b.Status
	out := resource.BackingImage{Resource: q.Envelope(resource.TypeBackingImage, b.Name, resource.WhenAlways),
		Name: b.Name, UUID: s.UUID, SourceType: string(spec.SourceType), Parameters: spec.SourceParameters,
		ExpectedChecksum: spec.Checksum, CurrentChecksum: s.Checksum, MinNumberOfCopies: spec.MinNumberOfCopies,
		NodeSelector: spec.NodeSelector, DiskSelector: spec.DiskSelector,
		DiskFileStatusMap: map[string]resource.BackingImageDiskFileStatus{}, Size: s.Size, VirtualSize: s.VirtualSize,
		Secret: spec.Secret, SecretNamespace: spec.SecretNamespace, DataEngine: string(spec.DataEngine)}
	for disk, wanted := range spec.DiskFileSpecMap {
		out.DiskFileStatusMap[disk] = resource.BackingImageDiskFileStatus{Message: fileNotStarted,
			DataEngine: string(wanted.DataEngine)}
	}
	for disk, f := range s.DiskFileStatusMap {
		out.DiskFileStatusMap[disk] = resource.BackingImageDiskFileStatus{State: string(f.State), Progress: f.Progress,
			Message: f.Message, LastStateTransitionTime: f.LastStateTransitionTime, DataEngine: string(f.DataEngine)}
	}
	if b.DeletionTimestamp != nil {
		out.DeletionTimestamp = b.DeletionTimestamp.UTC().Format(serve.TimeText)
	}
	var places map[string]string
	if !findings.BackingImageReady(&out) { // else nobody asks for them
		places = placesOf(q, out.DiskFileStatusMap)
	}
	out.WaitsFor = findings.BackingImage(&out, places)
	return out
}

// placesOf names the disks that have copies, by their UUIDs, where a node reports them. The cache
// answers, also for a stream, which has no caller.
func placesOf(q *serve.Request, of map[string]resource.BackingImageDiskFileStatus) map[string]string {
	var nodes lh.NodeList
	if q.Objects.ListShared(context.Background(), &nodes) != nil {
		return nil // then they have their UUIDs
	}
	out := map[string]string{}
	for i := range nodes.Items {
		for name, d := range nodes.Items[i].Status.DiskStatus {
			if _, ok := of[d.DiskUUID]; ok {
				out[d.DiskUUID] = nodes.Items[i].Name + ", disk " + name
			}
		}
	}
	return out
}

// createBackingImage records the image; its first file is made afterwards.
func createBackingImage(q *serve.Request) (any, error) {
	var in resource.BackingImage
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	b := &lh.BackingImage{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Namespace: q.Objects.Namespace},
		Spec: lh.BackingImageSpec{SourceType: lh.BackingImageSourceType(in.SourceType), SourceParameters: in.Parameters,
			Checksum: in.ExpectedChecksum, MinNumberOfCopies: in.MinNumberOfCopies, NodeSelector: in.NodeSelector,
			DiskSelector: in.DiskSelector, Secret: in.Secret, SecretNamespace: in.SecretNamespace,
			DataEngine: lh.DataEngineType(in.DataEngine)}}
	copies := max(1, in.MinNumberOfCopies) // the setting, where none are asked for, is admission's to read
	if in.MinNumberOfCopies < 0 {
		copies = in.MinNumberOfCopies
	}
	judged := b.DeepCopy()
	admission.CompleteBackingImage(judged, true, copies)
	err := admission.CheckBackingImage(nil, judged)
	if err == nil {
		err = q.Objects.Create(q.Context(), b)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to create backing image %s: %w", in.Name, err)
	}
	return backingImages.Named(q, b.Name)
}

// deleteBackingImage has the copies of an image removed, in the background.
func deleteBackingImage(q *serve.Request) (any, error) {
	name := q.Params["name"]
	users, err := usersOfImage(q, name)
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		return nil, fmt.Errorf("cannot delete backing image %s since there are replicas using it", name)
	}
	b := &lh.BackingImage{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.Objects.Namespace}}
	if err := q.Objects.Client.Delete(q.Context(), b); err != nil {
		return nil, fmt.Errorf("unable to delete backing image %s: %w", name, err)
	}
	return nil, nil
}

// usersOfImage are the replicas that stand on an image, by the UUID of their disk.
func usersOfImage(q *serve.Request, name string) (map[string][]string, error) {
	var all lh.ReplicaList
	if err := q.Objects.List(q.Context(), &all); err != nil {
		return nil, fmt.Errorf("listing replicas: %w", err)
	}
	users := map[string][]string{}
	for i := range all.Items {
		if r := &all.Items[i]; r.Spec.BackingImage == name {
			users[r.Spec.DiskID] = append(users[r.Spec.DiskID], r.Name)
		}
	}
	return users, nil
}

// changeBackingImage changes the image that the path names, and answers with it.
func changeBackingImage(q *serve.Request, what string, change func(*lh.BackingImage) error) (any, error) {
	name := q.Params["name"]
	err := conflict.Retry(func() error {
		var b lh.BackingImage
		if err := q.Objects.Get(q.Context(), name, &b); err != nil {
			return err
		}
		if err := change(&b); err != nil {
			return err
		}
		return q.Objects.Client.Update(q.Context(), &b)
	})
	if err != nil {
		return nil, fmt.Errorf("unable to %s of backing image %s: %w", what, name, err)
	}
	return backingImages.One(q)
}

func updateCopies(q *serve.Request) (any, error) {
	var in resource.UpdateMinNumberOfCopiesInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	return changeBackingImage(q, "update the number of copies", func(b *lh.BackingImage) error {
		if in.MinNumberOfCopies < 1 {
			return fmt.Errorf("minNumberOfCopies is %d, it should be at least 1", in.MinNumberOfCopies)
		}
		b.Spec.MinNumberOfCopies = in.MinNumberOfCopies
		return nil
	})
}

// cleanUpBackingImage removes copies, all of those that are named or none.
func cleanUpBackingImage(q *serve.Request) (any, error) {
	var in resource.BackingImageCleanupInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	users, err := usersOfImage(q, q.Params["name"])
	if err != nil {
		return nil, err
	}
	making, err := sourceOf(q, q.Params["name"])
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return changeBackingImage(q, "clean up copies", func(b *lh.BackingImage) error {
		ready := func() (n int) {
			for disk := range b.Spec.DiskFileSpecMap {
				if b.Status.DiskFileStatusMap[disk].State == lh.BackingImageStateReady {
					n++
				}
			}
			return n
		}
		before := ready()
		for _, disk := range in.Disks {
			switch _, has := b.Spec.DiskFileSpecMap[disk]; {
			case !has:
				return fmt.Errorf("it has no copy on disk %s", disk)
			case len(users[disk]) > 0:
				return fmt.Errorf("disk %s: there is at least one replica using it: %s", disk, users[disk][0])
			case making != nil && !making.Spec.FileTransferred && making.Spec.DiskUUID == disk:
				return fmt.Errorf("disk %s: its first file is made there", disk)
			}
			delete(b.Spec.DiskFileSpecMap, disk)
		}
		if after := ready(); after < before && after < b.Spec.MinNumberOfCopies {
			return fmt.Errorf("%d of %d copies would be left, which is fewer than its minNumberOfCopies, %d", after, before,
				b.Spec.MinNumberOfCopies)
		}
		return nil
	})
}

// backUpImage orders the backup of an image; it is answered before there is one.
func backUpImage(q *serve.Request) (any, error) {
	var in resource.BackupBackingImage
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name, target := q.Params["name"], cmp.Or(in.BackupTargetName, naming.BackupTarget)
	var b lh.BackingImage
	if err := q.Objects.Get(q.Context(), name, &b); err != nil {
		return nil, fmt.Errorf("failed to get backing image %s: %w", name, err)
	}
	order := &lh.BackupBackingImage{ObjectMeta: metav1.ObjectMeta{Name: naming.BackupImageName(name, target),
		Namespace: q.Objects.Namespace}, Spec: lh.BackupBackingImageSpec{BackingImage: name, BackupTargetName: target,
		Labels: in.Labels, UserCreated: true}}
	if err := q.Objects.Create(q.Context(), order); err != nil {
		return nil, fmt.Errorf("unable to back up backing image %s: %w", name, err)
	}
	return nil, nil
}

// sourceOf is the data source of an image.
func sourceOf(q *serve.Request, name string) (*lh.BackingImageDataSource, error) {
	d := &lh.BackingImageDataSource{}
	if err := q.Objects.Get(q.Context(), name, d); err != nil {
		return nil, fmt.Errorf("reading the data source of backing image %s: %w", name, err)
	}
	return d, nil
}

// imageServer is the running manager with the file of an image that is ready, which sends least.
func imageServer(q *serve.Request, b *lh.BackingImage) (*lh.BackingImageManager, error) {
	var all lh.BackingImageManagerList
	if err := q.Objects.List(q.Context(), &all); err != nil {
		return nil, fmt.Errorf("listing backing image managers: %w", err)
	}
	serve.SortByName(all.Items)
	all.Items = slices.DeleteFunc(all.Items, func(m lh.BackingImageManager) bool {
		f := m.Status.BackingImageFileMap[b.Name]
		return m.Status.CurrentState != lh.BackingImageManagerStateRunning || f.UUID != b.Status.UUID ||
			f.State != lh.BackingImageStateReady
	})
	if len(all.Items) == 0 {
		return nil, fmt.Errorf("failed to find a default backing image manager: no disk has backing image %s ready", b.Name)
	}
	return new(slices.MinFunc(all.Items, func(a, c lh.BackingImageManager) int {
		return a.Status.BackingImageFileMap[b.Name].SendingReference - c.Status.BackingImageFileMap[b.Name].SendingReference
	})), nil
}

const (
	// imageLimit bounds the time of an upload, which lasts as long as the user's connection takes.
	imageLimit = 24 * time.Hour
	// imageStall ends a download whose client does not read; it is that of backing image managers.
	imageStall = time.Minute
	// mostImageError bounds what a process says of an error, mostImageList its list of files, in
	// bytes.
	mostImageError = 4 << 10
	mostImageList  = 4 << 20
)

// askImages sends a request to a process of backing images, on a connection of its own.
func (i *API) askImages(ctx context.Context, method, ip string, port int, path string, body io.Reader, size int64,
	contentType string) (*http.Response, error) {
	if i.DialPod == nil {
		return nil, errors.New("this server has no way to the processes of backing images")
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(ip, strconv.Itoa(port))+path, body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = size
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return i.DialPod(ctx, address) }}
	return t.RoundTrip(r)
}

// saysNo is what a process says of a request that it does not serve.
func saysNo(a *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(a.Body, mostImageError)) // what is missing says nothing
	return fmt.Errorf("%s (%s)", strings.TrimSpace(string(text)), a.Status)
}

// uploadBackingImage passes the body on to the data source of the image as it comes, and answers
// when the file is stored:
//
//	POST /v1/backingimages/{name}?action=upload&size=BYTES
//
// The body is multipart/form-data with one part called chunk.
func (i *API) uploadBackingImage(q *serve.Request) (any, error) {
	name, size := q.Params["name"], q.URL.Query().Get("size")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n <= 0 {
		return nil, fmt.Errorf("cannot upload backing image %s: size=%q is not its number of bytes", name, size)
	}
	var b lh.BackingImage
	if err := q.Objects.Get(q.Context(), name, &b); err != nil {
		return nil, fmt.Errorf("failed to get backing image %s: %w", name, err)
	}
	if b.Spec.SourceType != lh.BackingImageSourceTypeUpload {
		return nil, fmt.Errorf("cannot upload backing image %s: its source type is %s", name, b.Spec.SourceType)
	}
	d, err := sourceOf(q, name)
	if err != nil || d.Status.IP == "" && !d.Spec.FileTransferred {
		return nil, fmt.Errorf("cannot upload backing image %s: backing image data source pod is not ready for uploading",
			name)
	}
	if d.Spec.FileTransferred {
		return nil, fmt.Errorf("cannot upload backing image %s: it was uploaded before; delete it to begin anew", name)
	}
	a, err := i.askImages(q.Context(), http.MethodPost, d.Status.IP, naming.PortBackingImage,
		"/v1/file?action=upload&size="+strconv.FormatInt(n, 10), q.Body, q.ContentLength, q.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("cannot upload backing image %s: %w", name, err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot upload backing image %s: %w", name, saysNo(a))
	}
	return nil, nil
}

// serveImage sends the file of an image, packed by gzip, from a disk where it is ready. A download
// that breaks off ends the connection: nobody takes a part for the whole.
func (i *API) serveImage(w http.ResponseWriter, q *serve.Request) error {
	done, err := q.KeepOpen()
	if err != nil {
		return err
	}
	defer done()
	a, err := i.openImage(q)
	if err != nil {
		return fmt.Errorf("cannot download backing image %s: %w", q.Params["name"], err)
	}
	defer a.Body.Close()
	for _, name := range []string{"Content-Type", "Content-Disposition", "Content-Length"} {
		if v := a.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if _, err := io.Copy(&unstalled{w, http.NewResponseController(w)}, a.Body); err != nil {
		q.Logger().Info("a download of a backing image has ended early", "image", q.Params["name"], "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// openImage asks a manager that has the image ready for its file.
func (i *API) openImage(q *serve.Request) (*http.Response, error) {
	var b lh.BackingImage
	if err := q.Objects.Get(q.Context(), q.Params["name"], &b); err != nil {
		return nil, err
	}
	m, err := imageServer(q, &b)
	if err != nil {
		return nil, err
	}
	path, err := i.filePath(q, m.Status.IP, b.Status.UUID)
	if err != nil {
		return nil, err
	}
	a, err := i.askImages(q.Context(), http.MethodGet, m.Status.IP, naming.PortBackingImageSync,
		"/v1/files/"+url.PathEscape(path)+"/download", http.NoBody, 0, "")
	if err == nil && a.StatusCode != http.StatusOK {
		err = saysNo(a)
		_ = a.Body.Close() // it was read
	}
	return a, err
}

// filePath asks a manager where it has the file of an image, which is how the file is called there.
func (i *API) filePath(q *serve.Request, ip, uuid string) (string, error) {
	a, err := i.askImages(q.Context(), http.MethodGet, ip, naming.PortBackingImageSync, "/v1/files", http.NoBody, 0,
		"")
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return "", saysNo(a)
	}
	var files []struct{ FilePath, UUID string }
	if err := json.NewDecoder(io.LimitReader(a.Body, mostImageList)).Decode(&files); err != nil {
		return "", fmt.Errorf("the list of files of the manager at %s: %w", ip, err)
	}
	for _, f := range files {
		if f.UUID == uuid {
			return f.FilePath, nil
		}
	}
	return "", fmt.Errorf("the manager at %s has no file of UUID %s any more", ip, uuid)
}

// unstalled gives a client some time for each write.
type unstalled struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Write implements io.Writer.
func (u *unstalled) Write(p []byte) (int, error) {
	_ = u.control.SetWriteDeadline(time.Now().Add(imageStall)) // a writer without deadlines is one of a test
	return u.w.Write(p)
}
