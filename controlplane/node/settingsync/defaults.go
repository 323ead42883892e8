package settingsync

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// overrides is the content of ConfigMap longhorn-default-setting.
type overrides struct {
	values  map[string]string
	version string // resource version of the ConfigMap; "" if there is none
	// ignored are the reasons why values are left out, by setting; "" is all of them.
	ignored map[string]error
}

// readOverrides parses the ConfigMap. A value that its setting cannot take is left out: one
// typing error must not keep the system from starting.
func readOverrides(ctx context.Context, r client.Reader, namespace string) (overrides, error) {
	var cm corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: naming.ConfigMapDefaultSetting}, &cm)
	if apierrors.IsNotFound(err) {
		return overrides{}, nil
	}
	if err != nil {
		return overrides{}, fmt.Errorf("read ConfigMap %s: %w", naming.ConfigMapDefaultSetting, err)
	}
	values, ignored := parseOverrides(cm.Data[naming.DefaultSettingKey])
	return overrides{values: values, version: cm.ResourceVersion, ignored: ignored}, nil
}

// parseOverrides reads a flat YAML map from setting to value and keeps what is valid.
func parseOverrides(text string) (values map[string]string, ignored map[string]error) {
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		return nil, map[string]error{"": fmt.Errorf("not a YAML map from setting to value: %w", err)}
	}
	values, ignored = map[string]string{}, map[string]error{}
	for name, v := range raw {
		value := fmt.Sprint(v)
		if v == nil {
			value = ""
		}
		if d, err := setting.Lookup(name); err == nil && d.ReadOnly {
			ignored[name] = fmt.Errorf("setting %s is read-only", name)
			continue
		}
		if err := setting.Validate(name, value); err != nil {
			ignored[name] = err
			continue
		}
		values[name] = setting.Normalize(name, value)
	}
	return values, ignored
}

// EnsureExist creates the missing Setting objects. fixed are values known from the manager's flags.
// Any manager may do so at its start; what exists is left alone. Managers that start at once share
// the work: each begins elsewhere, by its own name, and leaves out what others have made meanwhile.
func EnsureExist(ctx context.Context, c client.Client, namespace, self string, fixed map[string]string) error {
	over, err := readOverrides(ctx, c, namespace)
	if err != nil {
		return err
	}
	present, err := stored.Read(ctx, c, namespace)
	if err != nil {
		return err
	}
	m := maker{client: c, namespace: namespace, over: over, fixed: fixed, before: present, present: present}
	// Values that somebody has chosen may contradict each other: one after the other, always in the
	// same order. Defaults do not.
	all := setting.Definitions()
	for _, d := range all {
		if _, chosen := over.values[d.Name]; !chosen {
			continue
		}
		if err := m.ensure(ctx, d); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(madeAtOnce)
	for _, d := range from(self, all) {
		if _, chosen := over.values[d.Name]; !chosen {
			group.Go(func() error { return m.ensure(ctx, d) })
		}
	}
	return group.Wait()
}

// madeAtOnce is how many settings are made at a time: each waits for webhooks and a disk.
const madeAtOnce = 8

// maker makes missing settings.
type maker struct {
	client    client.Client
	namespace string
	over      overrides
	fixed     map[string]string
	// before is what there was at the beginning.
	before setting.Values

	mu      sync.Mutex
	present setting.Values // as last known
}

func (m *maker) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.present[name]
	return ok
}

// ensure makes one setting if it is missing.
func (m *maker) ensure(ctx context.Context, d setting.Definition) error {
	if m.has(d.Name) {
		return nil
	}
	s := newSetting(m.namespace, d, m.over, m.fixed)
	if carried, ok := setting.CarriedCPU(m.before); ok && d.Name == setting.GuaranteedInstanceManagerCPU &&
		s.Value == d.Default {
		s.Value = carried
	}
	if d.Required && s.Value == "" {
		return nil // e.g. the image of a component that is not installed
	}
	err := m.client.Create(ctx, s)
	if apierrors.IsInvalid(err) && s.Value != d.Default {
		// E.g. it contradicts another setting. The system starts with the default, and the user
		// reads why.
		slog.Warn("default from the ConfigMap is refused, the built-in one is used", "setting", d.Name, "err", err)
		err = m.client.Create(ctx, newSetting(m.namespace, d, overrides{}, m.fixed))
	}
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create setting %s: %w", d.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.present[d.Name]; ok {
		return nil // read since
	}
	m.present, err = stored.Read(ctx, m.client, m.namespace)
	return err
}

// from returns the definitions beginning at one that follows from a name.
func from(name string, all []setting.Definition) []setting.Definition {
	h := fnv.New32a()
	h.Write([]byte(name)) // never fails
	first := int(h.Sum32() % uint32(len(all)))
	return slices.Concat(all[first:], all[:first])
}

func newSetting(namespace string, d setting.Definition, over overrides, fixed map[string]string) *v1beta2.Setting {
	s := &v1beta2.Setting{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name},
		Value:      d.Default,
	}
	if value, ok := over.values[d.Name]; ok {
		s.Value = value
		s.Annotations = map[string]string{naming.AnnotationConfigMapValue: value,
			naming.AnnotationConfigMapResourceVersion: over.version}
	}
	if value, ok := fixed[d.Name]; ok {
		s.Value = value
	}
	return s
}
