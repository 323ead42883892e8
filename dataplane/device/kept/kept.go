// Package kept decides whether what an engine left to its users, a block device or an open
// connection, goes on in another engine of the volume; docs/design/frontends.md has the table.
// Those users have seen what the first engine acknowledged, have written what nobody has answered
// yet, and hold pages in memory that they think are on the volume. All of that is true only as long
// as nobody else has served the volume, or put other content in its place.
package kept

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/quorum"
)

// Owners says which engines served a volume through a block device.
type Owners struct {
	// VolumeUUID tells the volume from another one of the same name.
	VolumeUUID string `json:"volumeUUID"`
	// Epochs are those of engines that served the volume through this device or not at all, the
	// newest last. An engine adds its own when it knows that it follows one of them, and before its
	// first record is written anywhere: from then on the next engine may find that record, and finds
	// its epoch here even if this engine is killed before it has the device.
	Epochs []uint64 `json:"epochs"`
}

// MaxEpochs bounds the list. An engine follows the newest record there is; older epochs are needed
// only where engines have been killed again and again before their records were on all replicas.
const MaxEpochs = 16

// Add notes the epoch of an engine that follows one of the given epochs. However many engines come
// to nothing after it, the one that is followed stays in the list: the next engine follows it too.
func (o *Owners) Add(epoch uint64, follows ...uint64) {
	if len(o.Epochs) >= MaxEpochs {
		out := slices.IndexFunc(o.Epochs, func(e uint64) bool { return !slices.Contains(follows, e) })
		o.Epochs = slices.Delete(slices.Clone(o.Epochs), max(0, out), max(0, out)+1)
	}
	o.Epochs = append(o.Epochs, epoch)
}

// ContinuedBy tells why the device cannot go on in an engine of the volume that follows the given
// epoch, nil if it can.
func (o *Owners) ContinuedBy(volumeUUID string, follows uint64) error {
	switch {
	case o.VolumeUUID == "" || len(o.Epochs) == 0:
		return errors.New("it was kept by a program that did not say of which volume and epoch it is")
	case o.VolumeUUID != volumeUUID:
		return fmt.Errorf("it is of another volume of this name, %s", o.VolumeUUID)
	case follows == 0:
		return errors.New("this engine does not know whose acknowledgements it follows")
	case !slices.Contains(o.Epochs, follows):
		return fmt.Errorf("it was served last under epoch %s, and another engine has served the volume since, under "+
			"epoch %s",
			quorum.EpochText(o.Epochs[len(o.Epochs)-1]), quorum.EpochText(follows))
	}
	return nil
}
