package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// healthBounds are few: whoever checks the health of a process keeps one connection, or none. They
// are its own, so that nobody who fills another listener of the process makes it look ill.
var healthBounds = Bounds{Connections: 64, OfAddress: 16}

// healthPatience bounds a request, and the wait for the next one.
const healthPatience = 10 * time.Second

// ServeHealth answers GET path with 200 while healthy returns nil, else with 503 and its words,
// until ctx ends.
func ServeHealth(ctx context.Context, address, path string, healthy func(context.Context) error) error {
	l, err := Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve %s: %w", path, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := healthy(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadTimeout: healthPatience, WriteTimeout: healthPatience,
		IdleTimeout: healthPatience, MaxHeaderBytes: 4 << 10,
		ErrorLog:    slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(Bounded(l, healthBounds, slog.Default())); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s on %s: %w", path, address, err)
	}
	return nil
}
