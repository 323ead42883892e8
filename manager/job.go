package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"ankole.storage/controlplane/node/uninstall"
	"ankole.storage/controlplane/recurringjob"
	"ankole.storage/host/hostpath"
	"ankole.storage/manager/job"
	restclient "ankole.storage/rest/client"
)

// RunJob does once what a recurring job is for. pod is the Pod this process runs in.
func RunJob(ctx context.Context, name, namespace, pod string) error {
	if namespace == "" || pod == "" {
		return errors.New("environment variable POD_NAMESPACE or POD_NAME is not set")
	}
	if err := hostpath.Check(); err != nil {
		return err
	}
	c, err := jobClient()
	if err != nil {
		return err
	}
	return job.Run(ctx, job.Config{Job: name, Namespace: namespace, Pod: pod, Client: c,
		Trim: job.Managers{Client: c, Namespace: namespace,
			Tokens: restclient.TokenFile(hostpath.Resolve(recurringjob.TokenFile))}.Trim})
}

// Uninstall removes the installation in a namespace.
func Uninstall(ctx context.Context, namespace string) error {
	if namespace == "" {
		return errors.New("environment variable POD_NAMESPACE is not set")
	}
	c, err := jobClient()
	if err != nil {
		return err
	}
	return uninstall.Run(ctx, uninstall.Config{Client: c, Namespace: namespace})
}

// preUpgradeLimit bounds how long the judgement of an upgrade waits for the API server. Helm waits
// for five minutes by default, in which a second try has room.
const preUpgradeLimit = time.Minute

// PreUpgrade judges whether the installation in a namespace may go to the version of this program.
// It changes nothing.
func PreUpgrade(ctx context.Context, namespace, mine string) error {
	if namespace == "" {
		return errors.New("environment variable POD_NAMESPACE is not set")
	}
	c, err := jobClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, preUpgradeLimit,
		fmt.Errorf("the API server has not answered within %s", preUpgradeLimit))
	defer cancel()
	if err := checkUpgrade(ctx, c, namespace, mine); ctx.Err() != nil {
		return fmt.Errorf("it is not known whether version %s may follow: %w", mine, context.Cause(ctx))
	} else if err != nil {
		return err
	}
	slog.Info("the managers of this version may follow those that have led", "version", mine)
	return nil
}

// jobClient is the API server's client of a process that runs once.
func jobClient() (client.Client, error) {
	api, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	api.QPS, api.Burst = apiQPS, apiBurst
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	c, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return c, nil
}
