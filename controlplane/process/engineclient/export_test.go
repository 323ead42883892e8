package engineclient

import "time"

// SetEvery makes b ask engines at another interval.
func (b *Binary) SetEvery(d time.Duration) { b.every = func(bool) time.Duration { return d } }
