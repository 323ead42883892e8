package work

import (
	"context"
	"fmt"
	"strings"

	"ankole.storage/backup/object"
	"ankole.storage/backup/object/azure"
	"ankole.storage/backup/object/directory"
	"ankole.storage/backup/object/s3"
	"ankole.storage/backup/share"
	"ankole.storage/backup/target"
)

// open returns the store of a target. It asks no server of S3 or Azure. A share it mounts, and of a
// directory it looks whether it is there, either of which may take forever. resolve turns the path
// of a directory into the one to open.
func open(ctx context.Context, t *target.Target, c target.Credentials,
	resolve func(string) string) (object.Store, error) {
	switch t.Kind {
	case target.S3:
		config, err := s3Config(t, c)
		if err != nil {
			return nil, err
		}
		return s3.New(config)
	case target.VFS:
		return directory.Open(resolve(t.Path), t.String())
	case target.NFS, target.CIFS:
		dir, err := share.Mount(ctx, t, c)
		if err != nil {
			return nil, err
		}
		return directory.Open(dir, t.String())
	}
	return azure.New(azureConfig(t, c))
}

func azureConfig(t *target.Target, c target.Credentials) azure.Config {
	config := azure.Config{Container: t.Bucket, Suffix: t.Region, Account: strings.TrimSpace(c[target.KeyAzureAccount]),
		Key: strings.TrimSpace(c[target.KeyAzureKey]), Endpoint: strings.TrimSpace(c[target.KeyAzureEndpoint]),
		CA: []byte(c[target.KeyAzureCert])}
	if prefix := strings.Trim(t.Path, "/"); prefix != "" {
		config.Prefix = prefix + "/"
	}
	return config
}

func s3Config(t *target.Target, c target.Credentials) (s3.Config, error) {
	config := s3.Config{Bucket: t.Bucket, Region: t.Region, Endpoint: strings.TrimSpace(c[target.KeyEndpoints]),
		AccessKeyID: c[target.KeyAccessKeyID], SecretAccessKey: c[target.KeySecretAccessKey],
		SessionToken: c[target.KeySessionToken],
		CA:           []byte(c[target.KeyCert])}
	if prefix := strings.Trim(t.Path, "/"); prefix != "" {
		config.Prefix = prefix + "/"
	}
	switch v := strings.ToLower(strings.TrimSpace(c[target.KeyVirtualHosted])); v {
	case "true":
		config.VirtualHosted = true
	case "", "false":
	default:
		return s3.Config{}, fmt.Errorf("%s: %s of the Secret is neither true nor false", t, target.KeyVirtualHosted)
	}
	if e := config.Endpoint; e != "" && !strings.HasPrefix(e, "http://") && !strings.HasPrefix(e, "https://") {
		return s3.Config{}, fmt.Errorf("%s: %s of the Secret does not begin with http:// or https://", t,
			target.KeyEndpoints)
	}
	return config, nil
}
