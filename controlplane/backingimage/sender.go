package backingimage

import (
	"net"
	"strconv"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// Address is where a manager with an IP takes orders.
func Address(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(naming.PortBackingImage)) }

// Sender is the running manager that has an image ready and sends least of it: its address and its
// name; empty: none has it ready.
func Sender(managers []v1beta2.BackingImageManager, b *v1beta2.BackingImage) (address, name string) {
	least := 0
	for i := range managers {
		m := &managers[i]
		f := m.Status.BackingImageFileMap[b.Name]
		if m.Status.CurrentState == v1beta2.BackingImageManagerStateRunning && f.UUID == b.Status.UUID &&
			f.State == v1beta2.BackingImageStateReady && (address == "" || f.SendingReference < least) {
			least, address, name = f.SendingReference, Address(m.Status.IP), m.Name
		}
	}
	return address, name
}
