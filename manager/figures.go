package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/metrics"
)

// newMetrics makes what serves /metrics.
func (p *control) newMetrics() error {
	api, err := kubernetes.NewForConfig(counted(p.api, "usage"))
	if err != nil {
		return fmt.Errorf("client of the metrics API: %w", err)
	}
	p.board = &metrics.Board{Namespace: p.cfg.Namespace, Node: p.cfg.NodeName, Reader: p.leaderReader,
		States: p.stateOf}
	p.exporter = metrics.New(metrics.Config{
		NodeName: p.cfg.NodeName, Namespace: p.cfg.Namespace, Version: p.cfg.Version, Board: p.board, Dial: p.dialForRates,
		Usage: func(ctx context.Context, path string) ([]byte, error) {
			return api.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		},
		UsageWanted: p.usageWanted,
	})
	return nil
}

// leaderReader is the cache of all objects, nil while this process does not lead.
func (p *control) leaderReader() client.Reader {
	if c := p.who.cached.Load(); c != nil {
		return c
	}
	return nil
}

// stateOf is the newest state that an engine has told the leader.
func (p *control) stateOf(engine string) *engineclient.State {
	if streams := p.who.streams.Load(); streams != nil {
		return streams.Latest(engine)
	}
	return nil
}

// errNoCache: the process has just started.
var errNoCache = errors.New("the cache of settings is not filled yet")

// leaderAddress is where the leader answers others, from the cache that every controller has.
func (p *control) leaderAddress(ctx context.Context) (string, error) {
	name := p.who.Leader()
	if name == "" || name == p.cfg.PodName {
		return "", errors.New("no manager leads yet")
	}
	cached := p.settings.Load()
	if cached == nil {
		return "", errNoCache
	}
	var pod corev1.Pod
	if err := (*cached).Get(ctx, client.ObjectKey{Namespace: p.cfg.Namespace, Name: name}, &pod); err != nil {
		return "", fmt.Errorf("find the leading manager: %w", err)
	}
	if !condition.PodReady(&pod) || pod.Status.PodIP == "" {
		return "", fmt.Errorf("the leading manager %s is not ready", name)
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(naming.PortAdmissionWebhook)), nil
}

// usageWanted says whether the metrics API may be asked.
func (p *control) usageWanted(ctx context.Context) bool {
	cached := p.settings.Load()
	if cached == nil {
		return false
	}
	values, err := stored.Read(ctx, *cached, p.cfg.Namespace)
	return err == nil && values.Bool(setting.KubernetesMetricsServerMetricsEnabled)
}

// ratesIdle is after how long a connection to a proxy ends of which nobody asks rates any more.
const ratesIdle = 20 * time.Second

// dialForRates is dial for questions that come while somebody looks.
func (p *control) dialForRates(address string) (*grpc.ClientConn, error) {
	return imclient.Conn(address, p.dialer, grpc.WithIdleTimeout(ratesIdle))
}
