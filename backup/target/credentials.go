package target

import (
	"strings"

	"ankole.storage/backup/encryption"
)

// Keys of a Secret for S3, which are names of variables where credentials come by the environment.
const (
	KeyAccessKeyID     = "AWS_ACCESS_KEY_ID"
	KeySecretAccessKey = "AWS_SECRET_ACCESS_KEY"
	KeySessionToken    = "AWS_SESSION_TOKEN"
	KeyEndpoints       = "AWS_ENDPOINTS"
	KeyCert            = "AWS_CERT"
	KeyVirtualHosted   = "VIRTUAL_HOSTED_STYLE"
)

// KeyRole is the key of a Secret with the role of AWS that Pods are to have. It is none of Keys: a
// store is asked by who has the role.
const KeyRole = "AWS_IAM_ROLE_ARN"

// Keys of a Secret for CIFS.
const (
	KeyCIFSUser     = "CIFS_USERNAME"
	KeyCIFSPassword = "CIFS_PASSWORD"
)

// Keys of a Secret for Azure Blob.
const (
	KeyAzureAccount  = "AZBLOB_ACCOUNT_NAME"
	KeyAzureKey      = "AZBLOB_ACCOUNT_KEY"
	KeyAzureEndpoint = "AZBLOB_ENDPOINT"
	KeyAzureCert     = "AZBLOB_CERT"
)

// ProxyKeys are those that HTTP clients look for in the environment.
var ProxyKeys = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// Keys are all that a target can be given.
var Keys = append([]string{KeyAccessKeyID, KeySecretAccessKey, KeySessionToken, KeyEndpoints, KeyCert,
	KeyVirtualHosted, "AWS_SIGN_ACCEPT_ENCODING", KeyCIFSUser, KeyCIFSPassword, KeyAzureAccount,
	KeyAzureKey, KeyAzureEndpoint, KeyAzureCert, encryption.Variable, encryption.OldVariable}, ProxyKeys...)

// Credentials are the keys of a Secret that are known, with their values.
type Credentials map[string]string

// Environ picks the credentials out of an environment, "KEY=value" each.
func Environ(environ []string) Credentials {
	c := Credentials{}
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		for _, k := range Keys {
			if ok && name == k {
				c[k] = value
			}
		}
	}
	return c
}
