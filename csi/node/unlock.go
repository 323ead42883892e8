package node

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/luks"
)

// unlock returns the mapper device of an encrypted volume. If need be a LUKS2 header is written on
// a device that holds nothing, and a mapping that is left of an earlier device of the volume is put
// away. docs/guide/encryption.md has the table.
func (n vault) unlock(own device, s *staging) (device, error) {
	m, err := n.mapping(own.name())
	if err != nil {
		return own, status.Errorf(codes.Internal, "%v", err)
	}
	switch {
	case m != nil && m.standsOn(own):
		return n.mapper(m)
	case m != nil && !m.former():
		return own, status.Errorf(codes.FailedPrecondition, "%s is a device of this node that is not the volume's: nothing "+
			"is changed; close it on the node, or give it another name: dmsetup rename %s NEW",
			naming.MappedDevicePath(own.name()), own.name())
	case s.keyless != nil:
		return own, s.keyless
	case m != nil:
		if err := n.putAway(m, s.path); err != nil {
			return own, status.Errorf(codes.Internal, "%v", err)
		}
	}
	if err := n.prepareLUKS(own, s); err != nil {
		return own, err
	}
	if err := n.luksOpen(own, s.key); err != nil {
		return own, err
	}
	if m, err = n.mapping(own.name()); err == nil && (m == nil || !m.standsOn(own)) {
		err = fmt.Errorf("cryptsetup has opened volume %s, and there is no mapper device of it", own.name())
	}
	if err != nil {
		return own, status.Errorf(codes.Internal, "%v", err)
	}
	return n.mapper(m)
}

func (n vault) mapper(m *mapping) (device, error) {
	d, err := m.device()
	if err != nil {
		return d, status.Errorf(codes.Internal, "%v", err)
	}
	return d, nil
}

// prepareLUKS has a LUKS2 header with a key on the device.
func (n vault) prepareLUKS(own device, s *staging) error {
	c, err := n.look(own)
	cutShort := false
	if err == nil && c.format == formatLUKS {
		cutShort, err = n.luksCutShort(own)
	}
	switch {
	case err != nil:
		return status.Errorf(codes.Internal, "looking what is on %s: %v; nothing is changed", own.path, err)
	case c.format == formatLUKS && !cutShort:
		return nil
	case c.format != "" && !cutShort:
		return status.Errorf(codes.FailedPrecondition, "the volume is to be encrypted and holds %s: nothing is changed; "+
			"it was used without encryption: copy what it holds into a new encrypted volume", c.format)
	case s.ReadOnly:
		return status.Error(codes.FailedPrecondition, "the volume holds nothing, and is to be read only: write to it first")
	}
	if err := c.mayFormat(own, s.content); err != nil {
		return err
	}
	return n.luksFormat(own, s.key)
}

// luksCutShort reports whether luksFormat has ended between the header and its key: nothing can
// open it, and nothing was ever written behind it.
func (n vault) luksCutShort(own device) (bool, error) {
	h, err := n.luksDump(own.path)
	if err != nil || len(h.Keyslots) > 0 {
		return false, err
	}
	below, err := readCiphertext(own)
	if err == nil && !below.unwritten() {
		err = errors.New("its LUKS2 header has no key any more, and data lie behind it")
	}
	return err == nil, err
}

// lookBehind says what a mapper device holds. Zeros that were never encrypted read as noise.
func (n vault) lookBehind(own, mapper device) (c content, err error) {
	if err := mapper.sync(); err != nil { // a mkfs that was cut short may have left it in the cache
		return c, err
	}
	below, err := readCiphertext(own)
	if err != nil || below.unwritten() {
		return c, err
	}
	c, err = n.look(mapper)
	c.raw = c.raw && !zero(below.first[:headBytes])
	return c, err
}

// fit has the mapper device take all of the device below, which may have grown, and returns its
// size.
func (n vault) fit(own, mapper device, k luks.Key, keyless error) (have int64, err error) {
	below, err := own.size()
	if err == nil {
		have, err = mapper.size()
	}
	if err == nil && below-lh.LUKSHeaderBytes > have {
		if keyless != nil {
			return have, keyless
		}
		if err := n.luksResize(own, k); err != nil {
			return have, err
		}
		have, err = mapper.size()
	}
	if err != nil {
		return have, status.Errorf(codes.Internal, "%v", err)
	}
	return have, nil
}

// putAway closes a mapping that is left of a device which the volume had before. path is where it
// may be staged.
func (n vault) putAway(m *mapping, path string) error {
	n.log.Warn("the mapper device of an encrypted volume stands on a device that the volume had before, it is closed",
		"volume", m.volume, "device", deviceText(m.number))
	if path != "" {
		at, err := mounted(path)
		if err != nil {
			return err
		}
		if len(at) > 0 && at[len(at)-1].Device == deviceText(m.number) {
			if _, err := unmountAll(path); err != nil {
				return err
			}
		}
	}
	return n.closeFormer(m)
}

// closeFormer closes a mapping; if somebody has it open it goes with that user, and the volume has
// the name again.
func (n vault) closeFormer(m *mapping) error {
	err := n.luksClose(m.volume)
	if errors.Is(err, errBusy) {
		if err = n.aside(m.volume, m.number); err == nil {
			n.step("set-aside")
		}
	}
	if err != nil {
		return fmt.Errorf("closing the mapper device of volume %s: %w", m.volume, err)
	}
	return nil
}

// lock closes the mapper device of an encrypted volume that leaves the node; of others there is
// none. It refuses while somebody uses the device, unless the device does not answer any more
// (left): it goes with its users then.
func (n vault) lock(volume string, left bool) error {
	m, err := n.mapping(volume)
	if err != nil || m == nil {
		return err
	}
	own, err := lookup(volume)
	present := err == nil && m.standsOn(own)
	switch {
	case !present && !m.former():
		return nil // a device of the host
	case !present || left:
		return n.closeFormer(m)
	}
	mapper, err := m.device()
	if err != nil {
		return err
	}
	if err := n.free(mapper); err != nil {
		return err
	}
	return n.luksClose(volume)
}

// expandMapper waits until the device of an encrypted volume has room for a size behind its header,
// and has the mapper device take it.
func (n vault) expandMapper(ctx context.Context, own, mapper device, wanted int64, k luks.Key,
	keyless error) (int64,
	error) {
	if wanted > 0 {
		wanted += lh.LUKSHeaderBytes
	}
	if _, err := own.awaitSize(ctx, wanted); err != nil {
		return 0, err
	}
	return n.fit(own, mapper, k, keyless)
}
