package process

// subscriberBuffer is how many events a watcher may be behind before it is cut off. The number is
// the reference's; it holds the changes of about 30 instances that start and stop at once.
const subscriberBuffer = 100

// Subscription is one watcher. Read C until it is closed.
type Subscription struct {
	// C carries each change in order of revision. It is closed when the subscriber fell behind,
	// when it was cancelled and when the Manager has closed.
	C <-chan Status
	// Slow is closed when the subscriber was cut off because it fell behind; what is left in C is
	// not worth reading.
	Slow <-chan struct{}

	m    *Manager
	c    chan Status
	slow chan struct{}
}

// Watch subscribes to all changes from now on. Cancel the subscription when done.
func (m *Manager) Watch() *Subscription {
	c, slow := make(chan Status, subscriberBuffer), make(chan struct{})
	s := &Subscription{C: c, Slow: slow, m: m, c: c, slow: slow}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchersClosed {
		close(c)
		return s
	}
	m.watchers[s] = struct{}{}
	return s
}

// Cancel ends the subscription; calling it again does nothing.
func (s *Subscription) Cancel() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.cut(s)
}

// cut removes a watcher. The lock is held.
func (m *Manager) cut(s *Subscription) {
	if _, ok := m.watchers[s]; ok {
		delete(m.watchers, s)
		close(s.c)
	}
}

// publish gives the process the next revision and tells the watchers. The lock is held. A process
// that is not in the list (a replacement before its turn, a replaced one) changes unseen.
func (m *Manager) publish(p *Process, deleted bool) {
	if !p.listed {
		return
	}
	m.revision++
	p.revision = m.revision
	status := p.status()
	status.Deleted = deleted
	for s := range m.watchers {
		select {
		case s.c <- status:
		default:
			m.log.Warn("watcher cut off: it did not read its events", "buffer", subscriberBuffer)
			m.cut(s)
			close(s.slow)
		}
	}
}

// closeWatchers ends all subscriptions for good.
func (m *Manager) closeWatchers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchersClosed = true
	for s := range m.watchers {
		m.cut(s)
	}
}
