package node

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// Checks says what the host lacks for parts of the system that need more than a directory. They
// look at files only, run nothing, and do not decide whether the node is Ready. pod is the
// manager's own Pod, nil if unknown.
func (h Host) Checks(pod *corev1.Pod) []v1beta2.Condition {
	return []v1beta2.Condition{
		checkMountPropagation(pod),
		h.checkMultipathd(),
		h.checkModules(),
		// The programs that are run are in the images: no package of the host is required.
		fine(v1beta2.NodeConditionRequiredPackages),
		h.checkNFS(),
	}
}

func fine(kind string) v1beta2.Condition {
	return v1beta2.Condition{Type: kind, Status: v1beta2.ConditionTrue}
}

func lacking(kind, reason, message string) v1beta2.Condition {
	return v1beta2.Condition{Type: kind, Status: v1beta2.ConditionFalse, Reason: reason, Message: message}
}

// checkMountPropagation asks whether mounts made in the Pod reach the host.
func checkMountPropagation(pod *corev1.Pod) v1beta2.Condition {
	if pod != nil {
		for _, c := range pod.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
					return fine(v1beta2.NodeConditionMountPropagation)
				}
			}
		}
	}
	return lacking(v1beta2.NodeConditionMountPropagation, v1beta2.NodeReasonNoMountPropagationSupport,
		"the manager Pod has no mount with bidirectional propagation; file systems of volumes mounted by it would not "+
			"be seen on the host")
}

func (h Host) exists(paths ...string) bool {
	for _, p := range paths {
		if _, err := os.Stat(h.open(p)); err == nil {
			return true
		}
	}
	return false
}

// checkMultipathd warns of a multipath daemon, which may claim the volumes' block devices.
func (h Host) checkMultipathd() v1beta2.Condition {
	if h.exists("/run/multipathd.pid", "/run/multipathd/pid") {
		return lacking(v1beta2.NodeConditionMultipathd, v1beta2.NodeReasonMultipathdIsRunning,
			"multipathd runs on the host and may claim the block devices of volumes; blacklist them in its configuration")
	}
	return fine(v1beta2.NodeConditionMultipathd)
}

// blockDeviceFiles are what an engine makes block devices with.
var blockDeviceFiles = []string{"/dev/fuse", "/dev/loop-control"}

// checkModules asks for the devices that block devices need, and for dm_crypt, which encrypted
// volumes need.
func (h Host) checkModules() v1beta2.Condition {
	kind := v1beta2.NodeConditionKernelModulesLoaded
	var missing []string
	for _, file := range blockDeviceFiles {
		if !h.exists(file) {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return lacking(kind, v1beta2.NodeReasonNoBlockDevices, "the host lacks "+strings.Join(missing, " and ")+
			"; volumes have no block device on this node, so no Pod can use one here; run on the host: modprobe -a fuse loop")
	}
	if _, err := os.Stat(h.kernel + "/sys/module/dm_crypt"); err == nil {
		return fine(kind)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return lacking(kind, v1beta2.NodeReasonCheckKernelConfigFailed, err.Error())
	}
	return lacking(kind, v1beta2.NodeReasonKernelModulesNotLoaded, "kernel module dm_crypt is not loaded; only encrypted "+
		"volumes need it; before one is used on this node run on the host: modprobe dm_crypt")
}

// checkNFS asks whether the kernel can mount NFS 4.
func (h Host) checkNFS() v1beta2.Condition {
	kind := v1beta2.NodeConditionNFSClientInstalled
	known, err := os.ReadFile(h.kernel + "/proc/filesystems")
	if err != nil {
		return lacking(kind, v1beta2.NodeReasonCheckKernelConfigFailed, err.Error())
	}
	for field := range strings.FieldsSeq(string(known)) {
		if field == "nfs4" {
			return fine(kind)
		}
	}
	return lacking(kind, v1beta2.NodeReasonNFSClientIsNotFound,
		"the kernel does not offer file system nfs4; only backup targets nfs:// need it: no volume is affected; before one is "+
			"used run on the host: modprobe nfs")
}
