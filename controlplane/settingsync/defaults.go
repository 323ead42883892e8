package settingsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// overrides is the content of ConfigMap longhorn-default-setting.
type overrides struct {
	values  map[string]string
	version string // resource version of the ConfigMap; "" if there is none
}

// readOverrides parses the ConfigMap. A value that its setting cannot take is left out with a
// warning: one typing error must not keep the system from starting.
func readOverrides(ctx context.Context, r client.Reader, namespace string) (overrides, error) {
	var cm corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: naming.ConfigMapDefaultSetting}, &cm)
	if apierrors.IsNotFound(err) {
		return overrides{}, nil
	}
	if err != nil {
		return overrides{}, fmt.Errorf("read ConfigMap %s: %w", naming.ConfigMapDefaultSetting, err)
	}
	values, problems := parseOverrides(cm.Data[naming.DefaultSettingKey])
	if problems != nil {
		slog.Warn("default settings from the ConfigMap are partly ignored",
			"configMap", naming.ConfigMapDefaultSetting, "err", problems)
	}
	return overrides{values: values, version: cm.ResourceVersion}, nil
}

// parseOverrides reads a flat YAML map from setting to value and keeps what is valid.
func parseOverrides(text string) (map[string]string, error) {
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("not a YAML map from setting to value: %w", err)
	}
	values := map[string]string{}
	var problems []error
	for name, v := range raw {
		value := fmt.Sprint(v)
		if v == nil {
			value = ""
		}
		if d, err := setting.Lookup(name); err == nil && d.ReadOnly {
			problems = append(problems, fmt.Errorf("setting %s is read-only", name))
			continue
		}
		if err := setting.Validate(name, value); err != nil {
			problems = append(problems, err)
			continue
		}
		values[name] = setting.Normalize(name, value)
	}
	return values, errors.Join(problems...)
}

// EnsureExist creates the missing Setting objects. fixed are values known from the manager's flags.
// Any manager may do so at its start; what exists is left alone.
func EnsureExist(ctx context.Context, c client.Client, namespace string, fixed map[string]string) error {
	over, err := readOverrides(ctx, c, namespace)
	if err != nil {
		return err
	}
	present, err := stored.Read(ctx, c, namespace)
	if err != nil {
		return err
	}
	for _, d := range setting.Definitions() {
		if _, ok := present[d.Name]; ok {
			continue
		}
		s := newSetting(namespace, d, over, fixed)
		if carried, ok := setting.CarriedCPU(present); ok && d.Name == setting.GuaranteedInstanceManagerCPU &&
			s.Value == d.Default {
			s.Value = carried
		}
		if d.Required && s.Value == "" {
			continue // e.g. the image of a component that is not installed
		}
		err := c.Create(ctx, s)
		if apierrors.IsInvalid(err) && s.Value != d.Default {
			// E.g. it contradicts another setting. The system starts with the default, and the user
			// reads why.
			slog.Warn("default from the ConfigMap is refused, the built-in one is used", "setting", d.Name, "err", err)
			err = c.Create(ctx, newSetting(namespace, d, overrides{}, fixed))
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create setting %s: %w", d.Name, err)
		}
	}
	return nil
}

func newSetting(namespace string, d setting.Definition, over overrides, fixed map[string]string) *v1beta2.Setting {
	s := &v1beta2.Setting{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name},
		Value:      d.Default,
	}
	if value, ok := over.values[d.Name]; ok {
		s.Value = value
		s.Annotations = map[string]string{naming.AnnotationConfigMapResourceVersion: over.version}
	}
	if value, ok := fixed[d.Name]; ok {
		s.Value = value
	}
	return s
}
