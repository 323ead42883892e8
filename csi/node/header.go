package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/host/luks"
)

// luksDump reads the header at a path, of a device or of a file.
func (n vault) luksDump(path string) (h luks.Header, err error) {
	out, _, err := n.cryptsetup("", "luksDump", "--dump-json-metadata", path)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(out, &h); err != nil {
		return h, fmt.Errorf("LUKS2 header of %s: %w", path, err)
	}
	return h, nil
}

// What the API reserves in front of the ciphertext is what headers have.
const _ = uint(luks.HeaderBytes-lh.LUKSHeaderBytes) + uint(lh.LUKSHeaderBytes-luks.HeaderBytes)

// checkedHeader is a copy of a device's header, in memory, that is what the Secret asks for.
// cryptsetup is given the copy: whoever serves the device may give another header at the next read.
func (n vault) checkedHeader(own device, k luks.Key) (*os.File, error) {
	header, err := copyHeader(own)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reading the LUKS2 header of volume %s: %v", own.name(), err)
	}
	h, err := n.luksDump(headerPath(header))
	if err == nil {
		if err = h.Check(k); err == nil {
			return header, nil
		}
		err = status.Errorf(codes.FailedPrecondition, "encrypted volume %s is not opened, and nothing is changed: its LUKS2 "+
			"header, which whoever can write to its replicas may have put there, has %v", own.name(), err)
	} else {
		err = status.Errorf(codes.Internal, "reading the LUKS2 header of volume %s: %v", own.name(), err)
	}
	return nil, errors.Join(err, header.Close())
}

// headerPath names a file without a name to programs that this process starts.
func headerPath(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }

// copyHeader copies all that lies before the ciphertext.
func copyHeader(own device) (*os.File, error) {
	header := make([]byte, lh.LUKSHeaderBytes)
	from, err := os.Open(own.path)
	if err != nil {
		return nil, err
	}
	if _, err := from.ReadAt(header, 0); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	fd, err := unix.MemfdCreate("luks2-header", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	to := os.NewFile(uintptr(fd), "LUKS2 header of "+own.path)
	_, err = to.WriteAt(header, 0)
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}
