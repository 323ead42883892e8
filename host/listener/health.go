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
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := healthy(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return serve(ctx, address, mux, healthBounds)
}

func serve(ctx context.Context, address string, h http.Handler, bounds Bounds) error {
	l, err := Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve at %s: %w", address, err)
	}
	server := &http.Server{Handler: h, ReadTimeout: healthPatience, WriteTimeout: healthPatience,
		IdleTimeout: healthPatience, MaxHeaderBytes: 4 << 10,
		ErrorLog:    slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(Bounded(l, bounds, slog.Default())); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", address, err)
	}
	return nil
}

// openBounds are for what everybody may read.
var openBounds = Bounds{Connections: 128, OfAddress: 32}

// ServeOpen answers patterns of http.ServeMux without asking who asks, until ctx ends.
func ServeOpen(ctx context.Context, address string, handlers map[string]http.Handler) error {
	mux := http.NewServeMux()
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
	}
	return serve(ctx, address, mux, openBounds)
}
