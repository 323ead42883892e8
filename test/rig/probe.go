package rig

import (
	"math/rand/v2"
	"sync"
	"time"
)

// probers read at once, since some of their requests may hang.
const probers = 8

// Probe reads at random places from a target that somebody else has replaced, without learning from
// it, until the bound or the first errors. It returns how many reads were answered, and how many of
// these with something that is no longer true. The workers must be paused. The target is closed.
func (j *Journal) Probe(t Target, bound time.Duration) (answered, stale int) {
	var readers sync.WaitGroup
	end := time.Now().Add(bound)
	for range probers {
		readers.Go(func() {
			p := Aligned(largest * sectorSize)
			for time.Now().Before(end) {
				first := rand.IntN(len(j.sectors) - largest)
				if _, err := t.ReadAt(p, int64(first)*sectorSize); err != nil {
					return
				}
				current := j.current(first, p)
				j.mu.Lock()
				if answered++; !current {
					stale++
				}
				j.mu.Unlock()
			}
		})
	}
	closer := time.AfterFunc(bound, func() { _ = t.Close() }) // who hangs gets an error
	readers.Wait()
	if closer.Stop() {
		_ = t.Close()
	}
	return answered, stale
}

// current reports whether p may be what is there now.
func (j *Journal) current(first int, p []byte) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range len(p) / sectorSize {
		v, err := j.version(p[k*sectorSize:(k+1)*sectorSize], first+k)
		if err != nil || !j.sectors[first+k].may(v) {
			return false
		}
	}
	return true
}
