package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

const (
	// MountsVariable tells a process where the paths that its Pod mounts really are.
	MountsVariable = "ANKOLE_MOUNTS"
	// accountDir is where Kubernetes mounts a Pod's own credentials.
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// mounts maps each path that a container mounts to its real place.
func (v *volumes) mounts(pod *v1.Pod, c *v1.Container, env *environment) (map[string]string, error) {
	out := map[string]string{}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		vol := findVolume(pod, m.Name)
		if vol == nil {
			return nil, fmt.Errorf("%w: container %s mounts volume %q, which the Pod does not have", errConfig, c.Name, m.Name)
		}
		at := filepath.Clean(m.MountPath)
		sub, err := subPath(m, env)
		if err != nil {
			return nil, err
		}
		real := filepath.Join(v.real(pod, vol), sub)
		if sub != "" {
			if _, err := os.Stat(real); os.IsNotExist(err) {
				err = os.MkdirAll(real, 0o755)
				if err != nil {
					return nil, fmt.Errorf("%w: subPath of volume %s: %w", errConfig, m.Name, err)
				}
			}
		}
		out[at] = real
		if vol.HostPath != nil {
			for rel, place := range v.a.below(filepath.Join(vol.HostPath.Path, sub)) {
				out[filepath.Join(at, rel)] = place
			}
		}
	}
	for i := range c.VolumeDevices {
		return nil, fmt.Errorf("%w: container %s uses raw block volume %s, which process nodes do not support",
			errConfig, c.Name, c.VolumeDevices[i].Name)
	}
	return out, nil
}

// subPath is the part of a volume that a mount asks for; it must stay inside the volume.
func subPath(m *v1.VolumeMount, env *environment) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var err error
		if sub, err = kubecontainer.ExpandContainerVolumeMounts(*m, env.envVars()); err != nil {
			return "", fmt.Errorf("%w: subPathExpr of volume %s: %w", errConfig, m.Name, err)
		}
	}
	if sub == "" {
		return "", nil
	}
	if !filepath.IsLocal(sub) {
		return "", fmt.Errorf("%w: subPath %q of volume %s leaves the volume", errConfig, sub, m.Name)
	}
	return filepath.Clean(sub), nil
}

func findVolume(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// setMounts adds the mount map to a container's environment, and for Pods with credentials a
// kubeconfig: client libraries look for in-cluster credentials at one fixed path, which does not
// exist here.
func (a *Agent) setMounts(pod *v1.Pod, c *v1.Container, env *environment, mounts map[string]string) error {
	dir := a.containerDir(pod, c.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if c.TerminationMessagePath != "" {
		mounts[filepath.Clean(c.TerminationMessagePath)] = terminationFile(dir)
	}
	data, err := json.Marshal(mounts)
	if err != nil {
		return err
	}
	env.set(MountsVariable, string(data))
	real, ok := mounts[accountDir]
	if _, set := env.values["KUBECONFIG"]; !ok || set {
		return nil
	}
	path := filepath.Join(a.podDir(pod), "kubeconfig")
	env.set("KUBECONFIG", path)
	return a.writeAccountConfig(path, pod.Namespace, real)
}

func (a *Agent) writeAccountConfig(path, namespace, dir string) error {
	kc := clientcmdapi.NewConfig()
	kc.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server:               fmt.Sprintf("https://%s:%d", a.cfg.API.Host, a.cfg.API.Port),
		CertificateAuthority: filepath.Join(dir, "ca.crt"),
	}
	kc.AuthInfos["account"] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(dir, "token")}
	kc.Contexts["pod"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "account", Namespace: namespace}
	kc.CurrentContext = "pod"
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		return fmt.Errorf("kubeconfig of Pod: %w", err)
	}
	return nil
}

func terminationFile(dir string) string { return filepath.Join(dir, "termination-log") }

// workingDir is where a container starts: its workingDir if that lies in a mount, else the Pod's
// folder.
func (a *Agent) workingDir(pod *v1.Pod, c *v1.Container, mounts map[string]string) string {
	best, dir := "", a.podDir(pod)
	if c.WorkingDir == "" {
		return dir
	}
	want := filepath.Clean(c.WorkingDir)
	for at, real := range mounts {
		if within(want, at) && len(at) > len(best) {
			best, dir = at, filepath.Join(real, strings.TrimPrefix(want, at))
		}
	}
	return dir
}
