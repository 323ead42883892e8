package manager

import (
	"context"
	"log/slog"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// logLevel makes this process follow setting log-level. It is not used where the command line names
// a level: whoever debugs one manager does not want it undone by the cluster.
type logLevel struct{ level *slog.LevelVar }

// levelOf translates a value of the setting.
func levelOf(value string) slog.Level {
	switch strings.ToLower(value) {
	case "panic", "fatal", "error":
		return slog.LevelError
	case "warn":
		return slog.LevelWarn
	case "debug", "trace":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// SetupWithManager registers the watch.
func (l logLevel) SetupWithManager(mgr ctrl.Manager) error {
	skip := true
	onlyIt := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == setting.LogLevel })
	return ctrl.NewControllerManagedBy(mgr).Named("log-level").For(&v1beta2.Setting{}).
		WithEventFilter(onlyIt).WithOptions(controller.Options{SkipNameValidation: &skip}).
		Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			s := &v1beta2.Setting{}
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, s); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			if wanted := levelOf(s.Value); wanted != l.level.Level() {
				l.level.Set(wanted)
				slog.Warn("log level changed by setting log-level", "level", wanted)
			}
			return ctrl.Result{}, nil
		}))
}
