package vm

import (
	"bufio"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/test/lack"
)

const (
	// memory of the machine: the file system in it, the volumes of the tests, and argon2.
	memory = "3072"
	// bound ends a machine that hangs.
	bound = 25 * time.Minute
	// verdict begins the line with which the first process ends.
	verdict = "the tests have ended with "
)

// machine is what runs in one.
type machine struct {
	// payload is the folder of the package whose tests run; wanted are those, skip leaves some out.
	payload, wanted, skip string
	// trees are folders of bin/packages whose files the machine has.
	trees []string
	// modules are what the tests need; those that they need in turn are in folders of the kernel's
	// package too.
	modules, folders []string
	// setup are commands of the first process before the tests.
	setup string
	// kernel is the folder of bin/packages that has the kernel; "": vm.
	kernel string
	// cpu is the emulated processor; "": all that the emulator has.
	cpu string
	// programs are those of cmd/ that the tests start.
	programs []string
	// parallel is how many tests run at once; "": two.
	parallel string
}

// wanted are the tests of package csi/node that want device-mapper, and TestGrowth, for which the
// kernel has to grow ext4 while it is mounted.
const wanted = "^(TestGrowth|TestEncryptedLife|TestEncryptedByAnyone|TestWrongKey|TestEncryptedEndAtEachStep|" +
	"TestEncryptedKeepsWhatIsThere|TestNoFormatBehindLUKS|TestLUKSFormatCutShort|TestEncryptedGrowth|" +
	"TestStaleMapping|TestUnstageWithoutADevice|TestRealDeviceMapper|TestPlantedHeader)$"

// slow are cases that show no more here than those of ext4: emulation makes a call of cryptsetup
// take seconds.
const slow = "^(TestEncryptedEndAtEachStep|TestEncryptedGrowth|TestGrowth)$/^xfs$"

// TestEncryptedVolumes: what package csi/node does with encrypted volumes, with the kernel's
// dm_crypt and the cryptsetup of the driver's image; and ext4 that grows while it is mounted.
func TestEncryptedVolumes(t *testing.T) {
	console := machine{payload: "csi/node", wanted: wanted, skip: slow, trees: []string{"toolbox"},
		modules: []string{"loop", "dm_crypt", "xfs"},
		folders: []string{"kernel/drivers/md", "kernel/drivers/block", "kernel/fs/xfs", "kernel/crypto",
			"kernel/arch/x86/crypto", "kernel/lib"},
		setup: "export ANKOLE_CRYPTSETUP=real"}.run(t)
	if !strings.Contains(console, "--- PASS: TestGrowth/ext4 ") { // elsewhere it may be left out
		t.Errorf("TestGrowth/ext4 has not passed in the machine; its console:\n%s", console)
	}
}

// TestEncryptedImages: images that package crypt has encrypted, with the kernel's dm_crypt.
func TestEncryptedImages(t *testing.T) {
	machine{payload: "dataplane/backingimage/crypt", wanted: "^(TestRealDeviceMapper|TestCiphertext)$",
		trees: []string{"toolbox"}, modules: []string{"loop", "dm_crypt"},
		folders: []string{"kernel/drivers/md", "kernel/drivers/block", "kernel/crypto", "kernel/arch/x86/crypto",
			"kernel/lib"},
		setup: "export ANKOLE_CRYPTSETUP=real"}.run(t)
}

// run runs the machine, and fails the test unless all that was wanted has run and passed in it. It
// returns what it has written.
func (m machine) run(t *testing.T) string {
	t.Helper()
	packages := filepath.Join(os.Getenv("ANKOLE_BIN"), "packages")
	if os.Getenv("ANKOLE_BIN") == "" {
		lack.Later(t, "tools/hunt.sh vm")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		lack.Skip(t, "qemu-system-x86_64 is not installed (package qemu-system-x86)")
	}
	m.kernel = cmp.Or(m.kernel, "vm")
	kernels, err := filepath.Glob(filepath.Join(packages, m.kernel, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		lack.Skip(t, "no kernel in bin/packages/", m.kernel, ": tools/hunt.sh vm unpacks one")
	}
	for _, tree := range m.trees {
		if _, err := os.Stat(filepath.Join(packages, tree)); err != nil {
			lack.Skip(t, "no bin/packages/", tree, ": tools/hunt.sh vm unpacks it")
		}
	}
	dir := t.TempDir()
	payload := filepath.Join(dir, "payload.test")
	build(t, "test", "-c", "-o", payload, "../../"+m.payload)
	for _, name := range m.programs {
		build(t, "build", "-o", filepath.Join(dir, name), "../../cmd/"+name)
	}
	archive := filepath.Join(dir, "initramfs")
	version := strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	if err := m.pack(archive, packages, version, dir); err != nil {
		t.Fatal(err)
	}
	console := boot(t, qemu, cmp.Or(m.cpu, "max"), kernels[0], archive)
	m.judge(t, console)
	return console
}

// build has the go command build something for the machine.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
}

// pack makes the machine's file system, with what was built in a folder.
func (m machine) pack(archive, packages, version, built string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	a := &initramfs{w: bufio.NewWriterSize(f, 1<<20)}
	for _, tree := range m.trees {
		a.tree(filepath.Join(packages, tree), func(name string) bool {
			return strings.HasPrefix(name, "usr/share") || strings.HasPrefix(name, "lib/systemd")
		})
	}
	for _, name := range []string{"proc", "sys", "dev", "tmp", "run", "lib/modules", "lib/modules/" + version,
		"lib/modules/" + version + "/kernel"} {
		a.directory(name)
	}
	kept := func(name string) bool {
		return slices.ContainsFunc(m.folders, func(f string) bool {
			return name == f || strings.HasPrefix(name, f+"/") || strings.HasPrefix(f, name+"/")
		})
	}
	modulesDir := "lib/modules/" + version
	a.tree(filepath.Join(packages, m.kernel), func(name string) bool {
		below, ok := strings.CutPrefix(name, modulesDir+"/")
		switch {
		case name == "lib", name == "lib/modules", name == modulesDir:
			return false
		case !ok:
			return true
		case strings.HasPrefix(below, "modules."):
			return false
		}
		return !kept(below)
	})
	a.file("payload.test", filepath.Join(built, "payload.test"))
	a.directory("programs")
	for _, name := range m.programs {
		a.file("programs/"+name, filepath.Join(built, name))
	}
	a.text("etc/passwd", "root:x:0:0::/:/bin/sh\n", 0o644)
	a.text("init", moved, 0o755)
	a.text("tests", m.script(), 0o755)
	return a.end()
}

// moved is the machine's first process: it moves the machine to a root that can be left as that of
// a container can, which the first one of a kernel cannot.
const moved = `#!/bin/busybox sh
busybox mkdir /newroot
busybox mount -t tmpfs -o size=80% tmpfs /newroot
for name in *; do [ "$name" = newroot ] || busybox cp -a "$name" /newroot; done
exec busybox switch_root /newroot /tests
`

// script goes on from there.
func (m machine) script() string {
	return `#!/bin/busybox sh
busybox mkdir -p /sbin /bin
for name in modprobe depmod poweroff; do [ -e /sbin/$name ] || busybox ln -s /bin/busybox /sbin/$name; done
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp ANKOLE_PROGRAMS=/programs
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t tmpfs -o size=80% tmpfs /tmp
busybox mkdir -p /dev/shm /dev/pts
busybox ln -s /proc/self/fd /dev/fd
busybox depmod
for name in ` + strings.Join(m.modules, " ") + `; do busybox modprobe $name || echo "module $name cannot be loaded"; done
busybox ifconfig lo up 127.0.0.1 2>/dev/null
busybox dmesg -n 1
` + m.setup + `
/payload.test -test.v -test.parallel ` + cmp.Or(m.parallel, "2") + ` -test.timeout 20m -test.run '` + m.wanted + `' -test.skip '` + m.skip + `'
echo "` + verdict + `$?"
busybox poweroff -f
`
}

// boot runs the machine to its end and returns what it has written.
func boot(t *testing.T, qemu, cpu, kernel, archive string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-accel", "tcg,thread=multi", "-cpu", cpu, "-smp", "2", "-m", memory,
		"-kernel", kernel, "-initrd", archive, "-append", "console=ttyS0 panic=-1 quiet no_timer_check",
		"-display", "none", "-nic", "none",
		"-serial", "stdio", "-monitor", "none", "-no-reboot")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var console strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		console.WriteString(line + "\n")
		if progress.MatchString(line) {
			t.Logf("after %v: %s", time.Since(began).Round(time.Second), line)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the machine: %v", err)
	}
	return console.String()
}

// progress is what the log shows of the console while the machine runs.
var progress = regexp.MustCompile(`^ *--- `)

// ran is the line of a test of the highest level that has ended.
var ran = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+)`)

// judge fails the test unless all tests in the machine have run and passed.
func (m machine) judge(t *testing.T, console string) {
	t.Helper()
	left := strings.Split(strings.Trim(m.wanted, "^()$"), "|")
	for _, m := range ran.FindAllStringSubmatch(console, -1) {
		if m[1] == "PASS" {
			left = slices.DeleteFunc(left, func(name string) bool { return name == m[2] })
		}
	}
	if len(left) > 0 || !strings.Contains(console, verdict+"0\n") {
		t.Errorf("not passed in the machine: %v; its console:\n%s", left, console)
	}
}
