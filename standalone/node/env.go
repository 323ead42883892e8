package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resourceapi "k8s.io/kubernetes/pkg/api/v1/resource"
	podshelper "k8s.io/kubernetes/pkg/apis/core/pods"
	"k8s.io/kubernetes/pkg/fieldpath"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"ankole.storage/host/listener"
	"ankole.storage/host/patience"
)

// errConfig marks what a kubelet reports as CreateContainerConfigError: the Pod asks for something
// that does not exist (yet).
var errConfig = errors.New("container configuration")

// environment is an ordered set of variables; later values replace earlier ones.
type environment struct {
	names  []string
	values map[string]string
}

func newEnvironment() *environment { return &environment{values: map[string]string{}} }

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// list renders the variables as KEY=value.
func (e *environment) list() []string {
	out := make([]string, 0, len(e.names))
	for _, n := range e.names {
		out = append(out, n+"="+e.values[n])
	}
	return out
}

// envVars is the form in which the kubelet's own expansion takes them.
func (e *environment) envVars() []kubecontainer.EnvVar {
	out := make([]kubecontainer.EnvVar, 0, len(e.names))
	for _, n := range e.names {
		out = append(out, kubecontainer.EnvVar{Name: n, Value: e.values[n]})
	}
	return out
}

// passedOn are this program's own variables that containers get as well: switches for tests, see
// docs/design/frontends.md.
var passedOn = []string{"ANKOLE_RUN", patience.Variable}

// environment builds a container's variables: ours, the image's, those from ConfigMaps and Secrets
// as a whole, then the ones listed one by one, each able to refer to those before it.
func (a *Agent) environment(ctx context.Context, pod *v1.Pod, c *v1.Container, img *Image) (*environment, error) {
	env := newEnvironment()
	env.set("PATH", filepath.Join(img.Dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	env.set("HOME", a.podDir(pod))
	env.set("HOSTNAME", a.cfg.Name) // all Pods share their node's network and name, as with hostNetwork
	for _, kv := range img.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env.set(name, value)
		}
	}
	for _, name := range passedOn {
		if value, ok := os.LookupEnv(name); ok {
			env.set(name, value)
		}
	}
	interfaces, err := a.interfacesOf(pod)
	if err != nil {
		return nil, err
	}
	if interfaces != "" {
		env.set(listener.InterfacesVariable, interfaces)
	}
	env.set("KUBERNETES_SERVICE_HOST", a.cfg.API.Host)
	env.set("KUBERNETES_SERVICE_PORT", strconv.Itoa(a.cfg.API.Port))
	env.set("KUBERNETES_SERVICE_PORT_HTTPS", strconv.Itoa(a.cfg.API.Port))
	for i := range c.EnvFrom {
		if err := a.envFrom(ctx, pod, &c.EnvFrom[i], env); err != nil {
			return nil, err
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		if v.ValueFrom == nil {
			env.set(v.Name, expansion.Expand(v.Value, expansion.MappingFuncFor(env.values)))
			continue
		}
		value, ok, err := a.valueFrom(ctx, pod, c, v.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("%w: variable %s: %w", errConfig, v.Name, err)
		}
		if ok {
			env.set(v.Name, value)
		}
	}
	return env, nil
}

func (a *Agent) envFrom(ctx context.Context, pod *v1.Pod, from *v1.EnvFromSource, env *environment) error {
	data := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		cm, err := a.cfg.Objects.ConfigMap(ctx, pod.Namespace, from.ConfigMapRef.Name)
		if err != nil {
			return optionalMissing(err, from.ConfigMapRef.Optional)
		}
		data = cm.Data
	case from.SecretRef != nil:
		s, err := a.cfg.Objects.Secret(ctx, pod.Namespace, from.SecretRef.Name)
		if err != nil {
			return optionalMissing(err, from.SecretRef.Optional)
		}
		for k, v := range s.Data {
			data[k] = string(v)
		}
	}
	keys := make([]string, 0, len(data))
	for k := range data {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		env.set(from.Prefix+k, data[k])
	}
	return nil
}

func (a *Agent) valueFrom(ctx context.Context, pod *v1.Pod, c *v1.Container, from *v1.EnvVarSource) (string, bool,
	error) {
	switch {
	case from.FieldRef != nil:
		s, err := a.fieldValue(pod, from.FieldRef)
		return s, true, err
	case from.ResourceFieldRef != nil:
		s, err := a.resourceValue(pod, c.Name, from.ResourceFieldRef)
		return s, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := a.cfg.Objects.ConfigMap(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, optionalMissing(err, ref.Optional)
		}
		if s, ok := cm.Data[ref.Key]; ok {
			return s, true, nil
		}
		return "", false, missingKey("configmap", ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := a.cfg.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, optionalMissing(err, ref.Optional)
		}
		if b, ok := s.Data[ref.Key]; ok {
			return string(b), true, nil
		}
		return "", false, missingKey("secret", ref.Name, ref.Key, ref.Optional)
	}
	return "", false, errors.New("source is not supported by process nodes")
}

// optionalMissing turns a missing object into nothing if it was optional.
func optionalMissing(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%w: %w", errConfig, err)
}

func missingKey(kind, name, key string, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q has no key %q", kind, name, key)
}

// fieldValue resolves a downward API field.
func (a *Agent) fieldValue(pod *v1.Pod, ref *v1.ObjectFieldSelector) (string, error) {
	path, _, err := podshelper.ConvertDownwardAPIFieldLabel(ref.APIVersion, ref.FieldPath, "")
	if err != nil {
		return "", err
	}
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return a.cfg.Address, nil
	case "status.podIP", "status.podIPs":
		return a.addressOf(pod), nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

func (a *Agent) resourceValue(pod *v1.Pod, container string, ref *v1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	return resourceapi.ExtractResourceValueByContainerNameAndNodeAllocatable(ref, pod, container, a.cfg.Capacity)
}

// argv is the command line of a container: the Pod's command and args override the image's, as
// Kubernetes defines, with $(VAR) expanded.
func argv(c *v1.Container, img *Image, env *environment) ([]string, error) {
	command, args := kubecontainer.ExpandContainerCommandAndArgs(c, env.envVars())
	if len(command) == 0 {
		command = img.Entrypoint
		if len(args) == 0 {
			args = img.Cmd
		}
	}
	out := append(slices.Clone(command), args...)
	if len(out) == 0 {
		return nil, fmt.Errorf("no command specified: neither container %s nor %s/image.json has one", c.Name, img.Dir)
	}
	return out, nil
}
