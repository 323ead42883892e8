package setting

// BlockDeviceTransport is a setting of ours; other clients show it like any other.
const BlockDeviceTransport = "block-device-transport"

// Values of BlockDeviceTransport.
const (
	TransportAuto     = "auto"
	TransportFUSELoop = "fuse-loop"
	TransportNBDUnix  = "nbd-unix"
)

var additionalDefinitions = []Definition{
	{
		Name: BlockDeviceTransport, DisplayName: "Block Device Transport",
		Description: "How an engine makes the block device of a volume. auto takes the best one the node has; " +
			"fuse-loop is a loop device over a file of the engine; nbd-unix is no device but a socket that speaks the " +
			"NBD protocol. It holds for engines started after the change.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: TransportAuto, Options: []string{TransportAuto, TransportFUSELoop, TransportNBDUnix},
	},
}
