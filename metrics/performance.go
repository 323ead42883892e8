package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

const (
	// ratesLife is how long an answer is used, or the lack of one: engines tell the last whole second.
	ratesLife = 2 * time.Second
	// maxRates engines are asked at once.
	maxRates = 64
)

// performance asks engines for their rates, through the proxies of their instance managers. It
// holds one connection to each of these. It is safe for concurrent use.
type performance struct {
	dial func(address string) (*grpc.ClientConn, error)
	now  func() time.Time
	// limit bounds the time of all questions together.
	limit time.Duration

	mu      sync.Mutex
	conns   map[string]*grpc.ClientConn
	answers map[Target]rates
}

// Target is an engine process that can be asked.
type Target struct{ Volume, Engine, Address, Proxy string }

// rates are what an engine answered; nil if it did not.
type rates struct {
	*ptypes.Metrics
	at time.Time
}

func newPerformance(dial func(address string) (*grpc.ClientConn, error), now func() time.Time) *performance {
	return &performance{dial: dial, now: now, limit: ratesTimeout, conns: map[string]*grpc.ClientConn{},
		answers: map[Target]rates{}}
}

func (e *Engine) target() Target { return Target{e.Volume, e.Name, e.Address, e.Proxy} }

// ask returns the rates of those engines that answer within ratesTimeout. Scrapes that come
// meanwhile wait for it and use its answers.
func (p *performance) ask(ctx context.Context, engines []Engine) map[Target]*ptypes.Metrics {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.limit)
	defer cancel()
	wanted, proxies := map[Target]bool{}, map[string]bool{}
	var group errgroup.Group
	group.SetLimit(maxRates)
	type answered struct {
		Target
		m *ptypes.Metrics
	}
	answers := make(chan answered, len(engines))
	for i := range engines {
		t := engines[i].target()
		if wanted[t] {
			continue
		}
		wanted[t], proxies[t.Proxy] = true, true
		if age := p.now().Sub(p.answers[t].at); age >= 0 && age < ratesLife {
			continue
		}
		conn := p.conn(t.Proxy)
		if conn == nil {
			continue
		}
		group.Go(func() error {
			answers <- answered{t, metricsOf(ctx, conn, t)}
			return nil
		})
	}
	_ = group.Wait() // no part fails
	close(answers)
	for a := range answers {
		p.answers[a.Target] = rates{a.m, p.now()}
	}
	p.forget(wanted, proxies)
	out := map[Target]*ptypes.Metrics{}
	for t, r := range p.answers {
		if age := p.now().Sub(r.at); r.Metrics != nil && age < ratesLife+ratesTimeout {
			out[t] = r.Metrics
		}
	}
	return out
}

// one is ask for a single one of the engines that there are; nobody else waits for its answer.
func (p *performance) one(ctx context.Context, e *Engine, all []Engine) *ptypes.Metrics {
	t := e.target()
	wanted, proxies := map[Target]bool{}, map[string]bool{}
	for i := range all {
		wanted[all[i].target()], proxies[all[i].Proxy] = true, true
	}
	p.mu.Lock()
	p.forget(wanted, proxies)
	r, conn := p.answers[t], p.conn(t.Proxy)
	p.mu.Unlock()
	if age := p.now().Sub(r.at); age >= 0 && age < ratesLife || conn == nil {
		return r.Metrics
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	m := metricsOf(ctx, conn, t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[t] = rates{m, p.now()}
	return m
}

// metricsOf asks one engine; nil if it does not answer.
func metricsOf(ctx context.Context, conn *grpc.ClientConn, t Target) *ptypes.Metrics {
	if ctx.Err() != nil {
		return nil
	}
	r, err := imrpc.NewProxyEngineServiceClient(conn).MetricsGet(ctx, &imrpc.ProxyEngineRequest{Address: t.Address,
		EngineName: t.Engine, VolumeName: t.Volume})
	if err != nil {
		slog.Debug("an engine does not tell its rates", "engine", t.Engine, "err", err)
		return nil
	}
	return r.GetMetrics()
}

// conn returns the connection to a proxy; nil if there can be none.
func (p *performance) conn(address string) *grpc.ClientConn {
	if c := p.conns[address]; c != nil {
		return c
	}
	c, err := p.dial(address)
	if err != nil {
		slog.Info("no connection for metrics", "address", address, "err", err)
		return nil
	}
	p.conns[address] = c
	return c
}

// forget drops what is held for engines and instance managers that are not wanted any more.
func (p *performance) forget(wanted map[Target]bool, proxies map[string]bool) {
	for t := range p.answers {
		if !wanted[t] {
			delete(p.answers, t)
		}
	}
	for address, c := range p.conns {
		if !proxies[address] {
			_ = c.Close() // nobody uses it
			delete(p.conns, address)
		}
	}
}

// connections counts those to a proxy.
func (p *performance) connections(address string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[address] != nil {
		return 1
	}
	return 0
}

func (p *performance) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(nil, nil)
}
