package manager

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"ankole.storage/host/hostpath"
)

const (
	// apiQPS and apiBurst bound what one client of a manager asks of the API server a second. They
	// are far above what ordinary work needs, since a review that waits here is a write that fails
	// elsewhere; the server has its own fairness.
	apiQPS   = 1000
	apiBurst = 2000
)

// base is what controllers and agents have in common.
type base struct {
	common Common
	api    *rest.Config
	scheme *runtime.Scheme
	// live reads and writes past every cache.
	live client.WithWatch
	// others are managers of another system, beside which nothing is done.
	others foreigners
}

func newBase(c Common) (base, error) {
	if err := hostpath.Check(); err != nil {
		return base{}, err
	}
	log := logr.FromSlogHandler(atLeast{slog.Default().Handler(), slog.LevelWarn})
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	api, err := config.GetConfig()
	if err != nil {
		return base{}, fmt.Errorf("find the API server: %w", err)
	}
	api.QPS, api.Burst = apiQPS, apiBurst
	scheme, err := newScheme()
	if err != nil {
		return base{}, fmt.Errorf("register kinds: %w", err)
	}
	live, err := client.NewWithWatch(counted(api, "live"), client.Options{Scheme: scheme})
	if err != nil {
		return base{}, fmt.Errorf("client of the API server: %w", err)
	}
	return base{common: c, api: api, scheme: scheme, live: live, others: newForeigners()}, nil
}

func (p *base) options() ctrl.Options {
	limit := time.Duration(-1) // for ever: leadUntil watches over it
	return ctrl.Options{
		Scheme:                  p.scheme,
		MapperProvider:          newMapper,
		Metrics:                 server.Options{BindAddress: "0"}, // served by package rest
		HealthProbeBindAddress:  "0",
		LeaderElection:          false, // see elect: only the leader builds a manager of all objects
		GracefulShutdownTimeout: &limit,
	}
}

func start(ctx context.Context, mgr ctrl.Manager, parts []Reconciler) error {
	for _, part := range parts {
		if err := part.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// logLevel is the reconciler that follows the setting, unless the command line names a level.
func (p *base) logLevel() []Reconciler {
	if p.common.LogLevel == nil {
		return nil
	}
	return []Reconciler{logLevel{p.common.LogLevel}}
}

// atLeast passes on records of a level and above: the libraries' own progress is of no use to an
// operator.
type atLeast struct {
	slog.Handler
	level slog.Level
}

// Enabled tells whether a record of the level is wanted.
func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the limit.
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup keeps the limit.
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
