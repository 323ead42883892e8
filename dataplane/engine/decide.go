package engine

import (
	"bytes"

	"ankole.storage/dataplane/wire"
)

// copyOf is what a scrub knows about one replica's copy of a piece.
type copyOf struct {
	// sum is the hash of what it reads, nil where it cannot read it.
	sum []byte
	// verdict is what its own checksums say.
	verdict string
}

func (c *copyOf) rotten() bool { return c.sum == nil || c.verdict == wire.VerdictRotten }

// decision is what to do about a piece of which replicas have different content: make the copies in
// repair equal to the one at source, or, where source is negative, nothing, and say why.
type decision struct {
	source int
	repair []int
	why    string
}

// decide never guesses. A copy that contradicts its own checksum, or cannot be read, is replaced by
// what all others agree on. Where the others disagree among themselves, only a majority without
// contradiction decides: more than half of them have the same content, and nothing vouches for the
// rest.
func decide(copies []copyOf) decision {
	var sound []int
	for i := range copies {
		if !copies[i].rotten() {
			sound = append(sound, i)
		}
	}
	if len(sound) == 0 {
		return decision{source: -1, why: "every copy contradicts its checksum or cannot be read"}
	}
	group := largest(copies, sound)
	d := decision{source: group[0]}
	for _, i := range group {
		if copies[i].verdict == wire.VerdictGood {
			d.source = i
			break
		}
	}
	want := copies[d.source].sum
	if len(group) < len(sound) && 2*len(group) <= len(sound) {
		return decision{source: -1, why: "the copies differ, and neither checksums nor a majority say which is right"}
	}
	for i := range copies {
		if bytes.Equal(copies[i].sum, want) {
			continue
		}
		if !copies[i].rotten() && copies[i].verdict == wire.VerdictGood {
			return decision{source: -1, why: "a copy that differs from the others is what its checksum says"}
		}
		d.repair = append(d.repair, i)
	}
	return d
}

// largest returns the largest set of copies among those in sound that have the same content, the
// first of equal ones.
func largest(copies []copyOf, sound []int) (group []int) {
	for _, i := range sound {
		var same []int
		for _, k := range sound {
			if bytes.Equal(copies[i].sum, copies[k].sum) {
				same = append(same, k)
			}
		}
		if len(same) > len(group) {
			group = same
		}
	}
	return group
}
