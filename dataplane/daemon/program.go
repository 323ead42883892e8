package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// idleProgram is how much of the program an idle process may have mapped, in bytes: what the Go
// runtime and a heartbeat use, about 1.8 MiB, and some room, so that it is not unmapped for
// nothing.
const idleProgram = 5 << 19

// unmapProgram takes the program's own code and constants out of the process's memory if much of
// them is mapped. What is executed or read next comes back from the page cache by minor faults, up
// to 64 KiB at a time. So an idle process has mapped what it uses while it is idle, and the kernel
// may evict the rest. Any thread may run meanwhile.
func unmapProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("cannot find the program's file: %w", err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("cannot find the program in memory: %w", err)
	}
	defer f.Close()
	mappings, err := cleanMappings(f, exe)
	if err != nil {
		return fmt.Errorf("cannot find the program in memory: %w", err)
	}
	resident := 0
	for _, m := range mappings {
		resident += m.resident
	}
	if resident <= idleProgram {
		return nil
	}
	for _, m := range mappings {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("cannot unmap the program: %w", errno)
		}
	}
	return nil
}

// mapping is memory from address start to before end, of which resident bytes are mapped.
type mapping struct {
	start, end uintptr
	resident   int
}

// cleanMappings returns where the file exe is mapped, by the text of /proc/self/smaps, such that
// the memory has nothing that is not in the file. Data, constants with relocations, and code that a
// debugger has changed are writable or have anonymous pages; their content would be lost.
func cleanMappings(smaps io.Reader, exe string) ([]mapping, error) {
	var clean []mapping
	var m mapping
	ours := false
	for lines := bufio.NewScanner(smaps); ; {
		if !lines.Scan() {
			return clean, lines.Err()
		}
		line := lines.Text()
		var start, end, offset, inode uint64
		var mode, device string
		var kib int
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %d", &start, &end, &mode, &offset, &device, &inode); n == 6 {
			ours = inode != 0 && strings.HasSuffix(line, " "+exe) && (mode == "r-xp" || mode == "r--p")
			m = mapping{start: uintptr(start), end: uintptr(end)}
			continue
		}
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 {
			m.resident = kib << 10
		}
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kib); ours && n == 1 && kib == 0 {
			clean = append(clean, m)
		}
	}
}
