package naming

import (
	"path"
	"strconv"
	"strings"
)

// Directories and files on the host.
const (
	DefaultDataPath    = "/var/lib/longhorn"
	EngineBinariesHost = DefaultDataPath + "/engine-binaries"
	UnixSocketsHost    = DefaultDataPath + "/unix-domain-socket"
	DeviceDirectory    = "/dev/longhorn"
	MapperDirectory    = "/dev/mapper"
	CSISocketHost      = "/var/lib/kubelet/plugins/driver.longhorn.io/csi.sock"

	// DiskConfigFile lies in the root of every disk and says which disk it is.
	DiskConfigFile         = "longhorn-disk.cfg"
	ReplicaDirectory       = "replicas"
	BackingImageSubfolder  = "backing-images"
	BackingImageFile       = "backing"
	BackingImageConfigFile = "backing.cfg"
	engineBinary           = "longhorn"
)

// Directories as Pods see them.
const (
	HostRootInPod       = "/host"
	EngineBinariesInPod = "/engine-binaries/"
	TLSFilesInPod       = "/tls-files/"
)

// EngineBinaryInPod returns the path of the engine binary of an image in Pods that mount the folder
// of binaries.
func EngineBinaryInPod(image string) string {
	return path.Join(EngineBinariesInPod, CanonicalImage(image), engineBinary)
}

// EngineBinaryOnHost returns the path of the same file on the host.
func EngineBinaryOnHost(image string) string {
	return path.Join(EngineBinariesHost, CanonicalImage(image), engineBinary)
}

// ReplicaBinaryInPod returns the path of the same file through the root of the host; replicas are
// started from it.
func ReplicaBinaryInPod(image string) string {
	return InHostMount(EngineBinaryOnHost(image))
}

// InHostMount returns the path in a Pod that mounts the root of the host, given a path of the host.
func InHostMount(hostPath string) string {
	return path.Join(HostRootInPod, hostPath)
}

// DiskConfigPath returns the path of the configuration file of a disk.
func DiskConfigPath(diskPath string) string { return path.Join(diskPath, DiskConfigFile) }

// ReplicaPath returns the path of a replica's directory on its disk.
func ReplicaPath(diskPath, dataDirectory string) string {
	return path.Join(diskPath, ReplicaDirectory, dataDirectory)
}

// BackingImagePath returns the path of the directory of a copy of a backing image.
func BackingImagePath(diskPath, backingImage, uuid string) string {
	return path.Join(diskPath, BackingImageSubfolder, BackingImageDirectory(backingImage, uuid))
}

// DevicePath returns the path of the block device of an attached volume, which is also its
// endpoint.
func DevicePath(volume string) string { return path.Join(DeviceDirectory, volume) }

// MappedDevicePath returns the path of the decrypted device of an attached encrypted volume.
func MappedDevicePath(volume string) string { return path.Join(MapperDirectory, volume) }

// iqnPrefix begins the iSCSI name of a volume.
const iqnPrefix = "iqn.2019-10.io.longhorn:"

// IQN returns the iSCSI name of a volume.
func IQN(volume string) string { return iqnPrefix + volume }

// ISCSIEndpoint returns the URL of a volume with frontend iscsi.
func ISCSIEndpoint(ip, volume string) string {
	return "iscsi://" + ip + ":" + strconv.Itoa(PortISCSI) + "/" + IQN(volume) + "/1"
}

// ShareEndpoint returns the URL of the NFS share of a volume.
func ShareEndpoint(ip, volume string) string { return "nfs://" + ip + "/" + volume }

// BackupURL returns the URL of a backup in a backup store.
func BackupURL(targetURL, backup, volume string) string {
	return targetURL + "?backup=" + backup + "&volume=" + volume
}

// CloneFromVolume and CloneFromSnapshot return values of a volume's spec.dataSource.
func CloneFromVolume(volume string) string { return volumeScheme + volume }

// CloneFromSnapshot names a snapshot as the source of a clone; see CloneFromVolume.
func CloneFromSnapshot(volume, snapshot string) string {
	return snapshotScheme + volume + "/" + snapshot
}

const (
	volumeScheme   = "vol://"
	snapshotScheme = "snap://"
)

// ParseCloneSource splits a value of spec.dataSource. The snapshot is empty for a whole volume; ok
// is false if the value has neither form.
func ParseCloneSource(source string) (volume, snapshot string, ok bool) {
	if v, found := strings.CutPrefix(source, volumeScheme); found {
		return v, "", v != "" && !strings.Contains(v, "/")
	}
	if rest, found := strings.CutPrefix(source, snapshotScheme); found {
		v, s, two := strings.Cut(rest, "/")
		return v, s, two && v != "" && s != "" && !strings.Contains(s, "/")
	}
	return "", "", false
}

// EngineFrontend returns the word the engine process uses for a volume's frontend, empty for none.
func EngineFrontend(volumeFrontend string) string {
	switch volumeFrontend {
	case "blockdev":
		return "tgt-blockdev"
	case "iscsi":
		return "tgt-iscsi"
	}
	return ""
}
