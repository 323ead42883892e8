package request

import (
	"ankole.storage/host/luks"
)

// ReadKey reads the Secret of a volume. An error is INVALID_ARGUMENT; the passphrase is in none.
func ReadKey(secrets map[string]string) (luks.Key, error) {
	if secrets[luks.SecretValue] == "" {
		return luks.Key{}, Refuse("the volume is encrypted, and its Secret has no %s: name one in the StorageClass, "+
			"parameters csi.storage.k8s.io/node-stage-secret-name, node-publish-secret-name and node-expand-secret-name, "+
			"each with its -namespace", luks.SecretValue)
	}
	k, err := luks.ReadKey(secrets)
	if err != nil {
		return k, Refuse("%v", err)
	}
	return k, nil
}
