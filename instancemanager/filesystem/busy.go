package filesystem

import (
	"context"
	"fmt"
	"sync"
)

// busyVolumes are those that work of one kind is under way for: the kernel does not end it while
// the volume's requests wait, so there is one per volume. The zero value is ready for use.
type busyVolumes struct {
	mu      sync.Mutex
	volumes map[string]chan struct{}
}

// begin takes a volume; false: somebody else has it, whose channel is closed when they are done.
func (b *busyVolumes) begin(volume string) (others <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.volumes[volume]; c != nil {
		return c, false
	}
	if b.volumes == nil {
		b.volumes = map[string]chan struct{}{}
	}
	b.volumes[volume] = make(chan struct{})
	return nil, true
}

// wait takes a volume when it is free; the context's error if that ends first.
func (b *busyVolumes) wait(ctx context.Context, volume string) error {
	for {
		others, ok := b.begin(volume)
		if ok {
			return nil
		}
		select {
		case <-others:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// do has a helper do something for a volume. ErrBusy.
func (b *busyVolumes) do(t task) (r report, err error) {
	if _, ok := b.begin(t.Volume); !ok {
		return r, fmt.Errorf("volume %s: the %s of its file system is %w; the volume's requests may be waiting for a "+
			"replica", t.Volume, t.Do, ErrBusy)
	}
	defer b.end(t.Volume)
	return done(t, nil)
}

// end gives a volume back.
func (b *busyVolumes) end(volume string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.volumes[volume])
	delete(b.volumes, volume)
}
