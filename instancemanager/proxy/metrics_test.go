package proxy

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/ptypes"
)

// TestRates: the first question and a new engine at an old address are answered with zeroes, questions in quick succession
// alike, and others by what happened since.
func TestRates(t *testing.T) {
	r := &rates{}
	began := time.Unix(1000, 0)
	for _, row := range []struct {
		name  string
		after time.Duration
		now   *enginev1.Counters
		want  *ptypes.Metrics
	}{
		{"first", 0, &enginev1.Counters{Reads: 100, ReadBytes: 4096}, &ptypes.Metrics{}},
		{"two seconds", 2 * time.Second, &enginev1.Counters{Reads: 300, ReadBytes: 12288, Writes: 20, WriteBytes: 200},
			&ptypes.Metrics{ReadIOPS: 100, ReadThroughput: 4096, WriteIOPS: 10, WriteThroughput: 100}},
		{"too soon", 2500 * time.Millisecond, &enginev1.Counters{Reads: 900, ReadBytes: 12288, Writes: 20, WriteBytes: 200},
			&ptypes.Metrics{ReadIOPS: 100, ReadThroughput: 4096, WriteIOPS: 10, WriteThroughput: 100}},
		{"started again", 5 * time.Second, &enginev1.Counters{Reads: 1}, &ptypes.Metrics{}},
		{"idle", 9 * time.Second, &enginev1.Counters{Reads: 1}, &ptypes.Metrics{}},
	} {
		if got := r.of("10.0.0.1:1", row.now, began.Add(row.after)); !proto.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestRatesAreBounded: engines asked for longest ago are forgotten.
func TestRatesAreBounded(t *testing.T) {
	r := &rates{}
	for i := range 2 * maxRates {
		r.of(fmt.Sprintf("10.0.0.1:%d", i), &enginev1.Counters{}, time.Unix(int64(i), 0))
	}
	if len(r.seen) > maxRates || r.seen["10.0.0.1:0"] != nil || r.seen[fmt.Sprintf("10.0.0.1:%d", 2*maxRates-1)] == nil {
		t.Errorf("%d engines are remembered", len(r.seen))
	}
}
