package request

import (
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
)

// judged is what is said to arguments of mkfs, separated by blanks, and to mount options.
func judged(t *testing.T, fs, arguments string, options ...string) error {
	t.Helper()
	u, err := UsageOf(csitest.Capability(fs, csitest.Once, options...))
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := ParseClass(map[string]string{ParamMkfs: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return u.CheckAllowed(fs, w.Mkfs)
}

// TestMkfsArguments: what says how a file system is laid out is taken, what reads or writes
// something else on the node is refused.
func TestMkfsArguments(t *testing.T) {
	for _, tc := range []struct {
		fs, arguments string
		refused       bool
	}{
		{"ext4", "", false},
		{"ext4", "-b 4096 -O ^64bit,metadata_csum -i 8192 -m1 -E lazy_itable_init=0,stride=16", false},
		{"ext4", "-J size=64 -L data -U random -K", false},
		{"ext4", "-L device", false},
		{"ext4", "-d /etc", true},
		{"ext4", "-d/etc", true},
		{"ext4", "-E root_owner=0:0 -d etc", true},
		{"ext4", "-z /var/undo", true},
		{"ext4", "-l /etc/shadow", true},
		{"ext4", "-J device=/dev/sda", true},
		{"ext4", "-J device=LABEL", true},
		{"ext4", "-O journal_dev", true},
		{"ext4", "-E offset=1048576", true},
		{"ext4", "/dev/sda", true},
		{"ext4", "-b 4096 /dev/sda", true},
		{"ext4", "-qF", true},
		{"ext4", "-F", true},
		{"ext4", "-n", true},
		{"ext4", "-S", true},
		{"ext4", "-b", true},
		{"ext4", "--", true},
		{"ext4", "-t xfs", true},
		{"xfs", "-m bigtime=0,crc=1 -d agcount=4 -i size=512 -l size=64m,su=4096 -n size=8192 -s size=4096", false},
		{"xfs", "-p /etc/passwd", true},
		{"xfs", "-c options=/etc/x", true},
		{"xfs", "-d name=/dev/sda", true},
		{"xfs", "-d file,name=x,size=1g", true},
		{"xfs", "-l logdev=/dev/sda", true},
		{"xfs", "-l logdev=sda", true},
		{"xfs", "-r rtdev=/dev/sda", true},
		{"xfs", "-f", true},
		{"xfs", "-N", true},
	} {
		err := judged(t, tc.fs, tc.arguments)
		if !tc.refused && err != nil {
			t.Errorf("%s %q: %v", tc.fs, tc.arguments, err)
		} else if tc.refused {
			csitest.Wants(t, err, codes.InvalidArgument)
		}
	}
}

// TestMountOptions: those of the volume's file system are taken, a Pod's security context too.
func TestMountOptions(t *testing.T) {
	for _, tc := range []struct {
		fs, option string
		refused    bool
	}{
		{"ext4", "noatime,errors=remount-ro", false},
		{"ext4", "data=ordered", false},
		{"ext4", "ro", false},
		{"ext4", `context="system_u:object_r:container_file_t:s0:c10,c7"`, false},
		{"xfs", `nouuid,context="system_u:object_r:container_file_t:s0:c10,c7",noatime`, false},
		{"xfs", "logbsize=256k,inode64", false},
		{"xfs", "data=ordered", true},
		{"ext4", "journal_path=/dev/sda", true},
		{"ext4", "journal_dev=2049", true},
		{"ext4", "errors=/x", true},
		{"xfs", "logdev=/dev/sda", true},
		{"xfs", "rtdev=/dev/sda", true},
		{"ext4", "bind", true},
		{"ext4", "remount", true},
		{"ext4", "move", true},
		{"ext4", "loop", true},
		{"ext4", "X-mount.subdir=../x", true},
		{"ext4", "x-mount.mkdir", true},
		{"ext4", "helper=x", true},
		{"ext4", `noatime,context="a,b",bind`, true},
		{"ext4", `context="a,bind`, true},
	} {
		err := judged(t, tc.fs, "", tc.option)
		if !tc.refused && err != nil {
			t.Errorf("%s %q: %v", tc.fs, tc.option, err)
		} else if tc.refused {
			csitest.Wants(t, err, codes.InvalidArgument)
		}
	}
}
