// Package target reads what a backup target's URL and the keys of its Secret say, and opens the
// store that they name.
//
// A URL names a place, a Secret says who asks. Neither error texts nor String have anything of a
// Secret, or the options of a URL, among which a password may be.
package target

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"ankole.storage/backup/format"
)

// Kind is the scheme of a target.
type Kind string

// Kinds of targets.
const (
	S3    Kind = "s3"
	NFS   Kind = "nfs"
	CIFS  Kind = "cifs"
	Azure Kind = "azblob"
	VFS   Kind = "vfs"
)

// ErrURL: a URL is not that of a target, or of a backup.
var ErrURL = errors.New("not the URL of a backup target")

// maxURL bounds a URL, in bytes.
const maxURL = 2048

// Target is where a backup store is.
type Target struct {
	Kind Kind
	// Host is the server of a share, with a colon behind it for NFS left out.
	Host string
	// Bucket is that of S3, or the container of Azure Blob. Region is what stands behind the @: a
	// region of S3, or the suffix of Azure's hosts.
	Bucket, Region string
	// Path begins with a slash and does not end in one, but for "/".
	Path string
	// Options are nfsOptions or cifsOptions; "" for the usual ones.
	Options string
}

// optionsKey is the query key of a kind's options, "" for none.
func (k Kind) optionsKey() string {
	switch k {
	case NFS:
		return "nfsOptions"
	case CIFS:
		return "cifsOptions"
	}
	return ""
}

// Parse reads the URL of a target. It returns ErrURL, and never quotes what is behind the scheme.
func Parse(raw string) (*Target, error) {
	t, query, err := parse(raw)
	if err != nil {
		return nil, err
	}
	for key := range query {
		if key != t.Kind.optionsKey() {
			return nil, t.wrong("it has the option %.40q, which is none of this kind's", key)
		}
	}
	return t, nil
}

// parse reads a URL and returns its query, which may name an object.
func parse(raw string) (*Target, url.Values, error) {
	scheme, _, found := strings.Cut(raw, "://")
	t := &Target{Kind: Kind(scheme)}
	switch t.Kind {
	case S3, NFS, CIFS, Azure, VFS:
	default:
		return nil, nil, fmt.Errorf("%w: it begins with none of s3://, nfs://, cifs://, azblob:// and vfs://", ErrURL)
	}
	u, err := url.Parse(raw)
	if err != nil || !found || len(raw) > maxURL || u.Fragment != "" {
		return nil, nil, t.wrong("it is no URL, or longer than %d bytes", maxURL)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, t.wrong("its options are not encoded as those of a URL")
	}
	if _, password := u.User.Password(); password {
		return nil, nil, t.wrong("it has a password: put credentials into the Secret")
	}
	if strings.ContainsAny(u.Path, "\x00\n\r") {
		return nil, nil, t.wrong("its path has characters that no path has")
	}
	t.Path = path.Clean("/" + u.Path)
	if key := t.Kind.optionsKey(); key != "" {
		t.Options = query.Get(key)
	}
	return t, query, t.place(u)
}

// place reads what stands between the scheme and the path.
func (t *Target) place(u *url.URL) error {
	user, host := u.User.Username(), u.Host
	switch t.Kind {
	case S3, Azure:
		t.Bucket, t.Region = host, ""
		if u.User != nil {
			t.Bucket, t.Region = user, host
		}
		if t.Bucket == "" || strings.ContainsAny(t.Bucket, "/:") || u.Port() != "" {
			return t.wrong("the name of the bucket is missing: write %s", t.Kind.example())
		}
	case NFS, CIFS:
		t.Host = u.Hostname()
		if t.Host == "" || u.User != nil || u.Port() != "" || t.Path == "/" && t.Kind == CIFS {
			return t.wrong("server or path is missing, or there is a port or a user: write %s", t.Kind.example())
		}
	case VFS:
		if host != "" || u.User != nil || t.Path == "/" {
			return t.wrong("it names no directory: write %s", t.Kind.example())
		}
	}
	return nil
}

func (k Kind) example() string {
	return map[Kind]string{S3: "s3://bucket@region/path", Azure: "azblob://container@core.windows.net/path",
		NFS: "nfs://server:/path", CIFS: "cifs://server/share/path", VFS: "vfs:///path"}[k]
}

func (t *Target) wrong(text string, args ...any) error {
	return fmt.Errorf("%w: %s://…: %s", ErrURL, t.Kind, fmt.Sprintf(text, args...))
}

// String names the target for messages, without options.
func (t *Target) String() string { return t.bare().String() }

func (t *Target) bare() *url.URL {
	u := &url.URL{Scheme: string(t.Kind), Path: t.Path}
	switch t.Kind {
	case S3, Azure:
		u.Host = t.Bucket
		if t.Region != "" {
			u.User, u.Host = url.User(t.Bucket), t.Region
		}
		if u.Path != "/" {
			u.Path += "/"
		}
	case NFS:
		u.Host = bracketed(t.Host) + ":"
	case CIFS:
		u.Host = bracketed(t.Host)
	}
	return u
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func (t *Target) query() url.Values {
	q := url.Values{}
	if t.Options != "" {
		q.Set(t.Kind.optionsKey(), t.Options)
	}
	return q
}

// URL is what Parse has read, in one form.
func (t *Target) URL() string {
	u := t.bare()
	u.RawQuery = t.query().Encode()
	return u.String()
}

// Object names a volume of a store, or a backup of it.
type Object struct {
	*Target
	Volume string
	// Backup is "" for the volume.
	Backup string
}

// URL is that of the object: the target's, with the object in its query.
func (o Object) URL() string {
	u, q := o.bare(), o.query()
	q.Set("volume", o.Volume)
	if o.Backup != "" {
		q.Set("backup", o.Backup)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// ParseObject reads the URL of a volume or a backup in a store. Programs of the reference pass the
// text on as it stands in JSON, with \u0026 or u0026 for an ampersand.
func ParseObject(raw string) (Object, error) {
	t, q, err := parseNamed(raw, "volume", "backup")
	return Object{Target: t, Volume: q.Get("volume"), Backup: q.Get("backup")}, err
}

// imageKey is the query key of a backing image.
const imageKey = "backingImage"

// Image names the backup of a backing image in a store.
type Image struct {
	*Target
	Name string
}

// URL is that of the backup: the target's, with the image in its query.
func (i Image) URL() string {
	u, q := i.bare(), i.query()
	q.Set(imageKey, i.Name)
	u.RawQuery = q.Encode()
	return u.String()
}

// ParseImage reads the URL of the backup of a backing image.
func ParseImage(raw string) (Image, error) {
	t, q, err := parseNamed(raw, imageKey)
	return Image{Target: t, Name: q.Get(imageKey)}, err
}

// parseNamed reads the URL of a target with the names of objects in its query: the first of the
// keys must be there, the others may be.
func parseNamed(raw string, keys ...string) (*Target, url.Values, error) {
	place, query, ok := strings.Cut(raw, "?")
	if ok {
		query = strings.ReplaceAll(query, `\u0026`, "&")
		for _, key := range keys {
			query = strings.ReplaceAll(query, "u0026"+key+"=", "&"+key+"=")
		}
		raw = place + "?" + query
	}
	t, q, err := parse(raw)
	if err != nil {
		return nil, nil, err
	}
	names := url.Values{}
	for i, key := range keys {
		if name := q.Get(key); (q.Has(key) || i == 0) && format.CheckName(name) != nil {
			return nil, nil, t.wrong("it names no %s", key)
		}
		names.Set(key, q.Get(key))
		q.Del(key)
	}
	for key := range q {
		if key != t.Kind.optionsKey() {
			return nil, nil, t.wrong("it has the option %.40q, which is none of this kind's", key)
		}
	}
	return t, names, nil
}
