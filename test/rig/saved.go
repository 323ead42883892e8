package rig

import (
	"errors"
	"slices"
)

// Saved is what every sector may have held at a moment in the past, such as that of a snapshot.
type Saved []sector

// Save notes what the volume holds while take runs, writers included: whatever a sector held at the
// beginning, or was about to hold then or since, it may have held at the moment that take is about.
func (j *Journal) Save(take func() error) (Saved, error) {
	j.mu.Lock()
	if j.during != nil {
		j.mu.Unlock()
		return nil, errors.New("the journal is saving already")
	}
	s := make(Saved, len(j.sectors))
	for i := range s {
		s[i] = j.sectors[i]
		s[i].maybe = slices.Clone(s[i].maybe)
	}
	j.during = map[int][]uint64{}
	j.mu.Unlock()
	err := take()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, versions := range j.during {
		s[i].maybe = append(s[i].maybe, versions...)
	}
	j.during = nil
	return s, err
}

// Restore goes back to what was saved. The workers must be paused.
func (j *Journal) Restore(s Saved) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.sectors {
		j.sectors[i] = sector{order: j.history.version()}
		if i < len(s) {
			j.sectors[i].value, j.sectors[i].maybe = s[i].value, slices.Clone(s[i].maybe)
		}
	}
}

// Grow makes the volume larger by sectors of zeroes. The workers must be paused.
func (j *Journal) Grow(size int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sectors = append(j.sectors, make([]sector, size/sectorSize-int64(len(j.sectors)))...)
}
