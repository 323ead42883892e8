package target

import (
	"errors"
	"fmt"
	"strings"

	"ankole.storage/backup/object"
	"ankole.storage/backup/object/directory"
	"ankole.storage/backup/object/s3"
)

// Keys of a Secret, which are names of variables where credentials come by the environment.
const (
	keyAccessKeyID     = "AWS_ACCESS_KEY_ID"
	keySecretAccessKey = "AWS_SECRET_ACCESS_KEY"
	keySessionToken    = "AWS_SESSION_TOKEN"
	keyEndpoints       = "AWS_ENDPOINTS"
	keyCert            = "AWS_CERT"
	keyVirtualHosted   = "VIRTUAL_HOSTED_STYLE"
)

// ProxyKeys are those that HTTP clients look for in the environment.
var ProxyKeys = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// keys are all that a target can be given.
var keys = append([]string{keyAccessKeyID, keySecretAccessKey, keySessionToken, keyEndpoints, keyCert,
	keyVirtualHosted, "AWS_SIGN_ACCEPT_ENCODING", "CIFS_USERNAME", "CIFS_PASSWORD", "AZBLOB_ACCOUNT_NAME",
	"AZBLOB_ACCOUNT_KEY", "AZBLOB_ENDPOINT", "AZBLOB_CERT"}, ProxyKeys...)

// Credentials are the keys of a Secret that are known, with their values.
type Credentials map[string]string

// Environ picks the credentials out of an environment, "KEY=value" each.
func Environ(environ []string) Credentials {
	c := Credentials{}
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		for _, k := range keys {
			if ok && name == k {
				c[k] = value
			}
		}
	}
	return c
}

// ErrNotBuilt: this version cannot use targets of the kind.
var ErrNotBuilt = errors.New("this version cannot use targets of this kind yet: use s3:// or vfs://")

// Open returns the store of a target. It asks no server; of a directory it looks whether it is
// there, which may take forever. resolve turns the path of a directory into the one to open.
func Open(t *Target, c Credentials, resolve func(string) string) (object.Store, error) {
	switch t.Kind {
	case S3:
		config, err := t.s3Config(c)
		if err != nil {
			return nil, err
		}
		return s3.New(config)
	case VFS:
		return directory.Open(resolve(t.Path))
	}
	return nil, fmt.Errorf("%s: %w", t, ErrNotBuilt)
}

func (t *Target) s3Config(c Credentials) (s3.Config, error) {
	config := s3.Config{Bucket: t.Bucket, Region: t.Region, Endpoint: strings.TrimSpace(c[keyEndpoints]),
		AccessKeyID: c[keyAccessKeyID], SecretAccessKey: c[keySecretAccessKey], SessionToken: c[keySessionToken],
		CA: []byte(c[keyCert])}
	if prefix := strings.Trim(t.Path, "/"); prefix != "" {
		config.Prefix = prefix + "/"
	}
	switch v := strings.ToLower(strings.TrimSpace(c[keyVirtualHosted])); v {
	case "true":
		config.VirtualHosted = true
	case "", "false":
	default:
		return s3.Config{}, fmt.Errorf("%s: %s of the Secret is neither true nor false", t, keyVirtualHosted)
	}
	if e := config.Endpoint; e != "" && !strings.HasPrefix(e, "http://") && !strings.HasPrefix(e, "https://") {
		return s3.Config{}, fmt.Errorf("%s: %s of the Secret does not begin with http:// or https://", t, keyEndpoints)
	}
	return config, nil
}
