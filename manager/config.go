package manager

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"time"

	"ankole.storage/controlplane/admission"
	"ankole.storage/host/patience"
)

// Common is what every process of the control plane is told from outside.
type Common struct {
	// Listen is the address of metrics, and of REST where that is served; HealthListen that of health
	// checks. Both default to the Pod's address: no process listens on a wildcard.
	Listen, HealthListen string
	// PodName, Namespace, PodIP and NodeName say who this process is (downward API).
	PodName, Namespace, PodIP, NodeName string
	// LogLevel, if not nil, is made to follow setting log-level.
	LogLevel *slog.LevelVar
	// Version is the version of this program, for setting current-longhorn-version.
	Version string
}

// Config is what a process of the controllers is told besides.
type Config struct {
	Common
	// EngineImage, InstanceManagerImage and ManagerImage are the default images, e.g.
	// "ankole/engine:dev".
	EngineImage, InstanceManagerImage, ManagerImage string
	// BackingImageManagerImage runs what keeps backing images; empty: there can be none.
	BackingImageManagerImage string
	// MutualTLS: the process looks for the certificate by which instance managers know it, and the
	// leader makes it where there is none. One that was made is renewed in any case.
	MutualTLS bool
	// ServiceAccount runs the Pods the controllers create.
	ServiceAccount string
	// WebhookURL is the base the API server reaches the webhooks at, e.g. "https://127.0.1.1:9502";
	// empty: through the Service.
	WebhookURL string
	// WebhookListen is the address of the webhooks; default as the others.
	WebhookListen string
	// ListenAlso is a further address of REST; empty: none. In a container it is one of the loopback
	// interface, which is where `kubectl port-forward` connects to.
	ListenAlso string
	// PlaintextREST has REST answer requests without TLS from anywhere.
	PlaintextREST bool
	// Origins are where images and disks may be. No image place: those of the default images.
	Origins admission.Origins
}

const (
	defaultRESTPort    = "9500"
	defaultWebhookPort = "9502"
	defaultHealthPort  = "9504"
)

// needs collects what is not set.
func needs(values map[string]string) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	return errs
}

// addresses finds those, by flag, at which nobody may listen; an empty one is none.
func addresses(all map[string]string) (errs []error) {
	for _, flag := range slices.Sorted(maps.Keys(all)) {
		address := all[flag]
		if address == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("%s %q is not host:port", flag, address))
		} else if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
			errs = append(errs, fmt.Errorf("%s %q is a wildcard; give the Pod's own address", flag, address))
		}
	}
	return errs
}

// Complete fills in what follows from the rest and refuses what cannot work.
func (c Common) Complete() (Common, error) {
	errs := needs(map[string]string{"environment variable POD_NAME": c.PodName,
		"environment variable POD_NAMESPACE": c.Namespace, "environment variable NODE_NAME": c.NodeName})
	if net.ParseIP(c.PodIP) == nil {
		errs = append(errs, fmt.Errorf("environment variable POD_IP is %q, which is not an IP address", c.PodIP))
	}
	c.Listen = cmp.Or(c.Listen, net.JoinHostPort(c.PodIP, defaultRESTPort))
	c.HealthListen = cmp.Or(c.HealthListen, net.JoinHostPort(c.PodIP, defaultHealthPort))
	errs = append(errs, addresses(map[string]string{"--listen": c.Listen, "--health-listen": c.HealthListen})...)
	return c, errors.Join(errs...)
}

// Complete fills in what follows from the rest and refuses what cannot work.
func (c Config) Complete() (Config, error) {
	common, err := c.Common.Complete()
	c.Common = common
	errs := append([]error{err}, needs(map[string]string{"--engine-image": c.EngineImage,
		"--instance-manager-image": c.InstanceManagerImage, "--manager-image": c.ManagerImage})...)
	c.WebhookListen = cmp.Or(c.WebhookListen, net.JoinHostPort(c.PodIP, defaultWebhookPort))
	listens := map[string]string{"--webhook-listen": c.WebhookListen, "--listen-also": c.ListenAlso}
	errs = append(errs, addresses(listens)...)
	if len(c.Origins.Images) == 0 {
		c.Origins.Images = admission.OriginsOf(c.EngineImage, c.InstanceManagerImage)
	}
	errs = append(errs, absolute("--allowed-disk-paths", c.Origins.DiskPaths),
		absolute("--allowed-backup-directories", c.Origins.BackupDirectories))
	if c.WebhookURL != "" {
		if u, err := url.Parse(c.WebhookURL); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--webhook-url %q is not of the form https://host:port", c.WebhookURL))
		}
	}
	return c, errors.Join(errs...)
}

// absolute refuses directories of a flag that are not absolute.
func absolute(flag string, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if !path.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("%s: %q is not absolute", flag, dir))
		}
	}
	return errors.Join(errs...)
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
