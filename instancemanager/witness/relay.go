// Package witness carries the questions of engines about their volume's membership to a manager
// Pod.
//
// An engine may not start, nor drop a replica, without asking the one place outside the replicas
// where membership is recorded: the Engine object in the cluster. The instance manager cannot reach
// the cluster itself. So managers attach to it (WitnessRelay.Attach on 8500) and wait for
// questions; engines ask on a unix socket (Witness).
//
//	engine ──Get, CompareAndSwap──> Relay ──Question──> manager ──> cluster
//	       <──────────────────────        <──Answer────
//
// Several managers may be attached. A question goes to one; if that one does not answer in time, is
// lost, or cannot reach the cluster, the question goes to the next. The engine hears UNAVAILABLE
// after a bounded time at the latest, and decides itself what it may do without the witness.
//
// A CompareAndSwap that moved on to a second manager may have been carried out by the first. The
// second then finds the record changed, and the engine gets swapped=false with a record equal to
// the one it proposed. The relay does not turn that into success: only the engine knows whether
// nobody else could have written the same. Asking again from the record returned is always safe.
package witness

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
)

const (
	// TotalWait bounds the time from question to answer. An engine suspends writes meanwhile, and
	// file systems above start to complain after some tens of seconds; it must have time left to
	// act.
	TotalWait = 3 * time.Second
	// AttemptWait bounds the time one manager may take, so that two more can be asked in TotalWait.
	// An update of an object takes some 10 ms.
	AttemptWait = time.Second
	// maxOutstanding bounds the questions in the relay. An engine asks one at a time and a node
	// runs some hundred.
	maxOutstanding = 1024
	// maxManagers bounds the attached managers: one for each node of a large cluster.
	maxManagers = 1024
	// maxAttempts bounds the managers asked the same question.
	maxAttempts = 8
)

// Relay passes questions to attached managers. The zero value is not usable; see NewRelay.
type Relay struct {
	log *slog.Logger
	// totalWait and attemptWait are the constants above; tests shorten them.
	totalWait, attemptWait time.Duration
	outstanding            chan struct{}

	mu       sync.Mutex
	managers []*manager    // the first one is asked first
	changed  chan struct{} // closed when a manager attaches
	lastID   uint64
}

// NewRelay returns a relay without managers.
func NewRelay(log *slog.Logger) *Relay {
	return &Relay{log: log, totalWait: TotalWait, attemptWait: AttemptWait,
		outstanding: make(chan struct{}, maxOutstanding), changed: make(chan struct{})}
}

// manager is one attached manager.
type manager struct {
	name      string
	questions chan *witnessv1.Question
	gone      chan struct{} // closed when its stream has ended

	// pending is where answers go, by question; under Relay.mu. The channels have room for one
	// answer of each attempt.
	pending map[uint64]chan<- reply
}

type reply struct {
	from   *manager
	answer *witnessv1.Answer
}

// attach adds a manager behind the others. It fails when there are too many.
func (r *Relay) attach(name string) (*manager, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.managers) >= maxManagers {
		return nil, status.Errorf(codes.ResourceExhausted, "%d managers are attached already", maxManagers)
	}
	m := &manager{name: name, questions: make(chan *witnessv1.Question), gone: make(chan struct{}),
		pending: map[uint64]chan<- reply{}}
	r.managers = append(r.managers, m)
	close(r.changed)
	r.changed = make(chan struct{})
	r.log.Info("manager attached as witness relay", "manager", name, "attached", len(r.managers))
	return m, nil
}

func (r *Relay) detach(m *manager) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(m.gone)
	r.managers = slices.DeleteFunc(r.managers, func(o *manager) bool { return o == m })
	r.log.Info("manager detached from witness relay", "manager", m.name, "attached", len(r.managers))
}

// Managers returns the names of the attached managers, in the order in which they are asked.
func (r *Relay) Managers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.managers))
	for _, m := range r.managers {
		names = append(names, m.name)
	}
	return names
}

// deliver hands an answer to whoever waits for it; one that comes too late is dropped.
func (r *Relay) deliver(m *manager, a *witnessv1.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiter := m.pending[a.GetId()]; waiter != nil {
		delete(m.pending, a.GetId())
		waiter <- reply{from: m, answer: a}
	}
}

// ask returns the first final answer of any manager. The error is a gRPC status: UNAVAILABLE when
// there was none.
func (r *Relay) ask(ctx context.Context, q *witnessv1.Question) (*witnessv1.Answer, error) {
	select {
	case r.outstanding <- struct{}{}:
		defer func() { <-r.outstanding }()
	default:
		return nil, status.Errorf(codes.Unavailable, "witness: %d questions are waiting already", maxOutstanding)
	}
	ctx, cancel := context.WithTimeout(ctx, r.totalWait)
	defer cancel()
	e := &enquiry{relay: r, question: q, asked: map[*manager]uint64{}, replies: make(chan reply, maxAttempts)}
	defer e.forget()
	return e.run(ctx)
}

// enquiry is one question on its way round the managers.
type enquiry struct {
	relay    *Relay
	question *witnessv1.Question
	asked    map[*manager]uint64 // the number of the question there
	replies  chan reply
	refusal  *witnessv1.Answer // the last one that was not final
}

func (e *enquiry) run(ctx context.Context) (*witnessv1.Answer, error) {
	for {
		m, changed := e.next()
		if m == nil && e.refusal != nil && e.waiting() == 0 {
			return nil, status.Errorf(codes.Unavailable, "witness: no manager could answer: %s", e.refusal.GetMessage())
		}
		answer, err := e.attempt(ctx, m, changed)
		if answer != nil || err != nil {
			return answer, err
		}
	}
}

// attempt asks m, if there is one, and waits for an answer of anybody asked so far. It returns
// nothing when it is time to ask the next manager.
func (e *enquiry) attempt(ctx context.Context, m *manager, changed <-chan struct{}) (*witnessv1.Answer, error) {
	var gone, enough <-chan struct{}
	var questions chan<- *witnessv1.Question
	var question *witnessv1.Question
	if m != nil {
		gone, questions = m.gone, m.questions
		question = &witnessv1.Question{Id: e.asked[m], Kind: e.question.Kind}
		attempt, cancel := context.WithTimeout(ctx, e.relay.attemptWait)
		defer cancel()
		enough, changed = attempt.Done(), nil
	}
	for {
		select {
		case questions <- question:
			questions = nil
		case reply := <-e.replies:
			if isFinal(codes.Code(reply.answer.GetCode())) {
				e.relay.prefer(reply.from)
				return reply.answer, nil
			}
			e.refusal = reply.answer
			e.relay.postpone(reply.from)
			if m == nil || reply.from == m {
				return nil, nil
			}
			// Of somebody who was asked before. This one may not have got the question yet.
		case <-gone:
			return nil, nil
		case <-changed:
			return nil, nil
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable, "witness: no answer of a manager (%d asked) within %s",
				len(e.asked), e.relay.totalWait)
		case <-enough:
			if ctx.Err() == nil {
				e.relay.log.Warn("manager does not answer a question for the witness, asking the next", "manager", m.name)
				e.relay.postpone(m)
				return nil, nil
			}
		}
	}
}

// next registers the question with a manager that was not asked yet. Without one it returns what
// closes when another attaches.
func (e *enquiry) next() (*manager, <-chan struct{}) {
	r := e.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.managers {
		if _, ok := e.asked[m]; !ok && len(e.asked) < maxAttempts {
			r.lastID++
			e.asked[m] = r.lastID
			m.pending[r.lastID] = e.replies
			return m, nil
		}
	}
	return nil, r.changed
}

// waiting counts the managers that may still answer.
func (e *enquiry) waiting() int {
	e.relay.mu.Lock()
	defer e.relay.mu.Unlock()
	n := len(e.replies)
	for _, m := range e.relay.managers {
		if _, ok := m.pending[e.asked[m]]; ok {
			n++
		}
	}
	return n
}

// forget makes late answers go nowhere.
func (e *enquiry) forget() {
	e.relay.mu.Lock()
	defer e.relay.mu.Unlock()
	for m, id := range e.asked {
		delete(m.pending, id)
	}
}

// postpone puts a manager that could not answer behind all others: a question reaches a few only,
// and those that are cut off stay attached for a while.
func (r *Relay) postpone(m *manager) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.managers, m); i >= 0 {
		r.managers = append(slices.Delete(r.managers, i, i+1), m)
	}
}

// prefer puts the manager that answered in front: the next question goes to one that works.
func (r *Relay) prefer(m *manager) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.managers, m); i > 0 {
		r.managers = slices.Insert(slices.Delete(r.managers, i, i+1), 0, m)
	}
}

// isFinal tells an answer about the record from one that only says that this manager could not find
// out.
func isFinal(c codes.Code) bool {
	switch c {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.Unimplemented,
		codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated:
		return false
	}
	return true
}

// describe names the volume a question is about, for logs and errors.
func describe(volume, engine string) string {
	return fmt.Sprintf("volume %s, engine %s", volume, engine)
}
