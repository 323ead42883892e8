package metrics

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ankole.storage/api/rpc/ptypes"
	"ankole.storage/host/listener"
)

// Bounds of a scrape, which Prometheus gives 10 s by default. The figures of objects come first,
// the rates and the usage beside each other.
const (
	ratesTimeout = 3 * time.Second
	usageTimeout = 3 * time.Second
	// maxScrapes are made at once; /metrics is open to everybody. Others are refused.
	maxScrapes = 4
	// maxUnsent pages wait until their clients have taken them, sendTimeout at most; so many of one
	// address.
	maxUnsent   = 8
	sendTimeout = 10 * time.Second
)

// Config is what the metrics of a process need.
type Config struct {
	// NodeName and Namespace say who reports; Version is its program's.
	NodeName, Namespace, Version string
	// Board makes the figures of objects while this process leads. Nil: the process reports itself
	// only.
	Board *Board
	// Dial opens a connection to a proxy. Nil: no engine is asked.
	Dial func(address string) (*grpc.ClientConn, error)
	// Usage reads a path of the API server; nil: nothing is reported of what is used. UsageWanted says
	// whether the setting allows it.
	Usage       func(ctx context.Context, path string) ([]byte, error)
	UsageWanted func(ctx context.Context) bool
	// Internals gathers what the process counts about itself. Default: controller-runtime's registry.
	Internals prometheus.Gatherer
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Exporter answers scrapes.
type Exporter struct {
	cfg   Config
	rates *performance
	usage usage
	slots chan struct{}

	mu sync.Mutex
	// rebuilding are the rebuilds that a scrape has seen under way, by their labels.
	rebuilding map[string]bool
	// unsent are the pages that are not sent whole, by the client's address.
	unsent map[string]int
}

// New returns an exporter. Close ends it.
func New(cfg Config) *Exporter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Internals == nil {
		cfg.Internals = metrics.Registry
	}
	if cfg.UsageWanted == nil {
		cfg.UsageWanted = func(context.Context) bool { return true }
	}
	x := &Exporter{cfg: cfg, slots: make(chan struct{}, maxScrapes), unsent: map[string]int{},
		rebuilding: map[string]bool{}}
	x.usage = usage{get: cfg.Usage, now: cfg.Now}
	if cfg.Dial != nil {
		x.rates = newPerformance(cfg.Dial, cfg.Now)
	}
	return x
}

// Close closes the connections to instance managers.
func (x *Exporter) Close() {
	if x.rates != nil {
		x.rates.close()
	}
}

// ServeHTTP answers a scrape. What is not known is left out; a scrape does not fail for it. The
// page is made before any of it is sent: a client that takes its time keeps no place of others.
func (x *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := listener.Host(r.RemoteAddr)
	if !x.begin(from) {
		refuseScrape(w)
		return
	}
	defer x.sent(from)
	page := &page{header: http.Header{}, status: http.StatusOK}
	select {
	case x.slots <- struct{}{}:
		x.render(page, r)
		<-x.slots
	default:
		refuseScrape(w)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout)) // a writer of a test has none
	maps.Copy(w.Header(), page.header)
	w.WriteHeader(page.status)
	_, _ = w.Write(page.text.Bytes()) // the client is gone if this fails
}

// begin counts a page of an address, unless too many of it are unsent.
func (x *Exporter) begin(from string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unsent[from] >= maxUnsent {
		return false
	}
	x.unsent[from]++
	return true
}

func (x *Exporter) sent(from string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unsent[from]--; x.unsent[from] == 0 {
		delete(x.unsent, from)
	}
}

func refuseScrape(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "enough scrapes are being answered already", http.StatusServiceUnavailable)
}

// page is an answer that is not sent yet.
type page struct {
	header http.Header
	status int
	text   bytes.Buffer
}

// Header, WriteHeader and Write implement http.ResponseWriter.
func (p *page) Header() http.Header                { return p.header }
func (p *page) WriteHeader(status int)             { p.status = status }
func (p *page) Write(text []byte) (n int, _ error) { return p.text.Write(text) }

// render makes the page of a scrape.
func (x *Exporter) render(w http.ResponseWriter, r *http.Request) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{x.look(r.Context())})
	all := prometheus.Gatherers{registry, prometheus.GathererFunc(internals(x.cfg.Internals))}
	promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
		ErrorLog: logged{}}).ServeHTTP(w, r)
}

// logged takes what the library finds wrong with samples.
type logged struct{}

// Println logs it.
func (logged) Println(v ...any) { slog.Warn("metrics", "problem", v) }

// look asks everybody for what one scrape reports, apart from what the process counts about itself.
func (x *Exporter) look(ctx context.Context) *Figures {
	cfg, out := &x.cfg, &Figures{}
	if cfg.Board == nil {
		return out
	}
	figures, err := cfg.Board.Figures(ctx)
	out.add("ankole_controller_leads", one(err == nil), cfg.NodeName, cfg.Version)
	if err != nil {
		x.rest()
		return out
	}
	var work sync.WaitGroup
	// Each part has its own points: they are asked beside each other.
	var rates, used Figures
	if x.rates != nil {
		work.Go(func() { x.lookAtRates(ctx, figures, &rates) })
	}
	if cfg.Usage != nil {
		work.Go(func() { x.lookAtUsage(ctx, figures, &used) })
	}
	out.take(figures)
	x.lookAtRebuilds(figures, out)
	work.Wait()
	out.take(&rates)
	out.take(&used)
	return out
}

// rest lets go what is held while this process leads.
func (x *Exporter) rest() {
	if x.rates != nil {
		x.rates.close()
	}
	x.usage.forget()
}

// lookAtRates reports what the users of the volumes do.
func (x *Exporter) lookAtRates(ctx context.Context, figures *Figures, out *Figures) {
	answers := x.rates.ask(ctx, figures.Engines)
	for i := range figures.Engines {
		e := &figures.Engines[i]
		if m := answers[e.target()]; m != nil {
			addRates(out, m, e.Labels)
		}
	}
	for _, p := range figures.Pods {
		if engineOnly(p.Type) {
			out.add("longhorn_instance_manager_proxy_grpc_connection", float64(x.rates.connections(p.Proxy)),
				p.Node, p.Name, p.Type)
		}
	}
}

func addRates(out *Figures, m *ptypes.Metrics, labels []string) {
	for metric, value := range map[string]uint64{
		"longhorn_volume_read_throughput": m.GetReadThroughput(), "longhorn_volume_write_throughput": m.GetWriteThroughput(),
		"longhorn_volume_read_iops": m.GetReadIOPS(), "longhorn_volume_write_iops": m.GetWriteIOPS(),
		"longhorn_volume_read_latency": m.GetReadLatency(), "longhorn_volume_write_latency": m.GetWriteLatency(),
	} {
		out.add(metric, float64(value), labels...)
	}
}

// Rates are what the users of a volume do, as its running engine says; nil if it does not answer,
// or this process does not lead.
func (x *Exporter) Rates(ctx context.Context, volume string) *ptypes.Metrics {
	if x.rates == nil || x.cfg.Board == nil {
		return nil
	}
	figures, err := x.cfg.Board.Figures(ctx)
	if err != nil {
		x.rest()
		return nil
	}
	for i := range figures.Engines {
		if e := &figures.Engines[i]; e.Volume == volume {
			if m := x.rates.one(ctx, e, figures.Engines); m != nil {
				return m
			}
		}
	}
	return nil
}

// lookAtUsage reports what the nodes, the managers and the instance managers use.
func (x *Exporter) lookAtUsage(ctx context.Context, figures *Figures, out *Figures) {
	if !x.cfg.UsageWanted(ctx) {
		x.usage.forget()
		return
	}
	nodes, pods := x.usage.ask(ctx, x.cfg.Namespace)
	for _, name := range figures.Nodes {
		if u, ok := nodes[name]; ok {
			out.add("longhorn_node_cpu_usage_millicpu", u.MilliCPU, name)
			out.add("longhorn_node_memory_usage_bytes", u.Bytes, name)
		}
	}
	for _, p := range figures.Pods {
		u, ok := pods[p.Name]
		switch {
		case !ok:
		case p.Type == "":
			out.add("longhorn_manager_cpu_usage_millicpu", u.MilliCPU, p.Node, p.Name)
			out.add("longhorn_manager_memory_usage_bytes", u.Bytes, p.Node, p.Name)
		default:
			out.add("longhorn_instance_manager_cpu_usage_millicpu", u.MilliCPU, p.Node, p.Name, p.Type)
			out.add("longhorn_instance_manager_memory_usage_bytes", u.Bytes, p.Node, p.Name, p.Type)
		}
	}
}

// lookAtRebuilds reports rebuilds under way, and once more those that have ended since.
func (x *Exporter) lookAtRebuilds(figures *Figures, out *Figures) {
	x.mu.Lock()
	defer x.mu.Unlock()
	seen := map[string]bool{}
	for _, r := range figures.Rebuilds {
		key := strings.Join(r.Labels, "\x00")
		switch {
		case r.Running:
			seen[key] = true
			out.add("longhorn_engine_rebuild_progress", float64(r.Percent), r.Labels...)
		case x.rebuilding[key]:
			out.add("longhorn_engine_rebuild_progress", 100, r.Labels...)
		}
	}
	x.rebuilding = seen
}

// collector hands a scrape to the library.
type collector struct{ *Figures }

// Describe makes the collector an unchecked one: what it has depends on the objects.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect hands over the points.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for metric, points := range c.Points {
		desc := descriptions[metric]
		for _, p := range points {
			for i, l := range p.Labels {
				if valid := strings.ToValidUTF8(l, "\uFFFD"); valid != l {
					p.Labels = with(p.Labels)
					p.Labels[i] = valid
				}
			}
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, p.Value, p.Labels...)
		}
	}
}

// descriptions are the definitions in the library's form.
var descriptions = func() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for i := range Definitions {
		d := &Definitions[i]
		out[d.Name] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	}
	return out
}()
