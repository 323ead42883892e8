package naming

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxNameLength bounds the names of volumes, backing images and recurring jobs: names derived from
// them get prefixes and suffixes and must still be DNS labels of at most 63 characters.
const MaxNameLength = 40

var (
	// namePattern is what names of volumes, backing images, backups, backup targets and recurring
	// jobs look like.
	namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]+$`)
	dnsLabel    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	// dataDirectory recognises a replica directory on a disk.
	dataDirectory = regexp.MustCompile(`^.*-[a-zA-Z0-9]{8}$`)
)

// CheckName returns an error unless the name has the form all named objects must have: two or more
// characters, lower case letters, digits, and `_`, `.`, `-` behind the first one.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("invalid name %q: use two or more characters out of a-z, 0-9, '_', '.', '-', and begin with "+
			"a letter or digit", name)
	}
	return nil
}

// CheckVolumeName returns an error unless the name is good for a volume: a DNS label of 2 to 40
// characters.
func CheckVolumeName(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(name) > MaxNameLength {
		return fmt.Errorf("invalid volume name %q: %d characters, at most %d are allowed", name, len(name), MaxNameLength)
	}
	if !dnsLabel.MatchString(name) {
		return fmt.Errorf(
			"invalid volume name %q: use lower case letters, digits and '-', and end with a letter or digit", name)
	}
	return nil
}

// MaxSnapshotName is the longest name of a snapshot: the files that an engine makes of it have 30
// characters more, and a file's name has 255.
const MaxSnapshotName = 225

// CheckSnapshotName returns an error unless a snapshot can have the name in its engine and as an
// object: a DNS subdomain of at most MaxSnapshotName characters that is not the head's name.
func CheckSnapshotName(name string) error {
	switch problems := validation.IsDNS1123Subdomain(name); {
	case len(name) > MaxSnapshotName:
		return fmt.Errorf("invalid snapshot name %.32q…: %d characters, at most %d are allowed", name, len(name),
			MaxSnapshotName)
	case len(problems) > 0:
		return fmt.Errorf("invalid snapshot name %q: use lower case letters, digits, '-' and '.', and begin and end with a "+
			"letter or digit", name)
	case name == snapshotHead:
		return fmt.Errorf("invalid snapshot name %q: it is what the writable head of a volume is called", name)
	}
	return nil
}

// MaxDiskName is the longest name of a disk: it is part of messages, columns and metrics.
const MaxDiskName = 253

// CheckDiskName returns an error unless a disk of a node can have the name: printable characters,
// without space around them.
func CheckDiskName(name string) error {
	switch {
	case len(name) > MaxDiskName:
		return fmt.Errorf("invalid disk name %.32q…: %d characters, at most %d are allowed", name, len(name), MaxDiskName)
	case name == "" || strings.TrimSpace(name) != name || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return fmt.Errorf("invalid disk name %q: use printable characters, without space around them", name)
	}
	return nil
}

// snapshotHead is how engines list the head, which is no snapshot.
const snapshotHead = "volume-head"

// CheckImage returns an error unless an engine of the image can be installed: it is a reference
// whose directory of binaries can have its name.
func CheckImage(image string) error {
	switch canonical := CanonicalImage(image); {
	case canonical == "" || strings.ContainsFunc(image, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return fmt.Errorf("invalid image %q: give an image reference such as registry/name:tag", image)
	case canonical == "." || canonical == "..":
		return fmt.Errorf("invalid image %q: it is no reference", image)
	case len(canonical) > maxFileName:
		return fmt.Errorf("invalid image %.32q…: %d characters, at most %d are allowed, since a directory on each node is "+
			"called so", image, len(image), maxFileName)
	}
	return nil
}

// maxFileName is the length of a file's name that file systems take.
const maxFileName = 255

// CorrectName makes a name fit: lower case, and if it is longer than MaxNameLength a prefix of it,
// a dash and eight digits of the SHA-512 of the name as it was given.
func CorrectName(name string) string {
	lower := strings.ToLower(name)
	if len(lower) <= MaxNameLength {
		return lower
	}
	return lower[:MaxNameLength-suffixDigits-1] + "-" + sha512Prefix(name, suffixDigits)
}

// EngineName returns the name of the engine with a number, 0 for the first.
func EngineName(volume string, number int) string {
	return volume + "-e-" + strconv.Itoa(number)
}

// NextEngineName returns the name of the engine that takes over from another in a live migration:
// the next number, or 1 if the old name ends in random digits, as older versions named engines.
func NextEngineName(volume, current string) string {
	suffix := strings.TrimPrefix(current, volume+"-e-")
	n, err := strconv.Atoi(suffix)
	// Eight decimal digits are more likely a random suffix than a volume that was migrated ten
	// million times.
	if err != nil || n < 0 || len(suffix) >= suffixDigits {
		return EngineName(volume, 1)
	}
	return EngineName(volume, n+1)
}

// ReplicaName returns the name of a replica, given a RandomSuffix.
func ReplicaName(volume, suffix string) string {
	return volume + "-r-" + suffix
}

// ReplicaDataDirectory returns the name of a replica's directory below <disk>/replicas, given a
// RandomSuffix (another one than that of the name, since the directory outlives the Replica object
// in some cases).
func ReplicaDataDirectory(volume, suffix string) string {
	return volume + "-" + suffix
}

// IsReplicaDataDirectory reports whether a directory name looks like that of a replica.
func IsReplicaDataDirectory(name string) bool {
	return dataDirectory.MatchString(name)
}

// EngineImageName returns the name of the EngineImage object of an image reference.
func EngineImageName(image string) string {
	return "ei-" + sha512Prefix(strings.TrimSpace(image), suffixDigits)
}

// EngineImageDaemonSetName returns the name of the DaemonSet, and of its container, that installs
// an engine image.
func EngineImageDaemonSetName(engineImageName string) string {
	return "engine-image-" + engineImageName
}

// InstanceManagerName returns the name of the instance manager of type aio for a node and an image.
func InstanceManagerName(node, image string) string {
	return "instance-manager-" + instanceManagerHash(node, image)
}

// instanceManagerHash takes 32 of the 128 digits, so that the name stays a DNS label.
func instanceManagerHash(node, image string) string {
	return sha512Prefix(node+image, 32)
}

// InstanceManagerImageLabel returns the value of the label that names the image of an instance
// manager.
func InstanceManagerImageLabel(image string) string {
	return "imi-" + sha512Prefix(CanonicalImage(strings.TrimSpace(image)), suffixDigits)
}

// PodDisruptionBudgetName returns the name of the PDB of an instance manager.
func PodDisruptionBudgetName(instanceManager string) string { return instanceManager }

// longRandomDigits is the length of the random part of names of snapshots made by the system.
const longRandomDigits = 16

// RandomSnapshotName returns a new name for a snapshot ordered without one.
func RandomSnapshotName() string { return "snap-" + RandomHex(longRandomDigits) }

// RecurringSnapshotName returns the name of a snapshot made by a recurring job, given a UUID. A dot
// at the end of what is left of the job's name is left out: no object could have the name.
func RecurringSnapshotName(job, uuid string) string {
	prefix := job + "-c"
	return strings.TrimRight(prefix[:min(len(prefix), suffixDigits)], ".") + "-" + uuid
}

// RandomBackupName returns a new name for a backup ordered without one.
func RandomBackupName() string { return "backup-" + RandomHex(longRandomDigits) }

// BackupVolumeName returns the name of the BackupVolume of a volume on a backup target.
func BackupVolumeName(volume, target string) string {
	return volume + "-" + sha256Hex(volume + "-" + target)[:suffixDigits]
}

// BackupImageName returns the name of the BackupBackingImage of a backing image on a backup target,
// which has one.
func BackupImageName(image, target string) string {
	return image + "-" + sha256Hex(image + "-" + target)[:suffixDigits]
}

// OrphanDataName returns the name of the Orphan object for a replica directory nobody owns.
func OrphanDataName(node, diskName, diskPath, diskUUID, directory string) string {
	return "orphan-" + sha256Hex(strings.Join([]string{node, diskName, diskPath, diskUUID, directory}, "-"))
}

// OrphanInstanceName returns the name of the Orphan object for a process nobody owns. The last part
// is the data engine of the process.
func OrphanInstanceName(instance, uuid, instanceManager, dataEngine string) string {
	return "orphan-" + sha256Hex(strings.Join([]string{instance, uuid, instanceManager, dataEngine}, "-"))
}

// DefaultDiskName returns the name of the disk made on a node without disks, from the id of its
// file system.
func DefaultDiskName(filesystemID string) string { return "default-disk-" + filesystemID }

// AttachmentTicketID returns the id of a ticket, cut to the length of a Kubernetes name.
func AttachmentTicketID(attacherType, id string) string {
	ticket := attacherType + "-" + id
	return ticket[:min(len(ticket), maxTicketID)]
}

// CSIAttachment is the name of Kubernetes' own VolumeAttachment of a volume on a node, and the id
// of the driver's ticket.
func CSIAttachment(volume, node string) string { return "csi-" + sha256Hex(volume+CSIDriver+node) }

// maxTicketID is the length limit of Kubernetes object names, which tickets were keyed by once.
const maxTicketID = 253
