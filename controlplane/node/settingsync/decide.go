package settingsync

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// seen is what decide knows besides the object.
type seen struct {
	// Override is the value from the ConfigMap and OverrideVersion the version it came with; "" if
	// there is no ConfigMap. HasOverride: the ConfigMap names this setting.
	Override, OverrideVersion string
	HasOverride               bool
	// Refused is why the API server would refuse the override, and RefusedFor how long it has.
	Refused    string
	RefusedFor time.Duration
	// Fixed is the value from the manager's flags, if HasFixed.
	Fixed    string
	HasFixed bool
	// Waiting: some component still follows the former value.
	Waiting bool
	// Nodes are those whose fields take the value of guaranteed-engine-cpu over, sorted by name.
	Nodes []v1beta2.Node
}

// decide keeps the value of one setting and says whether it is applied.
func decide(_ time.Time, s *v1beta2.Setting, in seen) loop.Decision {
	if s.DeletionTimestamp != nil {
		return loop.Decision{}
	}
	d, err := setting.Lookup(s.Name)
	if err != nil {
		if _, replaced := setting.Replaced[s.Name]; replaced {
			return loop.Decision{Do: loop.Delete{Object: s}}
		}
		return loop.Decision{} // left over from another version: ignored
	}
	s.Status.Applied = !in.Waiting
	// An older manager may lead once more, as in a rolling upgrade, and so may a build by hand: who
	// has led before stays known.
	stays := s.Name == setting.CurrentLonghornVersion && setting.IsVersion(s.Value) && !setting.Later(in.Fixed, s.Value)
	if in.HasFixed && d.ReadOnly && s.Value != in.Fixed && !stays {
		return loop.Decision{Do: loop.Update{Object: marked(s, in.Fixed)}}
	}
	if marker(s) {
		// The marker opens a read-only setting for one update; left on, it would keep it open.
		return loop.Decision{Do: loop.Update{Object: unmarked(s)}}
	}
	if s.Name == setting.CRDAPIVersion && s.Labels[naming.LabelCRDAPIVersion] != v1beta2.GroupVersion.Version {
		return loop.Decision{Do: loop.Update{Object: versioned(s)}}
	}
	if d, due := handOver(s, in.Nodes); due {
		return d
	}
	if u := overridden(s, in); u != nil && in.Refused != "" {
		return refused(s, u, in)
	} else if u != nil {
		return loop.Decision{Do: loop.Update{Object: u}}
	}
	return loop.Decision{}
}

// overridden takes the ConfigMap's value over where it is another one than was last taken over:
// what a user has set since stands, whatever else changes there. Nil: nothing is to be done.
func overridden(s *v1beta2.Setting, in seen) *v1beta2.Setting {
	last, recorded := s.Annotations[naming.AnnotationConfigMapValue]
	if !in.HasOverride || in.HasFixed || recorded && setting.Normalize(s.Name, last) == in.Override {
		return nil
	}
	u := s.DeepCopy()
	// Older managers recorded only the version. From the present one its value has been taken over.
	if recorded || s.Annotations[naming.AnnotationConfigMapResourceVersion] != in.OverrideVersion {
		u.Value = in.Override
	}
	annotate(u, naming.AnnotationConfigMapValue, in.Override)
	annotate(u, naming.AnnotationConfigMapResourceVersion, in.OverrideVersion)
	return u
}

// refusedLongest is how long a value of the ConfigMap is tried that the API server refuses: it may
// contradict another setting, whose value comes from the ConfigMap too and is taken over soon.
const refusedLongest = 5 * time.Second

// refused leaves a value of the ConfigMap alone, and says so, as one that was taken over and then
// changed: it is not tried again until the ConfigMap has another one.
func refused(s, u *v1beta2.Setting, in seen) loop.Decision {
	if in.RefusedFor < refusedLongest {
		return loop.Decision{After: time.Second}
	}
	u.Value = s.Value
	return loop.Decision{Do: loop.Update{Object: u}, Events: []loop.Event{{Warning: true,
		Reason: naming.EventDefaultIgnored, Message: "ConfigMap " + naming.ConfigMapDefaultSetting + ": value " +
			in.Override + " is refused, and " + s.Value + " stays: " + in.Refused}}}
}

func marker(s *v1beta2.Setting) bool {
	_, ok := s.Annotations[naming.AnnotationUpdateSetting]
	return ok
}

func marked(s *v1beta2.Setting, value string) *v1beta2.Setting {
	u := s.DeepCopy()
	u.Value = value
	annotate(u, naming.AnnotationUpdateSetting, "")
	return u
}

func unmarked(s *v1beta2.Setting) *v1beta2.Setting {
	u := s.DeepCopy()
	delete(u.Annotations, naming.AnnotationUpdateSetting)
	return u
}

// versioned carries the version of the API as a label, without the group: a label's value has no
// slash.
func versioned(s *v1beta2.Setting) *v1beta2.Setting {
	u := s.DeepCopy()
	if u.Labels == nil {
		u.Labels = map[string]string{}
	}
	u.Labels[naming.LabelCRDAPIVersion] = v1beta2.GroupVersion.Version
	return u
}

func annotate(s *v1beta2.Setting, key, value string) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[key] = value
}
