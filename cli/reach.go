package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"ankole.storage/cli/kube"
	"ankole.storage/cli/usage"
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

// EnvCA names the file of --ca-file when that is not given.
const EnvCA = "ANKOLE_CA_FILE"

// EnvAccount names the account of --account when that is not given.
const EnvAccount = "ANKOLE_ACCOUNT"

// reach is how a server is reached.
type reach struct {
	// caFile holds the authorities that an https server may have; empty: those of this machine.
	caFile string
	// forward goes through the Kubernetes API server, to namespace, as account.
	forward   bool
	namespace string
	account   string
	// flags tell what was given on the command line.
	flags  *pflag.FlagSet
	tunnel *kube.Tunnel
}

func (r *reach) close() {
	if r.tunnel != nil {
		r.tunnel.Close()
	}
}

// isPlugin reports whether kubectl runs this program: it looks for kubectl-ankole on the PATH.
func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == "kubectl-ankole"
}

// addServerFlags adds the flags that say which server is asked, and as whom.
func (a *app) addServerFlags(f *pflag.FlagSet) {
	server := os.Getenv(EnvServer)
	forward := a.plugin && server == ""
	if server == "" {
		server = client.DefaultServer
	}
	a.reach.flags = f
	f.StringVar(&a.server, "server", server, "address of the API")
	f.StringVar(&a.reach.caFile, "ca-file", os.Getenv(EnvCA), "PEM file with the authorities of a server with https://")
	f.StringVar(&a.credentials.tokenFile, "token-file", "", "file with the Kubernetes token to send, such as that of a Pod")
	f.StringVar(&a.credentials.kubeconfig, "kubeconfig", "", "kubeconfig whose user's token to send, and for --port-forward")
	f.StringVar(&a.credentials.context, "context", "", "context of the kubeconfig (default: the current one)")
	f.BoolVar(&a.reach.forward, "port-forward", forward, "go through the Kubernetes API server to a manager Pod")
	f.StringVarP(&a.reach.namespace, "namespace", "n", kube.DefaultNamespace,
		"namespace of the system, for --port-forward")
	f.StringVar(&a.reach.account, "account", os.Getenv(EnvAccount),
		"ServiceAccount whose token to send with --port-forward (default "+kube.DefaultAccount+")")
}

// client returns the client of the server asked for.
func (a *app) client() (*client.Client, error) {
	if a.api != nil {
		return a.api, nil
	}
	o, server, err := a.options()
	if err != nil {
		return nil, err
	}
	if a.dryRun {
		o.DryRun = a.showRequest
	}
	c, err := client.NewOptions(server, o)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	a.api = c
	return c, nil
}

// options are how the client reaches the server, and which server.
func (a *app) options() (client.Options, string, error) {
	given := a.reach.flags.Changed
	if given("server") {
		if given("port-forward") && a.reach.forward {
			return client.Options{}, "", usage.Errorf("--server and --port-forward are two ways to the API; give one")
		}
		a.reach.forward = false
	}
	if a.reach.forward {
		return a.tunnelOptions()
	}
	if given("namespace") || given("account") {
		return client.Options{}, "", usage.Errorf("--namespace and --account are parts of --port-forward, which is missing")
	}
	tokens, err := a.credentials.source()
	if err != nil {
		return client.Options{}, "", &usage.Error{Err: err}
	}
	t, err := a.tls()
	return client.Options{Tokens: tokens, TLS: t}, a.server, err
}

// tunnelOptions reach a manager through the Kubernetes API server.
func (a *app) tunnelOptions() (client.Options, string, error) {
	c := a.credentials
	t, err := kube.Open(kube.Config{Kubeconfig: c.kubeconfig, Context: c.context, Namespace: a.reach.namespace,
		Account: a.reach.account})
	if err != nil {
		return client.Options{}, "", err
	}
	a.reach.tunnel = t
	tokens := client.Tokens(t.Token)
	// A token that was named comes before that of the kubeconfig, which is here for the way.
	c.kubeconfig, c.context = "", ""
	named, err := c.source()
	if err != nil {
		return client.Options{}, "", &usage.Error{Err: err}
	}
	if named != nil && a.reach.account == "" {
		tokens = named
	}
	return client.Options{Tokens: tokens, Dial: t.Dial}, kube.Server, nil
}

// tls are the authorities of --ca-file; nil without one.
func (a *app) tls() (*tls.Config, error) {
	if a.reach.caFile == "" {
		return nil, nil
	}
	if !strings.HasPrefix(a.server, "https://") {
		if a.reach.flags.Changed("ca-file") {
			return nil, usage.Errorf("--ca-file is for a server with https://; %s is none", a.server)
		}
		return nil, nil
	}
	text, err := os.ReadFile(a.reach.caFile)
	if err != nil {
		return nil, &usage.Error{Err: fmt.Errorf("authorities: %w", err)}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, &usage.Error{Err: errors.New("authorities: " + a.reach.caFile + " holds no certificate in PEM form")}
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// spelled writes the commands in a message as they are typed.
func (a *app) spelled(text string) string {
	if !a.plugin {
		return text
	}
	return strings.ReplaceAll(text, ": ankole ", ": kubectl ankole ")
}
