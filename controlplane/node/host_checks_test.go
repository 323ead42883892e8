package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestChecksOfAHost: what a host lacks, by the conditions and reasons that clients know.
func TestChecksOfAHost(t *testing.T) {
	both := corev1.MountPropagationBidirectional
	propagates := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		VolumeMounts: []corev1.VolumeMount{{Name: "a"}, {Name: "b", MountPropagation: &both}}}}}}
	all := []string{"host/dev/fuse", "host/dev/loop-control", "kernel/sys/module/dm_crypt", "kernel/proc/filesystems"}
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		lacks string // of all
		more  string
		want  map[string]string // reasons of the conditions that are False
		says  string            // what their message has
	}{
		{"whole, without a package", propagates, "", "", nil, ""},
		{"no propagation", &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			VolumeMounts: []corev1.VolumeMount{{Name: "a"}}}}}}, "", "",
			map[string]string{"MountPropagation": "NoMountPropagationSupport"}, ""},
		{"unknown Pod", nil, "", "", map[string]string{"MountPropagation": "NoMountPropagationSupport"}, ""},
		{"multipathd", propagates, "", "host/run/multipathd.pid",
			map[string]string{"Multipathd": "MultipathdIsRunning"}, ""},
		{"multipathd elsewhere", propagates, "", "host/run/multipathd/pid",
			map[string]string{"Multipathd": "MultipathdIsRunning"}, ""},
		{"no module", propagates, "kernel/sys/module/dm_crypt", "",
			map[string]string{"KernelModulesLoaded": "KernelModulesNotLoaded"}, "only encrypted volumes need it; before one " +
				"is used on this node run on the host: modprobe dm_crypt"},
		{"no FUSE", propagates, "host/dev/fuse", "", map[string]string{"KernelModulesLoaded": "NoBlockDevices"},
			"the host lacks /dev/fuse; volumes have no block device on this node, so no Pod can use one here; run on the " +
				"host: modprobe -a fuse loop"},
		{"no loop devices", propagates, "host/dev/loop-control", "",
			map[string]string{"KernelModulesLoaded": "NoBlockDevices"}, "the host lacks /dev/loop-control; "},
		{"no list of file systems", propagates, "kernel/proc/filesystems", "",
			map[string]string{"NFSClientInstalled": "CheckKernelConfigFailed"}, ""},
		{"no NFS", propagates, "", "kernel/proc/filesystems.empty",
			map[string]string{"NFSClientInstalled": "NFSClientIsNotFound"}, "no volume is affected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				name = filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range append(all, tt.more) {
				switch {
				case name == tt.lacks || name == "":
				case name == "kernel/proc/filesystems":
					write(name, "nodev\tsysfs\n\text4\nnodev\tnfs4\n")
				case name == "kernel/proc/filesystems.empty":
					write("kernel/proc/filesystems", "nodev\tsysfs\n\text4\nnodev\tnfs\n")
				default:
					write(name, "")
				}
			}
			h := Host{Resolve: func(path string) string {
				rest, err := filepath.Rel("/host", path)
				if err != nil {
					t.Errorf("%s is not the host's", path)
				}
				return filepath.Join(dir, "host", rest)
			}, kernel: filepath.Join(dir, "kernel")}
			seen := map[string]bool{}
			for _, c := range h.Checks(tt.pod) {
				seen[c.Type] = true
				wanted, lacking := tt.want[c.Type]
				if (c.Status == "False") != lacking || c.Reason != wanted || lacking == (c.Message == "") ||
					lacking && !strings.Contains(c.Message, tt.says) {
					t.Errorf("%s is %s, reason %q, message %q; want reason %q, %q", c.Type, c.Status, c.Reason, c.Message, wanted,
						tt.says)
				}
			}
			for _, kind := range []string{"MountPropagation", "Multipathd", "KernelModulesLoaded", "RequiredPackages",
				"NFSClientInstalled"} {
				if !seen[kind] {
					t.Errorf("no condition %s", kind)
				}
			}
		})
	}
}
