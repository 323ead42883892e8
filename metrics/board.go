package metrics

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/naming"
)

// Path is where the leader gives other managers their shares, at the port where it answers nobody
// else.
const Path = naming.ManagerPath + "metrics"

const (
	// shareLife is how long a share is used before it is made or fetched anew.
	shareLife = 2 * time.Second
	// shareKept is how long it is used where there is no newer one: longer than it takes another
	// manager to lead.
	shareKept = 30 * time.Second
	// maxShareBytes bounds what is read of a share; that of 10,000 volumes has some 30 MB.
	maxShareBytes = 256 << 20
)

// errNotLeading: this manager has no objects to make shares of.
var errNotLeading = errors.New("this manager does not lead, or its cache is not filled yet")

// Board makes the shares of all nodes on the leader. It is safe for concurrent use.
type Board struct {
	// Namespace holds the objects; Node is the leader's.
	Namespace, Node string
	// Reader returns the cache of all objects while this manager leads, else nil. It is a pointer, the
	// same as long as it is the same cache.
	Reader func() client.Reader
	// States returns what engines have told last; may be nil.
	States States
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu     sync.Mutex
	from   client.Reader
	made   time.Time
	shares map[string]*Share
}

func (b *Board) now() time.Time {
	if b.Now == nil {
		return time.Now()
	}
	return b.Now()
}

// Share returns the share of a node and its age. Nobody may change it. An error if this manager
// does not lead. A node that is not known has an empty share.
func (b *Board) Share(ctx context.Context, node string) (*Share, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reader := b.Reader()
	if reader == nil {
		b.from, b.shares = nil, nil
		return nil, 0, errNotLeading
	}
	if age := b.now().Sub(b.made); b.from != reader || b.shares == nil || age < 0 || age >= shareLife {
		// A kind that nobody has read yet is waited for: whoever reads it first fills the cache.
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		shares, err := gather(ctx, reader, b.Namespace, b.Node, b.States)
		if err != nil {
			return nil, 0, err
		}
		b.from, b.made, b.shares = reader, b.now(), shares
	}
	share := b.shares[node]
	if share == nil {
		share = &Share{}
	}
	return share, b.now().Sub(b.made), nil
}

// ServeHTTP answers GET Path?node=NAME with that node's share. Whoever serves it admits nobody but
// managers.
func (b *Board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	share, age, err := b.Share(r.Context(), r.URL.Query().Get("node"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	sent := *share
	sent.AgeMillis = age.Milliseconds()
	w.Header().Set("Content-Type", "application/json")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			panic(err) // a constant
		}
		defer func() { _ = z.Close() }() // the caller is gone if this fails
		out = z
	}
	_ = json.NewEncoder(out).Encode(sent) // the same
}

// fetch asks the manager at "ip:port" for the share of a node.
func fetch(ctx context.Context, c *http.Client, address, node string) (*Share, time.Duration, error) {
	fail := func(err error) (*Share, time.Duration, error) {
		return nil, 0, fmt.Errorf("fetch the figures of node %s from the leader: %w", node, err)
	}
	u := url.URL{Scheme: "https", Host: address, Path: Path, RawQuery: url.Values{"node": {node}}.Encode()}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fail(err)
	}
	answer, err := c.Do(q)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // as much of the reason as there is
		return fail(fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text))))
	}
	var s Share
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxShareBytes)).Decode(&s); err != nil {
		return fail(err)
	}
	return &s, time.Duration(s.AgeMillis) * time.Millisecond, nil
}

// holder has the newest share of this manager's node.
type holder struct {
	cfg *Config

	mu    sync.Mutex
	share *Share
	// made is when the share was made, asked when it was fetched.
	made, asked time.Time
	failed      bool
}

// get returns the share and its age; nil if there is none that is young enough.
func (h *holder) get(ctx context.Context) (*Share, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	if local := h.cfg.Board; local.Reader() != nil {
		share, age, err := local.Share(ctx, h.cfg.NodeName)
		h.took(share, age, err)
	} else if since := now.Sub(h.asked); since >= shareLife || since < 0 {
		h.asked = now
		share, age, err := h.fetch(ctx)
		h.took(share, age, err)
	}
	age := h.cfg.Now().Sub(h.made)
	if h.share == nil || age > shareKept {
		h.share = nil
		return nil, 0
	}
	return h.share, max(age, 0)
}

func (h *holder) took(share *Share, age time.Duration, err error) {
	if (err != nil) != h.failed {
		h.failed = err != nil
		slog.Info("figures of objects for metrics", "node", h.cfg.NodeName, "err", err)
	}
	if err == nil {
		h.share, h.made = share, h.cfg.Now().Add(-age)
	}
}

func (h *holder) fetch(ctx context.Context) (*Share, time.Duration, error) {
	// Whoever waits for this scrape's answer is not to lose it with the scrape.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	address, err := h.cfg.Leader(ctx)
	if err != nil {
		return nil, 0, err
	}
	return fetch(ctx, h.cfg.Client, address, h.cfg.NodeName)
}
