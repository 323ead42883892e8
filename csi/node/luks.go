package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/exec"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/host/luks"
)

// formatLUKS is what blkid calls a device with a LUKS header, of any version.
const formatLUKS = "crypto_LUKS"

// Exit status of cryptsetup, see cryptsetup(8).
const (
	cryptsetupNoPermission = 2
	cryptsetupBusy         = 5
)

// errBusy: somebody has the mapper device open.
var errBusy = errors.New("in use")

// vault is what of the node service knows keys: it makes, opens, grows and closes encrypted
// volumes.
type vault struct{ *Server }

// cryptsetup runs it with what it is to read. The lock of the volume is held by the call, so that
// that of cryptsetup, which needs a directory that an image need not have, is not needed.
func (n vault) cryptsetup(input, action string, args ...string) (out []byte, exit int, err error) {
	args = append([]string{action, "--disable-locks", "--batch-mode"}, args...)
	cmd := n.run.Command("cryptsetup", args...)
	cmd.SetStdin(strings.NewReader(input))
	out, err = cmd.CombinedOutput()
	if err == nil {
		return out, 0, nil
	}
	if failed, ok := err.(exec.ExitError); ok {
		exit = failed.ExitStatus()
	}
	return out, exit, fmt.Errorf("cryptsetup %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
}

// luksFormat writes a LUKS2 header with one key. It refuses a device that somebody has for itself,
// and no other one: whether the device holds anything has been looked at.
func (n vault) luksFormat(own device, k luks.Key) error {
	n.log.Info("making a LUKS2 header", "device", own.path, "arguments", k.Format)
	args := append([]string{"--type", "luks2", "--key-file", "-"}, k.Format...)
	if _, _, err := n.cryptsetup(k.Value, "luksFormat", append(args, own.path)...); err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	n.step("luks-formatted")
	return nil
}

// luksOpen makes the mapper device of a volume, with a header that is what was asked for.
func (n vault) luksOpen(own device, k luks.Key) error {
	header, err := n.checkedHeader(own, k)
	if err != nil {
		return err
	}
	defer header.Close()
	_, exit, err := n.cryptsetup(k.Value, "open", "--type", "luks2", "--allow-discards", "--key-file", "-", "--header",
		headerPath(header), own.path, own.name())
	switch {
	case exit == cryptsetupNoPermission:
		return status.Errorf(codes.PermissionDenied, "the key in the Secret does not open encrypted volume %s: nothing is "+
			"changed", own.name())
	case err != nil:
		return status.Errorf(codes.Internal, "opening encrypted volume %s: %v; usual reasons: the node's kernel has "+
			"not loaded dm_crypt (modprobe dm_crypt), or less than 1 GiB of its memory is free", own.name(), err)
	}
	n.step("unlocked")
	return nil
}

// luksClose removes a mapper device. Whoever scans new devices may have it open for a moment.
func (n vault) luksClose(volume string) (err error) {
	// What it returns says no more than err does.
	_ = wait.ExponentialBackoff(busy, func() (bool, error) {
		var exit int
		if _, exit, err = n.cryptsetup("", "close", volume); exit == cryptsetupBusy {
			err = fmt.Errorf("mapper device of volume %s: %w", volume, errBusy)
		}
		return !errors.Is(err, errBusy), nil
	})
	if err == nil {
		n.step("locked")
	}
	return err
}

// luksResize has the mapper device of a volume take all of the device below.
func (n vault) luksResize(own device, k luks.Key) error {
	header, err := n.checkedHeader(own, k)
	if err != nil {
		return err
	}
	defer header.Close()
	volume := own.name()
	_, exit, err := n.cryptsetup(k.Value, "resize", "--key-file", "-", "--header", headerPath(header), volume)
	switch {
	case exit == cryptsetupNoPermission:
		return status.Errorf(codes.PermissionDenied, "the key in the Secret is not that of encrypted volume %s, which does "+
			"not grow", volume)
	case err != nil:
		return status.Errorf(codes.Internal, "growing encrypted volume %s: %v", volume, err)
	}
	n.step("luks-resized")
	return nil
}

// directAlign is what reads past the cache of the kernel are aligned to, in bytes.
const directAlign = 4096

// ciphertext is what lies below the ends of a mapper device.
type ciphertext struct{ first, last []byte }

// unwritten: nothing was ever written through the mapper device where a look would find it. Zeros
// are what no data are encrypted to.
func (c *ciphertext) unwritten() bool { return zero(c.first) && zero(c.last) }

// readCiphertext reads past the cache of the kernel: dm_crypt writes past it.
func readCiphertext(own device) (c ciphertext, err error) {
	const data = lh.LUKSHeaderBytes
	size, err := own.size()
	if err != nil {
		return c, err
	}
	if size < data+headBytes {
		return c, fmt.Errorf("%s has %d bytes, and ciphertext from %d on", own.path, size, int64(data))
	}
	f, err := os.OpenFile(own.path, os.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return c, err
	}
	defer f.Close()
	length := min(edge, (size-data)/directAlign*directAlign)
	page, err := unix.Mmap(-1, 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return c, err
	}
	defer unix.Munmap(page)
	read := func(at int64) ([]byte, error) {
		if _, err := f.ReadAt(page, at); err != nil {
			return nil, err
		}
		return append([]byte(nil), page...), nil
	}
	if c.first, err = read(data); err != nil {
		return c, err
	}
	c.last, err = read(size/directAlign*directAlign - length)
	return c, err
}
