package ssync

import (
	"fmt"
	"slices"
)

// maxSpans bounds what a sender may leave open between its ranges. Ranges that are sent side by
// side leave a few.
const maxSpans = 1 << 12

// span is a range of bytes.
type span struct{ begin, end int64 }

// spans are the ranges that have come: in order, none touches the next.
type spans []span

// add counts a range in; what has come before counts once.
func (s *spans) add(begin, end int64) error {
	first, _ := slices.BinarySearchFunc(*s, begin, func(have span, at int64) int {
		if have.end < at {
			return -1
		}
		return 1
	})
	next := first
	for ; next < len(*s) && (*s)[next].begin <= end; next++ {
		begin, end = min(begin, (*s)[next].begin), max(end, (*s)[next].end)
	}
	*s = slices.Replace(*s, first, next, span{begin, end})
	if len(*s) > maxSpans {
		return fmt.Errorf("the sender leaves more than %d ranges open", maxSpans)
	}
	return nil
}

// bytes is how many bytes have come.
func (s *spans) bytes() int64 {
	var n int64
	for _, have := range *s {
		n += have.end - have.begin
	}
	return n
}
