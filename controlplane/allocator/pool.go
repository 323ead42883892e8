package allocator

import "time"

// pool is slots of one kind, and which volumes wait for them where.
type pool struct {
	*slots
	// waits are the nodes in whose queues a volume is.
	waits map[string]map[string]bool
}

func newPool() *pool { return &pool{slots: newSlots(), waits: map[string]map[string]bool{}} }

// queued are the nodes on which volumes wait.
func (p *pool) queued() (nodes []string) {
	for node := range p.queues {
		nodes = append(nodes, node)
	}
	return nodes
}

// moved takes in that a slot is held on another node than before (empty: on none), and returns the
// nodes whose slots have changed.
func (p *pool) moved(before, after string) (nodes []string) {
	if before == after {
		return nil
	}
	if before != "" {
		p.add(before, -1)
		nodes = append(nodes, before)
	}
	if after != "" {
		p.add(after, 1)
		nodes = append(nodes, after)
	}
	return nodes
}

// wait says on which nodes a volume wants a slot, and whether it was told that it may take one. It
// returns the nodes whose queues have changed.
func (p *pool) wait(now time.Time, volume string, wanted map[string]bool) (nodes []string) {
	for node := range p.waits[volume] {
		if _, still := wanted[node]; !still {
			p.leave(volume, node)
			nodes = append(nodes, node)
		}
	}
	for node, allowed := range wanted {
		var turn time.Time
		if allowed {
			turn = now
		}
		p.enter(volume, node, turn)
		nodes = append(nodes, node)
	}
	return nodes
}

func (p *pool) enter(volume, node string, turn time.Time) {
	if p.waits[volume] == nil {
		p.waits[volume] = map[string]bool{}
	}
	p.waits[volume][node] = true
	p.slots.enter(volume, node, turn)
}

func (p *pool) leave(volume, node string) {
	p.slots.leave(volume, node)
	if delete(p.waits[volume], node); len(p.waits[volume]) == 0 {
		delete(p.waits, volume)
	}
}

// returned puts a volume whose slot on a node was not taken after all at the head of the queue.
func (p *pool) returned(now time.Time, volume, before, after string) {
	if before != "" && before != after {
		p.enter(volume, before, now)
		p.restore(volume, before, now)
	}
}
