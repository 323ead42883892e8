package engineclient

import "context"

// Router sends each call the way that the engine's instance manager offers: through its proxy, or,
// where the API version says that it has none, by the fallback. A proxy that is only down is an
// error and no reason for the fallback.
type Router struct {
	proxies  *Proxies
	proxy    *Proxy
	fallback EngineClient
}

var _ EngineClient = (*Router)(nil)

// NewRouter returns a client that chooses between the proxies and fallback.
func NewRouter(proxies *Proxies, fallback EngineClient) *Router {
	return &Router{proxies: proxies, proxy: NewProxy(proxies), fallback: fallback}
}

func (r *Router) choose(t Target) (EngineClient, error) {
	m, err := r.proxies.find(t.InstanceManager)
	switch {
	case err != nil:
		return nil, err
	case m.ProxyAPIVersion == 0:
		return r.fallback, nil
	}
	return r.proxy, nil
}

// Get implements Client.
func (r *Router) Get(ctx context.Context, t Target) (State, error) {
	c, err := r.choose(t)
	if err != nil {
		return State{}, err
	}
	return c.Get(ctx, t)
}

// Watch implements Client.
func (r *Router) Watch(ctx context.Context, t Target, observe func(State)) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.Watch(ctx, t, observe)
}

// ReplicaAdd implements Client.
func (r *Router) ReplicaAdd(ctx context.Context, t Target, address string) (State, error) {
	c, err := r.choose(t)
	if err != nil {
		return State{}, err
	}
	return c.ReplicaAdd(ctx, t, address)
}

// ReplicaRemove implements Client.
func (r *Router) ReplicaRemove(ctx context.Context, t Target, address string) (State, error) {
	c, err := r.choose(t)
	if err != nil {
		return State{}, err
	}
	return c.ReplicaRemove(ctx, t, address)
}

// SnapshotCreate implements Client.
func (r *Router) SnapshotCreate(ctx context.Context, t Target, s SnapshotRequest) (string, error) {
	c, err := r.choose(t)
	if err != nil {
		return "", err
	}
	return c.SnapshotCreate(ctx, t, s)
}

// Version implements Client.
func (r *Router) Version(ctx context.Context, t Target) (Version, error) {
	c, err := r.choose(t)
	if err != nil {
		return Version{}, err
	}
	return c.Version(ctx, t)
}

// Expand implements EngineClient.
func (r *Router) Expand(ctx context.Context, t Target, sizeBytes int64) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.Expand(ctx, t, sizeBytes)
}

// FrontendStart implements EngineClient.
func (r *Router) FrontendStart(ctx context.Context, t Target, frontend string) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.FrontendStart(ctx, t, frontend)
}

// FrontendShutdown implements EngineClient.
func (r *Router) FrontendShutdown(ctx context.Context, t Target) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.FrontendShutdown(ctx, t)
}

// OptionsSet implements EngineClient.
func (r *Router) OptionsSet(ctx context.Context, t Target, o Options) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.OptionsSet(ctx, t, o)
}

// SnapshotRevert implements EngineClient.
func (r *Router) SnapshotRevert(ctx context.Context, t Target, name string) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotRevert(ctx, t, name)
}

// SnapshotRemove implements EngineClient.
func (r *Router) SnapshotRemove(ctx context.Context, t Target, name string) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotRemove(ctx, t, name)
}

// SnapshotPurge implements EngineClient.
func (r *Router) SnapshotPurge(ctx context.Context, t Target, skipIfInProgress bool) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotPurge(ctx, t, skipIfInProgress)
}

// SnapshotHash implements EngineClient.
func (r *Router) SnapshotHash(ctx context.Context, t Target, name string, rehash bool) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotHash(ctx, t, name, rehash)
}

// SnapshotHashStatus implements EngineClient.
func (r *Router) SnapshotHashStatus(ctx context.Context, t Target, name string) (map[string]Hash, error) {
	c, err := r.choose(t)
	if err != nil {
		return nil, err
	}
	return c.SnapshotHashStatus(ctx, t, name)
}

// ReplicaVerifyRebuild implements EngineClient.
func (r *Router) ReplicaVerifyRebuild(ctx context.Context, t Target, address string) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.ReplicaVerifyRebuild(ctx, t, address)
}

// Forget implements Client.
func (r *Router) Forget(t Target) {
	r.proxy.Forget(t)
	r.fallback.Forget(t)
}

// SnapshotHashCancel implements EngineClient.
func (r *Router) SnapshotHashCancel(ctx context.Context, t Target, name string) error {
	c, err := r.choose(t)
	if err != nil {
		return err
	}
	return c.SnapshotHashCancel(ctx, t, name)
}

// FilesystemTrim implements EngineClient.
func (r *Router) FilesystemTrim(ctx context.Context, t Target) (bytes int64, err error) {
	c, err := r.choose(t)
	if err != nil {
		return 0, err
	}
	return c.FilesystemTrim(ctx, t)
}
