package rebuild

import (
	"slices"
	"testing"
)

// Branches are brought over before the live chain, under the numbers they were given, and never
// locked; the head is the last of the live chain.
func TestPlanTakesBranchesFirst(t *testing.T) {
	p := New(testSize, []Layer{{Mode: Copy, Size: testSize}, {Mode: Copy, Size: testSize},
		{Mode: Compare, Size: 8192, Branch: true}, {Mode: Copy, Size: testSize, Branch: true}}, false)
	var got []Piece
	for !p.CopyDone() {
		if p.Waiting() {
			p.Begin()
		}
		if _, _, _, ok := p.NeedExtents(); ok {
			p.Extents([][2]int64{{4096, 8192}}, -1)
			continue
		}
		if piece, ok := p.Next(); ok {
			got = append(got, piece)
			if p.AtHead() != (piece.Layer == 1) {
				t.Fatalf("at the head with %+v", piece)
			}
		}
	}
	want := []Piece{
		{Layer: 2, Off: 0, Len: 8192, Compare: true},
		{Layer: 3, Off: 4096, Len: 4096},
		{Layer: 0, Off: 4096, Len: 4096, Locked: true},
		{Layer: 1, Off: 4096, Len: 4096, Locked: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// What the target's head has alone is compared in the head, whatever number the head has among
// branches.
func TestAgainIsOfTheHead(t *testing.T) {
	p := New(testSize, []Layer{{Mode: Copy, Size: testSize}, {Mode: Copy, Size: testSize},
		{Mode: Copy, Size: testSize, Branch: true}}, false)
	p.Begin()
	p.Again(PieceSize-4096, 8192)
	for _, want := range []Piece{
		{Layer: 1, Len: PieceSize, Locked: true, Compare: true},
		{Layer: 1, Off: PieceSize, Len: PieceSize, Locked: true, Compare: true},
	} {
		if piece, ok := p.Next(); !ok || piece != want {
			t.Errorf("%+v, want %+v", piece, want)
		}
	}
}

// What the target has of a branch is compared, wherever it has it; nothing of it is skipped,
// whatever the accounts say.
func TestArrangeBranches(t *testing.T) {
	source := Side{Names: []string{"a", "b"}, Branches: []string{"c", "d", "e"}}
	target := Side{Names: []string{"a", "b", "d"}, Branches: []string{"c", "x"}}
	a := Arrange(source, target, true)
	if want := []Mode{Compare, Compare, Copy}; !slices.Equal(a.Branches, want) {
		t.Errorf("branches %v, want %v", a.Branches, want)
	}
	if want := []Mode{Skip, Skip, Regions}; !slices.Equal(a.Modes, want) {
		t.Errorf("live chain %v, want %v", a.Modes, want)
	}
	if a := Arrange(source, Side{Blank: true}, false); !slices.Equal(a.Branches, []Mode{Copy, Copy, Copy}) {
		t.Errorf("of a blank target %v", a.Branches)
	}
}
