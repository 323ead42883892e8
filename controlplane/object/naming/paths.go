package naming

import (
	"path"
	"strings"
)

// Directories and files on the host.
const (
	DefaultDataPath    = "/var/lib/longhorn"
	EngineBinariesHost = DefaultDataPath + "/engine-binaries"
	UnixSocketsHost    = DefaultDataPath + "/unix-domain-socket"
	BackupBudgetHost   = DefaultDataPath + "/backup-bandwidth"
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

// BackingImagePath returns the path of the copy of a backing image on a disk.
func BackingImagePath(diskPath, name, uuid string) string {
	return path.Join(diskPath, BackingImageSubfolder, name+"-"+uuid, BackingImageFile)
}

// MappedDevicePath returns the path of the decrypted device of an attached encrypted volume.
func MappedDevicePath(volume string) string { return path.Join(MapperDirectory, volume) }

// CloneFromSnapshot returns the value of a volume's spec.dataSource that names a snapshot.
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
