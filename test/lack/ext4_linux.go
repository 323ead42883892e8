package lack

import "golang.org/x/sys/unix"

// GrowingExt4 reports whether the kernel lets this process grow ext4 while it is mounted.
func GrowingExt4(t Tester) bool {
	t.Helper()
	var header unix.CapUserHeader
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatalf("the capabilities of this process: %v", err)
	}
	return data[0].Effective>>unix.CAP_SYS_RESOURCE&1 != 0
}
