package kube

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	cmapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	cmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	schedapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

func (c *ControlPlane) startControllers(creds *credentials) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.rest = &component{cancel: cancel}
	runManager, err := controllerManager(c.cfg, creds)
	if err != nil {
		return err
	}
	runScheduler, err := scheduler(ctx, creds)
	if err != nil {
		return err
	}
	named := func(name string) context.Context {
		return klog.NewContext(ctx, klog.Background().WithName(name))
	}
	c.run(named("kube-controller-manager"), c.rest, "kube-controller-manager", runManager)
	c.run(named("kube-scheduler"), c.rest, "kube-scheduler", runScheduler)
	c.cfg.Progress("kube-controller-manager, kube-scheduler")
	return nil
}

func controllerManagerArgs(cfg Config, creds *credentials) []string {
	args := []string{
		"--kubeconfig=" + creds.controllerManager,
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + creds.serviceAccountKey,
		"--root-ca-file=" + cfg.PKI.CAFile(),
		"--cluster-signing-cert-file=" + cfg.PKI.CAPair().CertFile,
		"--cluster-signing-key-file=" + cfg.PKI.CAPair().KeyFile,
		// The defaults, meant to spare a shared API server, cost seconds at every start.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--node-monitor-period=1s",
		fmt.Sprintf("--node-monitor-grace-period=%s", cfg.NodeGrace),
		"--profiling=false",
	}
	return append(args, cfg.ControllerManagerArgs...)
}

func controllerManager(cfg Config, creds *credentials) (func(context.Context) error, error) {
	opts, err := cmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("kube-controller-manager: %w", err)
	}
	known, disabled, aliases := cmapp.KnownControllers(), cmapp.ControllersDisabledByDefault(), cmapp.ControllerAliases()
	sets := opts.Flags(known, disabled, aliases)
	opts.ParsedFlags = &sets
	if err := parse(sets, "kube-controller-manager", controllerManagerArgs(cfg, creds)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		conf, err := opts.Config(ctx, known, disabled, aliases)
		if err != nil {
			return err
		}
		return cmapp.Run(ctx, conf.Complete())
	}, nil
}

func scheduler(ctx context.Context, creds *credentials) (func(context.Context) error, error) {
	opts := schedoptions.NewOptions()
	args := []string{"--kubeconfig=" + creds.scheduler, "--leader-elect=false", "--secure-port=0", "--profiling=false"}
	if err := parse(*opts.Flags, "kube-scheduler", args); err != nil {
		return nil, err
	}
	return func(runCtx context.Context) error {
		cc, sched, err := schedapp.Setup(runCtx, opts)
		if err != nil {
			return err
		}
		return schedapp.Run(runCtx, cc, sched)
	}, nil
}
