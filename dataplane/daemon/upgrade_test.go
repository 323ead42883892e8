package daemon

import (
	"reflect"
	"testing"

	"ankole.storage/dataplane/engine"
)

// Every option and every counter passes to the next engine, those too that are added one day.
func TestOfferCarriesEverything(t *testing.T) {
	left := engine.Left{Epoch: 7, Size: 1 << 30, RebuildBudget: 5, Purge: true}
	for _, v := range []reflect.Value{reflect.ValueOf(&left.Options).Elem(), reflect.ValueOf(&left.Counters).Elem()} {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(i) + 1)
			case reflect.Uint64:
				f.SetUint(uint64(i) + 1)
			default:
				t.Fatalf("%s is a %s", v.Type().Field(i).Name, f.Kind())
			}
		}
	}
	if got := leftOf(offer(&left, "")); !reflect.DeepEqual(got, left) {
		t.Errorf("what arrives is\n%+v, want\n%+v", got, left)
	}
}
