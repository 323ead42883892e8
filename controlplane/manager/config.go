package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path"
	"time"

	"ankole.storage/controlplane/admission"
	"ankole.storage/patience"
)

// Config is everything the process is told from outside.
type Config struct {
	// EngineImage, InstanceManagerImage and ManagerImage are the default images, e.g.
	// "ankole/engine:dev".
	EngineImage, InstanceManagerImage, ManagerImage string
	// ServiceAccount runs the Pods the manager creates.
	ServiceAccount string
	// WebhookURL is the base the API server reaches the webhooks at, e.g. "https://127.0.1.1:9502";
	// empty: through the Service.
	WebhookURL string
	// Listen is the address of REST and metrics, WebhookListen that of the webhooks, HealthListen that
	// of health checks. All default to the Pod's address: a manager never listens on a wildcard.
	Listen, WebhookListen, HealthListen string
	// ListenAlso is a further address of REST; empty: none. In a container it is one of the loopback
	// interface, which is where `kubectl port-forward` connects to.
	ListenAlso string

	// PlaintextREST has REST answer requests without TLS from anywhere.
	PlaintextREST bool

	// MutualTLS has the leader make the certificate of managers and instance managers where there is
	// none. One that was made is renewed in any case.
	MutualTLS bool

	// Origins are where images and disks may be. No image place: those of the default images.
	Origins admission.Origins

	// PodName, Namespace, PodIP and NodeName say who this process is (downward API).
	PodName, Namespace, PodIP, NodeName string

	// LogLevel, if not nil, is made to follow setting log-level.
	LogLevel *slog.LevelVar

	// Version is the version of this program, for setting current-longhorn-version.
	Version string
}

const (
	defaultRESTPort    = "9500"
	defaultWebhookPort = "9502"
	defaultHealthPort  = "9504"
)

// Complete fills in what follows from the rest and refuses what cannot work.
func (c Config) Complete() (Config, error) {
	var errs []error
	need := func(value, flag string) {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set", flag))
		}
	}
	need(c.EngineImage, "--engine-image")
	need(c.InstanceManagerImage, "--instance-manager-image")
	need(c.ManagerImage, "--manager-image")
	need(c.PodName, "environment variable POD_NAME")
	need(c.Namespace, "environment variable POD_NAMESPACE")
	need(c.NodeName, "environment variable NODE_NAME")
	if net.ParseIP(c.PodIP) == nil {
		errs = append(errs, fmt.Errorf("environment variable POD_IP is %q, which is not an IP address", c.PodIP))
	}
	if c.Listen == "" {
		c.Listen = net.JoinHostPort(c.PodIP, defaultRESTPort)
	}
	if c.WebhookListen == "" {
		c.WebhookListen = net.JoinHostPort(c.PodIP, defaultWebhookPort)
	}
	if c.HealthListen == "" {
		c.HealthListen = net.JoinHostPort(c.PodIP, defaultHealthPort)
	}
	for flag, address := range map[string]string{
		"--listen": c.Listen, "--webhook-listen": c.WebhookListen, "--listen-also": c.ListenAlso,
		"--health-listen": c.HealthListen,
	} {
		if address == "" {
			continue // only a further address may be missing
		}
		if host, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("%s %q is not host:port", flag, address))
		} else if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
			errs = append(errs, fmt.Errorf("%s %q is a wildcard; give the Pod's own address", flag, address))
		}
	}
	if len(c.Origins.Images) == 0 {
		c.Origins.Images = admission.OriginsOf(c.EngineImage, c.InstanceManagerImage)
	}
	for _, dir := range c.Origins.DiskPaths {
		if !path.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("--allowed-disk-paths: %q is not absolute", dir))
		}
	}
	if c.WebhookURL != "" {
		if u, err := url.Parse(c.WebhookURL); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--webhook-url %q is not of the form https://host:port", c.WebhookURL))
		}
	}
	return c, errors.Join(errs...)
}

// The lease: a leader that dies is replaced within leaseDuration plus one retry (up to 2.2 times
// retryPeriod, jitter included), which keeps failover below 8 s. A leader renews at the first retry
// renewEvery after its last success (quietLock), gives up after renewDeadline more, and then has
// stopLimit for its controllers to end: together less than leaseDuration, so that nobody else leads
// before they have (TestLeaderStopsBeforeTheNext).
const leaseName = "longhorn-manager-leader"

var (
	leaseDuration = patience.Of(6 * time.Second)
	renewEvery    = patience.Of(2 * time.Second)
	renewDeadline = patience.Of(2500 * time.Millisecond)
	retryPeriod   = 250 * time.Millisecond
	// stopLimit bounds the orderly end of controllers. A process whose controllers take longer ends
	// itself if it has lost the lease.
	stopLimit = patience.Of(1200 * time.Millisecond)
)
