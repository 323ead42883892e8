package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ankole.storage/cli/kube"
	"ankole.storage/rest/client"
)

// credentials say where the bearer token comes from.
type credentials struct{ tokenFile, kubeconfig, context string }

// source returns what gives the token for each request; nil: none is sent. A kubeconfig is read
// only when it is named: a token must not go to any server that somebody types.
func (c credentials) source() (client.Tokens, error) {
	switch {
	case c.tokenFile != "" && c.kubeconfig != "":
		return nil, errors.New("--token-file and --kubeconfig are two tokens; give one")
	case c.context != "" && c.kubeconfig == "":
		return nil, errors.New("--context is a part of --kubeconfig, which is missing")
	case c.tokenFile != "":
		return client.TokenFile(c.tokenFile), nil
	case c.kubeconfig != "":
		token, err := kubeconfigToken(c.kubeconfig, c.context)
		return client.Token(token), err
	}
	if token := os.Getenv(EnvToken); token != "" {
		return client.Token(token), nil
	}
	if path := os.Getenv(EnvTokenFile); path != "" {
		return client.TokenFile(path), nil
	}
	return nil, nil
}

// kubeconfigToken returns the token of the user of a context; of the current one if name is empty.
func kubeconfigToken(path, name string) (string, error) {
	k, err := kube.Open(kube.Config{Kubeconfig: path, Context: name})
	if err != nil {
		return "", err
	}
	token, err := k.UserToken(context.Background())
	if err == nil && token == "" {
		err = fmt.Errorf("the user of kubeconfig %s has no token: a client certificate counts at the Kubernetes API server only. "+
			"Make a token, for example with: kubectl --kubeconfig %s -n longhorn-system create token ACCOUNT, and pass it in %s, "+
			"or go through the API server with --port-forward --account ACCOUNT", path, path, EnvToken)
	}
	return token, err
}
