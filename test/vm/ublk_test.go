package vm

import (
	"os"
	"path/filepath"
	"testing"

	"ankole.storage/test/lack"
)

// ublk is a machine with a kernel that has the driver ublk_drv.
func ublk(t *testing.T) machine {
	t.Helper()
	const kernel = "vm-ublk"
	modules, err := filepath.Glob(filepath.Join(os.Getenv("ANKOLE_BIN"), "packages", kernel,
		"lib/modules/*/kernel/drivers/block/ublk_drv.ko*"))
	if os.Getenv("ANKOLE_BIN") != "" && (err != nil || len(modules) == 0) {
		lack.Skip(t, "no kernel with ublk_drv in bin/packages/", kernel,
			": tools/hunt.sh vm unpacks one where the sources of packages have it, as the backports of Debian 12 do")
	}
	return machine{trees: []string{"toolbox"}, modules: []string{"ublk_drv", "loop"}, kernel: kernel,
		folders: []string{"kernel/drivers/block", "kernel/crypto", "kernel/lib"},
		// These kernels use cmpxchg16b, whose flags are wrong in the emulator of Debian 12.
		cpu: "max,-cx16"}
}

// TestUblk: block devices of the kernel's driver ublk_drv.
func TestUblk(t *testing.T) {
	m := ublk(t)
	m.payload = "dataplane/device/blockdev"
	m.wanted = "^(TestUblkConformance|TestUblkFUA|TestUblkTakeOver|TestUblkTakeOverFull|TestUblkEnds|" +
		"TestUblkHoldsAFileSystem|TestUblkOneServer)$"
	m.run(t)
}

// TestUblkEngines: engines with such devices, killed under writers and on their way.
func TestUblkEngines(t *testing.T) {
	m := ublk(t)
	m.payload, m.programs = "test/crash", []string{"engine"}
	// An emulated processor that others use too does not answer within the seconds of a real one.
	m.parallel, m.setup = "1", "export ANKOLE_TIMES=10"
	m.wanted = "^(TestUblkDeviceStays|TestUblkDeviceStaysThroughKilledStarts)$"
	m.run(t)
}
