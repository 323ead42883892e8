package volume

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// volumeUpdates are the actions that change one field of what is wanted of a volume: those of the
// table, and those of data engine v2.
var volumeUpdates = fieldUpdates(map[string]serve.Handler{
	"updateUblkQueueDepth": update("ublk queue depth", func(_ *lh.Volume, in *resource.UpdateUblkQueueDepthInput) error {
		return onlyV2("ublkQueueDepth", int64(in.UblkQueueDepth))
	}),
	"updateUblkNumberOfQueue": update("ublk number of queues", func(_ *lh.Volume,
		in *resource.UpdateUblkNumberOfQueueInput) error {
		return onlyV2("ublkNumberOfQueue", int64(in.UblkNumberOfQueue))
	}),
})

// fieldRules are what an action asks, beyond what the table says of its field, before it sets it.
var fieldRules = map[string]func(v *lh.Volume, to reflect.Value) error{
	"numberOfReplicas": mayScale,
	"dataLocality": func(v *lh.Volume, to reflect.Value) error {
		return admission.CheckLocalityChange(v, lh.DataLocality(to.String()))
	},
	"accessMode": func(v *lh.Volume, to reflect.Value) error {
		return admission.CheckAccessChange(v, lh.AccessMode(to.String()))
	},
}

// fieldUpdates adds the actions of the table.
func fieldUpdates(all map[string]serve.Handler) map[string]serve.Handler {
	for i := range volumefield.All {
		f := &volumefield.All[i]
		if f.Change == nil {
			continue
		}
		input, ok := resource.Lookup(f.InputType())
		if !ok {
			panic("rest: no type " + f.InputType() + " is declared")
		}
		all[f.Change.Action] = updating(f.What, func() any { return reflect.New(reflect.TypeOf(input.Of)).Interface() },
			func(v *lh.Volume, in any) error { return setField(f, v, reflect.ValueOf(in).Elem().Field(0)) })
	}
	return all
}

// setField judges the value of an action's input and makes it the one that is wanted.
func setField(f *volumefield.Field, v *lh.Volume, value reflect.Value) error {
	field := f.In(&v.Spec)
	to := reflect.New(field.Type()).Elem()
	switch {
	case f.Kind == volumefield.Size || f.Change.Quantity:
		n, err := parseSize(f.Name, value.String())
		if err != nil {
			return err
		}
		to.SetInt(n)
	default:
		to.Set(value.Convert(to.Type()))
	}
	switch f.Kind {
	case volumefield.Word:
		if err := f.Check(to.String()); err != nil {
			return err
		}
	case volumefield.Text:
		if to.String() == "" {
			return fmt.Errorf("no %s named", strings.TrimSuffix(f.What, " name"))
		}
	case volumefield.Number:
		if f.Least == 0 && !f.Within(to.Int()) {
			return fmt.Errorf("%s %d%s of volume %s should be between 0 (as the setting says) and %d", f.What, to.Int(), f.Unit,
				v.Name, f.Most)
		}
	}
	if rule := fieldRules[f.Name]; rule != nil {
		if err := rule(v, to); err != nil {
			return err
		}
	}
	field.Set(to)
	return nil
}

// update is an action that changes what is wanted of a volume: T is its input, edit judges and
// makes the change.
func update[T any](what string, edit func(v *lh.Volume, in *T) error) serve.Handler {
	return updating(what, func() any { return new(T) }, func(v *lh.Volume, in any) error { return edit(v, in.(*T)) })
}

// updating is update for an input that only its pointer is known of.
func updating(what string, input func() any, edit func(v *lh.Volume, in any) error) serve.Handler {
	return func(q *serve.Request) (any, error) {
		in := input()
		if err := q.Decode(in); err != nil {
			return nil, err
		}
		name := q.Params["name"]
		if err := editVolume(q, name, func(v *lh.Volume) error { return edit(v, in) }); err != nil {
			return nil, fmt.Errorf("unable to update %s of volume %s: %w", what, name, err)
		}
		return show(q, name)
	}
}

// editVolume changes the spec and the labels of a volume. A change that changes nothing writes
// nothing.
func editVolume(q *serve.Request, name string, edit func(*lh.Volume) error) error {
	return conflict.Retry(func() error {
		var v lh.Volume
		if err := q.Objects.Get(q.Context(), name, &v); err != nil {
			return err
		}
		before := v.DeepCopy()
		if err := edit(&v); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(before.Spec, v.Spec) && equality.Semantic.DeepEqual(before.Labels, v.Labels) {
			return nil
		}
		return q.Objects.Client.Update(q.Context(), &v)
	})
}

// mayScale judges another number of replicas. 0 would be taken for the setting's.
func mayScale(v *lh.Volume, to reflect.Value) error {
	switch {
	case v.Status.State != lh.VolumeStateAttached:
		return fmt.Errorf("invalid volume state to update replica count: the volume is %s, attach it first", volumeState(v))
	case v.Status.CurrentImage != "" && v.Status.CurrentImage != v.Spec.Image:
		return errors.New("the engine is being upgraded; wait until that is done")
	case v.Spec.MigrationNodeID != "":
		return errMigrating
	}
	scaled := v.DeepCopy()
	scaled.Spec.NumberOfReplicas = int(to.Int())
	return admission.CheckReplicaCount(scaled)
}

// onlyV2 refuses a value for a field that the v1 data engine has not. Zero is what every volume
// has.
func onlyV2(field string, value int64) error {
	if value != 0 {
		return fmt.Errorf("%s belongs to data engine v2: a volume of data engine v1 takes only 0", field)
	}
	return nil
}
