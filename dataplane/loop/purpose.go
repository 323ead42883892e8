package loop

import "fmt"

// Purpose is what a buffer is for. Each purpose has a part of the arena's budget to itself, so that
// what waits for one purpose's memory waits for nobody but others of the same purpose;
// docs/design/memory.md has the table, and why every wait ends.
type Purpose uint8

const (
	// Requests are the data of users' requests. They have all that is not set aside.
	Requests Purpose = iota
	// Connections are the receive and send buffers of the connections between engine and replicas.
	Connections
	// Clients are what a frontend keeps for each of its clients beside their requests.
	Clients
	// Edges are the blocks around writes that are no whole blocks.
	Edges
	// Transfers are ranges that are brought from one replica to others.
	Transfers
	// Imports are ranges that are brought into a new volume.
	Imports
	// Readers are the answers to other volumes' engines.
	Readers
	purposes
)

// part is the part of the budget that a purpose has, in bytes.
type part struct{ limit, used int }

// Part returns how much of the budget a purpose has.
func (a *Arena) Part(p Purpose) int { return a.parts[p].limit }

// SetAside gives a purpose n bytes of the budget to itself, instead of what it had. Its owner
// bounds what it holds by n, or waits. More than there is is a mistake of the program.
func (a *Arena) SetAside(p Purpose, n int) {
	rest := a.parts[Requests].limit + a.parts[p].limit - n
	if p == Requests || n < 0 || rest < 0 {
		panic(fmt.Sprintf("loop: %d bytes for purpose %d of an arena of %d, of which %d are left", n, p, a.budget,
			a.parts[Requests].limit))
	}
	a.parts[p].limit, a.parts[Requests].limit = n, rest
}
