package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"ankole.storage/host/hostpath"
)

// registrar tells the kubelet of this node that there is the driver: the kubelet watches a folder,
// calls each socket in it, and forgets a plugin whose socket goes.
type registrar struct {
	registration.UnsafeRegistrationServer
	endpoint string
	log      *slog.Logger
	// failed gets what the kubelet refused.
	failed chan error
}

// GetInfo implements the registration service.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: DriverName, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements the registration service.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		r.log.Info("the kubelet has registered the driver")
		return &registration.RegistrationStatusResponse{}, nil
	}
	select {
	case r.failed <- fmt.Errorf("the kubelet refuses the driver: %s", s.Error):
	default: // it is known already
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Pauses between two registrations: the first one, and the longest.
const (
	firstRegistrationPause   = time.Second
	longestRegistrationPause = time.Minute
)

// register serves the registration until the context ends. When the kubelet refuses the driver, or
// was told what is not so any more (again), the socket goes and comes back after a pause: the
// kubelet asks anew. The services go on meanwhile.
func register(ctx context.Context, cfg *Config, again <-chan struct{}, log *slog.Logger) error {
	for pause := firstRegistrationPause; ; pause = min(2*pause, longestRegistrationPause) {
		began := time.Now()
		refused, err := registerOnce(ctx, cfg, again, log)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case refused == nil || time.Since(began) > longestRegistrationPause:
			pause = firstRegistrationPause
		}
		if refused != nil {
			log.Warn("the driver is registered again after a pause", "pause", pause, "error", refused)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// registerOnce serves until the kubelet refuses the driver, or it is to be registered again.
func registerOnce(ctx context.Context, cfg *Config, again <-chan struct{}, log *slog.Logger) (refused, err error) {
	r := &registrar{endpoint: cfg.KubeletEndpoint, log: log, failed: make(chan error, 1)}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	ended := make(chan error, 1)
	go func() {
		ended <- serve(serving, server, filepath.Join(hostpath.Resolve(cfg.RegistrationDir), DriverName+"-reg.sock"))
	}()
	select {
	case err := <-ended:
		return nil, err
	case <-again:
		log.Info("what the kubelet was told of this node has changed, the driver is registered again")
	case refused = <-r.failed:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return refused, nil
}
