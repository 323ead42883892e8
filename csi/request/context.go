package request

// Keys of the publish context, by which the controller tells the node of a volume.
const (
	// ContextDevice has the device's path.
	ContextDevice = "devicePath"
	// ContextEncrypted is there if the volume is encrypted, whatever the PersistentVolume says.
	ContextEncrypted = "encrypted"
	// ContextContent says why the volume is known to have content.
	ContextContent = "content"
)
