// Package s3 keeps a backup store in a bucket of an S3 server.
//
// An object is an object of the bucket, its name behind a prefix. S3 replaces objects whole, and
// has them durably when it answers, so that one request is one operation: only lists take one for
// each thousand objects. Requests that fail for a reason that passes are repeated with growing
// pauses.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"ankole.storage/backup/object"
)

// Bounds of a request.
const (
	attempts = 5
	// maxPause is the longest pause between two attempts.
	maxPause = 20 * time.Second
	// answerTimeout is how long a server may take to begin an answer.
	answerTimeout = time.Minute
	dialTimeout   = 15 * time.Second
)

// Config says where the bucket is, and who asks.
type Config struct {
	Bucket string
	// Region is that of the bucket; us-east-1 if "".
	Region string
	// Prefix stands before each name, "" or with a slash at its end.
	Prefix string
	// Endpoint is the URL of the server, "" for that of AWS in the region.
	Endpoint string
	// VirtualHosted: the bucket is part of the host's name, not of the path. Without Endpoint it is.
	VirtualHosted bool
	// AccessKeyID and SecretAccessKey are the credentials; SessionToken belongs to those that expire.
	// Without both they are those of the role that this process has, see role.go.
	AccessKeyID, SecretAccessKey, SessionToken string
	// CA is the certificate of the authority of the server, in PEM; the system's if empty.
	CA []byte

	// dial replaces the network in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Store is a bucket. Make one with New.
type Store struct {
	client         *s3.Client
	bucket, prefix string
}

var _ object.Store = (*Store)(nil)

// New returns the store in a bucket. It asks nothing of the server.
func New(c Config) (*Store, error) {
	if c.Bucket == "" {
		return nil, errors.New("backup store s3://: the name of the bucket is missing")
	}
	if err := object.CheckFolder(c.Prefix); err != nil {
		return nil, fmt.Errorf("backup store s3://%s: prefix: %w", c.Bucket, err)
	}
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		return nil, fmt.Errorf("backup store s3://%s: AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is missing", c.Bucket)
	}
	region := cmp.Or(c.Region, "us-east-1")
	credentials := keys(c)
	if c.AccessKeyID == "" {
		credentials = aws.NewCredentialsCache(&role{region: region})
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // it heeds HTTPS_PROXY and its like
	transport.ResponseHeaderTimeout = answerTimeout
	transport.MaxIdleConnsPerHost = 64
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	if c.dial != nil {
		transport.DialContext = c.dial
	}
	if len(c.CA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(c.CA) {
			return nil, fmt.Errorf("backup store s3://%s: AWS_CERT holds no certificate in PEM", c.Bucket)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	client := s3.New(s3.Options{
		Region:       region,
		Credentials:  credentials,
		HTTPClient:   &http.Client{Transport: transport},
		UsePathStyle: c.Endpoint != "" && !c.VirtualHosted,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, maxPause
		}),
		// Many servers refuse the trailers by which the library sends other checksums.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}, func(o *s3.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	return &Store{client: client, bucket: c.Bucket, prefix: c.Prefix}, nil
}

func (s *Store) String() string { return "s3://" + s.bucket + "/" + s.prefix }

// key checks name and context and returns the key of the object.
func (s *Store) key(ctx context.Context, name string) (*string, error) {
	if err := object.CheckName(name); err != nil {
		return nil, err
	}
	return aws.String(s.prefix + name), ctx.Err()
}

// Codes of servers that are full: of Ceph, MinIO and others.
var fullCodes = []string{"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage"}

// coded is an error of the server, as the SDK gives it.
type coded interface {
	error
	ErrorCode() string
}

// wrap marks the errors that callers tell apart.
func (s *Store) wrap(ctx context.Context, err error, doing, name string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var status int
	if response := (*awshttp.ResponseError)(nil); errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	var code string
	if api := coded(nil); errors.As(err, &api) {
		code = api.ErrorCode()
	}
	var mark error
	switch {
	case code == "NoSuchBucket":
		return fmt.Errorf("%s: %s %s: there is no such bucket: create it, or correct the target: %w", s, doing, name, err)
	case status == http.StatusNotFound:
		mark = object.ErrNotFound
	case slices.Contains(fullCodes, code) || status == http.StatusInsufficientStorage:
		mark = object.ErrNoSpace // some say so with 403
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		mark = object.ErrRefused
	default:
		return fmt.Errorf("%s: %s %s: %w", s, doing, name, err)
	}
	return fmt.Errorf("%s: %s %s: %w (%w)", s, doing, name, mark, err)
}

// Get is that of object.Store.
func (s *Store) Get(ctx context.Context, name string, buf []byte, limitBytes int64) ([]byte, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return buf, err
	}
	out := buf
	for attempt := 1; ; attempt++ {
		var again bool
		out, again, err = s.get(ctx, *key, name, buf, limitBytes)
		if err == nil || !again || attempt == attempts || ctx.Err() != nil {
			return out, s.wrap(ctx, err, "reading", name)
		}
	}
}

// get reads an object. again: the connection broke within the content, which the library does not
// repeat.
func (s *Store) get(ctx context.Context, key, name string, buf []byte, limitBytes int64) (out []byte, again bool,
	err error) {
	got, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return buf, false, err
	}
	defer got.Body.Close()
	start, size := len(buf), aws.ToInt64(got.ContentLength)
	if size > limitBytes {
		return buf, false, fmt.Errorf("%s has %d bytes, more than %d: %w", name, size, limitBytes, object.ErrTooLong)
	}
	if got.ContentLength == nil {
		return buf, false, fmt.Errorf("%s: the server does not tell the length", name)
	}
	if int64(cap(buf)-start) < size {
		buf = append(make([]byte, 0, int64(start)+size), buf...)
	}
	out = buf[:start+int(size)]
	if _, err := io.ReadFull(got.Body, out[start:]); err != nil {
		return buf[:start], true, err
	}
	return out, false, nil
}

// Put is that of object.Store.
func (s *Store) Put(ctx context.Context, name string, data []byte) error {
	key, err := s.key(ctx, name)
	if err != nil {
		return err
	}
	_, err = s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: key, Body: bytes.NewReader(data),
		ContentLength: aws.Int64(int64(len(data)))})
	if err = s.wrap(ctx, err, "writing", name); errors.Is(err, object.ErrNotFound) {
		return errors.New(err.Error()) // nothing that callers expect here
	}
	return err
}

// ListsAtOnce is that of object.Store: AWS does; other servers may not.
func (s *Store) ListsAtOnce() bool { return false }

// Stage is that of object.Store. An object is durable when the server has answered.
func (s *Store) Stage(ctx context.Context, name string, data []byte) error {
	return s.Put(ctx, name, data)
}

// Commit is that of object.Store.
func (s *Store) Commit(context.Context) error { return nil }

// Stat is that of object.Store.
func (s *Store) Stat(ctx context.Context, name string) (object.Info, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return object.Info{}, err
	}
	got, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: key})
	if err != nil {
		return object.Info{}, s.wrap(ctx, err, "looking at", name)
	}
	return object.Info{Name: name, SizeBytes: aws.ToInt64(got.ContentLength), Modified: aws.ToTime(got.LastModified)}, nil
}

// Delete is that of object.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(ctx, name)
	if err != nil {
		return err
	}
	_, err = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: key})
	if err = s.wrap(ctx, err, "deleting", name); errors.Is(err, object.ErrNotFound) {
		return nil
	}
	return err
}

// List is that of object.Store.
func (s *Store) List(ctx context.Context, folder string, deep bool) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		err := object.CheckFolder(folder)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(object.Info{}, err)
			return
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + folder)}
		if !deep {
			in.Delimiter = aws.String("/")
		}
		for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(object.Info{}, s.wrap(ctx, err, "listing", folder))
				return
			}
			for _, info := range s.infos(page) {
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

// After is that of object.Store.
func (s *Store) After(ctx context.Context, folder, after string, most int) ([]object.Info, error) {
	if err := object.CheckFolder(folder); err != nil {
		return nil, err
	}
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + folder),
		StartAfter: aws.String(s.prefix + after), MaxKeys: aws.Int32(int32(most))}
	var found []object.Info
	for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages() && len(found) < most; {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.wrap(ctx, err, "listing", folder)
		}
		found = append(found, s.infos(page)...)
	}
	return found[:min(most, len(found))], nil
}

// infos returns what a page of a list describes. Keys that are no names are another program's.
func (s *Store) infos(page *s3.ListObjectsV2Output) (all []object.Info) {
	for _, o := range page.Contents {
		name := strings.TrimPrefix(aws.ToString(o.Key), s.prefix)
		if object.CheckName(name) == nil {
			all = append(all, object.Info{Name: name, SizeBytes: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)})
		}
	}
	for _, p := range page.CommonPrefixes {
		name := strings.TrimPrefix(aws.ToString(p.Prefix), s.prefix)
		if object.CheckFolder(name) == nil {
			all = append(all, object.Info{Name: name})
		}
	}
	return all
}
