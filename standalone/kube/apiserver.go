package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/spf13/pflag"
)

const (
	serviceCIDR    = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1"
	issuer         = "https://kubernetes.default.svc.cluster.local"
)

func apiServerArgs(cfg Config, creds *credentials) []string {
	args := []string{
		"--bind-address=" + cfg.Host,
		"--advertise-address=" + cfg.Host,
		fmt.Sprintf("--secure-port=%d", cfg.Port),
		"--etcd-servers=https://" + hostPort(cfg.Host, cfg.EtcdPort),
		"--etcd-cafile=" + cfg.PKI.CAFile(),
		"--etcd-certfile=" + creds.etcd.CertFile,
		"--etcd-keyfile=" + creds.etcd.KeyFile,
		"--tls-cert-file=" + creds.apiserver.CertFile,
		"--tls-private-key-file=" + creds.apiserver.KeyFile,
		"--client-ca-file=" + cfg.PKI.CAFile(),
		"--kubelet-certificate-authority=" + cfg.PKI.CAFile(),
		"--kubelet-client-certificate=" + creds.kubeletClient.CertFile,
		"--kubelet-client-key=" + creds.kubeletClient.KeyFile,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + creds.serviceAccountKey,
		"--service-account-signing-key-file=" + creds.serviceAccountKey,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=" + cmp.Or(cfg.Authorization, "RBAC"),
		"--allow-privileged=true",
		"--profiling=false",
		// The endpoints of service "kubernetes" would be a loopback address, which the API refuses.
		"--endpoint-reconciler-type=none",
		// A stop must not wait for clients that keep their watches open.
		"--shutdown-delay-duration=0s",
	}
	return append(args, cfg.APIServerArgs...)
}

func (c *ControlPlane) startAPIServer(ctx context.Context, creds *credentials) error {
	runCtx, cancel := context.WithCancel(klog.NewContext(context.Background(),
		klog.Background().WithName("kube-apiserver")))
	c.api = &component{cancel: cancel}
	opts := options.NewServerRunOptions()
	if err := parse(opts.Flags(), "kube-apiserver", apiServerArgs(c.cfg, creds)); err != nil {
		return err
	}
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	// Its clients inside this process would otherwise print warnings on the terminal.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := opts.Complete(runCtx)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return fmt.Errorf("kube-apiserver: %w", utilerrors.NewAggregate(errs))
	}
	c.run(runCtx, c.api, "kube-apiserver", func(ctx context.Context) error { return app.Run(ctx, completed) })
	c.admin = &rest.Config{
		Host: "https://" + hostPort(c.cfg.Host, c.cfg.Port),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: c.cfg.PKI.CAFile(), CertFile: creds.admin.CertFile, KeyFile: creds.admin.KeyFile,
		},
		QPS: -1, // the server's own fairness is the only limit
	}
	if c.cfg.Starting != nil {
		c.cfg.Starting(c.RESTConfig())
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	c.cfg.Progress("kube-apiserver")
	return nil
}

// waitReady returns when /readyz says ok, the API server has ended, or time is up.
func (c *ControlPlane) waitReady(ctx context.Context) error {
	client, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return fmt.Errorf("kube-apiserver: client: %w", err)
	}
	client.Timeout = readyTimeout
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if err = probeReady(ctx, client, c.admin.Host+"/readyz"); err == nil {
			return nil
		}
		select {
		case <-c.down:
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver not ready within %s: %w (see %s/kubernetes.log)", readyTimeout, err, c.cfg.LogDir)
		case <-tick.C:
		}
	}
}

func probeReady(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errNotReady, resp.Status)
	}
	return nil
}

// parse applies command line flags to a component's option structs.
func parse(sets flag.NamedFlagSets, name string, args []string) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, f := range sets.FlagSets {
		fs.AddFlagSet(f)
	}
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
