package volume

import (
	"reflect"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/volumefield"
	"ankole.storage/rest/resource"
)

// place is where a field of the table is, in what clients see and in the Volume object.
type place struct {
	field    *volumefield.Field
	shown    int
	inObject int
}

// places are those of the fields that are converted by their kind.
var places = findPlaces()

func findPlaces() (all []place) {
	shown, object := reflect.TypeFor[resource.VolumeSpec](), reflect.TypeFor[lh.VolumeSpec]()
	for i := range volumefield.All {
		f := &volumefield.All[i]
		if f.Kind == volumefield.Own {
			continue
		}
		a, ok := shown.FieldByName(f.GoName())
		b, inObject := object.FieldByName(f.GoName())
		if !ok || !inObject || len(a.Index) != 1 || len(b.Index) != 1 {
			panic("rest: no place for volume field " + f.Name)
		}
		all = append(all, place{f, a.Index[0], b.Index[0]})
	}
	return all
}

// askedFields puts what a client asks for into an object.
func askedFields(object *lh.VolumeSpec, in *resource.VolumeSpec) error {
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(object).Elem()
	for _, p := range places {
		a, b := from.Field(p.shown), to.Field(p.inObject)
		switch p.field.Kind {
		case volumefield.Size:
			n, err := parseSize(p.field.Name, a.String())
			if err != nil {
				return err
			}
			b.SetInt(n)
		default:
			b.Set(a.Convert(b.Type()))
		}
	}
	return nil
}

// checkWords refuses words that the fields of a new volume cannot have. Empty ones are filled in at
// admission. The schema of the object refuses them too, in words that clients do not know.
func checkWords(in *resource.VolumeSpec) error {
	asked := reflect.ValueOf(in).Elem()
	for _, p := range places {
		if word := asked.Field(p.shown); p.field.Kind == volumefield.Word && word.String() != "" {
			if err := p.field.Check(word.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// shownFields is what clients see of an object.
func shownFields(object *lh.VolumeSpec) (out resource.VolumeSpec) {
	from, to := reflect.ValueOf(object).Elem(), reflect.ValueOf(&out).Elem()
	for _, p := range places {
		a, b := from.Field(p.inObject), to.Field(p.shown)
		switch p.field.Kind {
		case volumefield.Size:
			b.SetString(decimal(a.Int()))
		case volumefield.Tags:
			b.Set(reflect.ValueOf(append([]string{}, a.Interface().([]string)...)))
		default:
			b.Set(a.Convert(b.Type()))
		}
	}
	return out
}
