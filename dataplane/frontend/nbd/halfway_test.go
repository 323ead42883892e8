package nbd

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/block"
)

// TestHandOverWithWritesHalfReceived: two clients are in the middle of the largest writes there can
// be, one has sent nearly all, one a byte. Together they had memory where they were, which the new
// server need not have: it takes them over all the same, gives itself away again, and goes on with
// one after the other.
func TestHandOverWithWritesHalfReceived(t *testing.T) {
	for name, memory := range map[string]int{"as much": 48 << 20, "less": MaxRequest + defaultClients*clientMemory} {
		t.Run(name, func(t *testing.T) {
			k := newScript(t, nil)
			k.inbox = map[uint64][]byte{}
			first, second := k.ready(), k.ready()
			write := requestBytes(cmdFlagFUA, cmdWrite, 1, 0, MaxRequest, bytes.Repeat([]byte{1}, MaxRequest))
			other := requestBytes(0, cmdWrite, 2, MaxRequest, MaxRequest, bytes.Repeat([]byte{2}, MaxRequest))
			most := requestHeader + MaxRequest - block.MaxTransfer/2
			k.say(second, write[:most])
			k.say(first, other[:requestHeader+1])
			k.memory = memory
			for range 3 {
				k.handOver()
			}
			k.say(first, other[requestHeader+1:])
			k.say(second, write[most:])
			for cookie, p := range map[uint64]*peer{1: second, 2: first} {
				if got := k.answers(p, nil); len(got) != 1 || got[0].cookie != cookie || got[0].errno != 0 {
					t.Errorf("answers %+v to write %d", got, cookie)
				}
			}
			for off := range int64(2 * MaxRequest / block.MaxTransfer) {
				want := bytes.Repeat([]byte{byte(1 + off*block.MaxTransfer/MaxRequest)}, block.MaxTransfer)
				if !bytes.Equal(k.inbox[uint64(off*block.MaxTransfer)], want) {
					t.Errorf("the piece at %d MiB is another one, or missing", off)
				}
			}
			k.stop()
		})
	}
}
