package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var settings = kind[*v1beta2.Setting]{
	plural:     "settings",
	create:     func() *v1beta2.Setting { return &v1beta2.Setting{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.Setting]) error {
		r.new.Value = setting.Normalize(r.new.Name, r.new.Value)
		return nil
	},
	checker: checkSettingRequest,
}

// SettingFacts is what the cluster says about a change of a setting.
type SettingFacts struct {
	// Stored has the setting's own value, if it has one, and that of the one that it is Against.
	Stored setting.Values
	// Attached names the volumes whose state is not detached, with it.
	Attached []string
	// Nodes is the number of storage nodes.
	Nodes int
	// Missing is the kind of the object that the value names and that does not exist.
	Missing string
	// Engines is the number of engine processes.
	Engines int
}

// CheckSetting refuses values a setting cannot take (old nil: creation).
func CheckSetting(old, s *v1beta2.Setting, f SettingFacts) error {
	d, err := setting.Lookup(s.Name)
	if err != nil {
		return invalid("%v", err)
	}
	if err := setting.ValidateChange(s.Name, s.Value, f.Stored); err != nil {
		return invalid("failed to validate setting %s with invalid value %s: %v", s.Name, s.Value, err)
	}
	if old == nil || setting.Plain(d, old.Value) == setting.Plain(d, s.Value) {
		return nil
	}
	if err := CheckReadOnly(old, s); err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		args = append([]any{s.Name, s.Value}, args...)
		return invalid("failed to validate setting %s with invalid value %s: "+format, args...)
	}
	switch {
	case f.Missing != "":
		return wrong("failed to get %s %s: it does not exist", f.Missing, s.Value)
	case d.Apply == setting.ApplyRefusedWhileAttached && len(f.Attached) > 0:
		return wrong("%d volumes are not detached: %s; detach all volumes first", len(f.Attached), some(f.Attached))
	case d.Apply == setting.ApplyFixedByNodes && f.Nodes > 0:
		return wrong("it cannot be changed once a node has joined")
	case s.Name == setting.V1DataEngine && setting.Plain(d, s.Value) == "false" && f.Engines > 0:
		return wrong("cannot apply v1-data-engine setting to Longhorn workloads when there are attached v1 volumes")
	}
	return nil
}

// CheckReadOnly refuses another value for a setting that the system alone changes.
func CheckReadOnly(old, s *v1beta2.Setting) error {
	d, err := setting.Lookup(s.Name)
	if err != nil {
		return invalid("%v", err)
	}
	if d.ReadOnly && setting.Plain(d, old.Value) != setting.Plain(d, s.Value) && !marked(old) && !marked(s) {
		return invalid("setting %s is read-only", s.Name)
	}
	return nil
}

// mostNamed bounds how many objects a message names.
const mostNamed = 10

// some lists the first names of a list, and how many there are more.
func some(names []string) string {
	slices.Sort(names)
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
}

func marked(s *v1beta2.Setting) bool {
	_, ok := s.Annotations[naming.AnnotationUpdateSetting]
	return ok
}

func checkSettingRequest(ctx context.Context, w world, r request[*v1beta2.Setting]) error {
	if r.deleted() {
		if _, err := setting.Lookup(r.old.Name); err == nil {
			return invalid("setting %s cannot be deleted; set its value instead", r.old.Name)
		}
		return nil
	}
	f, err := w.settingFacts(ctx, r.old, r.new)
	if err != nil {
		return err
	}
	return CheckSetting(r.old, r.new, f)
}

// settingFacts reads what a setting is judged by (old nil: creation). Of one whose value stays less
// is read: claims of the storage network write it often.
func (w world) settingFacts(ctx context.Context, old, s *v1beta2.Setting) (f SettingFacts, err error) {
	changed := old == nil || old.Value != s.Value
	f.Stored = setting.Values{}
	if old != nil {
		f.Stored[s.Name] = old.Value
	}
	if other, err := find(ctx, w, setting.Against(s.Name), &v1beta2.Setting{}); err != nil {
		return f, err
	} else if other != nil {
		f.Stored[other.Name] = other.Value
	}
	d, _ := setting.Lookup(s.Name) // CheckSetting refuses an unknown one
	if d.Apply == setting.ApplyRefusedWhileAttached && changed {
		var volumes v1beta2.VolumeList
		if err := w.List(ctx, &volumes, client.InNamespace(w.namespace)); err != nil {
			return f, err
		}
		for i := range volumes.Items {
			if v := &volumes.Items[i]; v.Status.State != v1beta2.VolumeStateDetached {
				f.Attached = append(f.Attached, strings.TrimSpace(v.Name+" "+string(v.Status.State)))
			}
		}
	}
	if d.Apply == setting.ApplyFixedByNodes {
		var list v1beta2.NodeList
		if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
			return f, err
		}
		f.Nodes = len(list.Items)
	}
	if s.Name == setting.V1DataEngine {
		engines, err := w.enginesOf(ctx, "")
		if err != nil {
			return f, err
		}
		for i := range engines {
			if engines[i].Status.CurrentState != v1beta2.InstanceStateStopped || engines[i].Spec.NodeID != "" {
				f.Engines++
			}
		}
	}
	if named, kind := namedBy(s); changed && named != nil {
		switch err := w.Get(ctx, client.ObjectKey{Name: s.Value}, named); {
		case apierrors.IsNotFound(err):
			f.Missing = kind
		case err != nil:
			return f, err
		}
	}
	return f, nil
}

// namedBy is the kind of object that a setting's value names and that has to exist, nil for none.
// The class of static volumes is made when it is needed, if it has its default name.
func namedBy(s *v1beta2.Setting) (o client.Object, kind string) {
	switch {
	case s.Name == setting.PriorityClass && s.Value != "":
		return &schedulingv1.PriorityClass{}, "priority class"
	case s.Name == setting.DefaultLonghornStaticStorageClass && s.Value != naming.StaticStorageClass:
		return &storagev1.StorageClass{}, "storage class"
	}
	return nil, ""
}
