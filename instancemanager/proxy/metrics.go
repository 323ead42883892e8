package proxy

import (
	"context"
	"sync"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

const (
	// rateWindow is the shortest time a rate is taken over; asked again sooner, the rate before is told again.
	rateWindow = time.Second
	// maxRates bounds the engines remembered; beyond it those asked for longest ago are forgotten.
	maxRates = 1024
)

// rates turns counters, which only grow, into what clients of the reference want: values per second since the last question.
type rates struct {
	mu   sync.Mutex
	seen map[string]*sample
}

// sample is what was known of one engine process at the last question.
type sample struct {
	at       time.Time
	counters *enginev1.Counters
	rate     *ptypes.Metrics
}

func (s *service) MetricsGet(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineMetricsGetProxyResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineMetricsGetProxyResponse{Metrics: s.rates.of(r.GetAddress(), state.GetCounters(), time.Now())}, nil
}

// of returns the rates of the engine at address, whose counters are now c. The first question is answered with zeroes.
func (r *rates) of(address string, c *enginev1.Counters, now time.Time) *ptypes.Metrics {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]*sample{}
	}
	last := r.seen[address]
	if last == nil || c.GetReads() < last.counters.GetReads() || c.GetWrites() < last.counters.GetWrites() {
		r.forget(now)
		r.seen[address] = &sample{at: now, counters: c, rate: &ptypes.Metrics{}} // a new engine, at an address used before
		return r.seen[address].rate
	}
	span := now.Sub(last.at)
	if span < rateWindow {
		return last.rate
	}
	per := func(now, before uint64) uint64 { return uint64(float64(now-before) / span.Seconds()) }
	last.rate = &ptypes.Metrics{
		ReadThroughput:  per(c.GetReadBytes(), last.counters.GetReadBytes()),
		WriteThroughput: per(c.GetWriteBytes(), last.counters.GetWriteBytes()),
		ReadIOPS:        per(c.GetReads(), last.counters.GetReads()),
		WriteIOPS:       per(c.GetWrites(), last.counters.GetWrites()),
	}
	last.at, last.counters = now, c
	return last.rate
}

// forget makes room: the lock is held.
func (r *rates) forget(now time.Time) {
	if len(r.seen) < maxRates {
		return
	}
	oldest, at := "", now
	for address, s := range r.seen {
		if !s.at.After(at) {
			oldest, at = address, s.at
		}
	}
	delete(r.seen, oldest)
}
