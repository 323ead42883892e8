package request

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"ankole.storage/api/volumefield"
	"ankole.storage/rest/client"
)

// Names of parameters that more than the table knows, and their values.
const (
	ParamFSType    = "fsType"
	ParamMkfs      = "mkfsParams"
	ParamExclusive = "exclusive"
	ParamEncrypted = "encrypted"
	ParamTopology  = "volumeTopology"
	ParamStrict    = "strictTopology"
	paramCapacity  = "storageCapacityMode"
	reservedPrefix = "csi.storage.k8s.io/"
	missingShares  = "needs shares, which this version does not have"
	TopologyAny    = "any"
	TopologyZonal  = "zonal"
	TopologyRegion = "regional"
	CapacityOfNode = "node"
	CapacityOfZone = "zone"
)

// Wish is what a StorageClass and a claim ask for.
type Wish struct {
	// Volume is what the manager is asked to make.
	Volume client.VolumeSpec
	// Image is what the manager is asked to make if there is no backing image of the volume's; without
	// a source type nothing.
	Image client.BackingImageSpec
	// FSType is Ext4 or XFS, empty: not given.
	FSType string
	// Exclusive: one Pod at a time may use the volume.
	Exclusive bool
	// Mkfs are further arguments of mkfs.
	Mkfs []string
	// TopologyMode is how far replicas may spread: TopologyAny, TopologyZonal or TopologyRegion.
	// Strict: only where the claim may be used.
	TopologyMode string
	Strict       bool
	// Capacity is whose room GetCapacity tells: CapacityOfNode or CapacityOfZone, empty: by
	// TopologyMode.
	Capacity string
}

// parameter is a row of the table of StorageClass parameters. The names are those of the reference.
type parameter struct {
	name string
	// set judges a value and puts it into the wish; nil: it says nothing in this version.
	set func(w *Wish, value string) error
	// field of a volume that it asks for; nil: it asks for something else.
	field *volumefield.Field
}

// parameters of a StorageClass and, those whose field an action changes, of a
// VolumeAttributesClass.
var parameters = slices.Concat(ofFields(), ofImages(), []parameter{
	{name: "share", set: never(missingShares)},
	{name: ParamExclusive, set: truth(func(w *Wish) *bool { return &w.Exclusive })},
	{name: ParamFSType, set: fileSystem},
	{name: reservedPrefix + "fstype", set: fileSystem},
	{name: ParamTopology, set: choice([]string{TopologyAny, TopologyZonal, TopologyRegion},
		func(w *Wish) *string { return &w.TopologyMode })},
	{name: ParamStrict, set: truth(func(w *Wish) *bool { return &w.Strict })},
	{name: paramCapacity, set: choice([]string{CapacityOfNode, CapacityOfZone},
		func(w *Wish) *string { return &w.Capacity })},
	{name: ParamMkfs, set: mkfsArguments},
	// For shares only, and without one they say nothing.
	{name: "nfsOptions"}, {name: "shareManagerNodeSelector"}, {name: "shareManagerTolerations"},
})

// ofFields are the parameters that ask for a field of the volume.
func ofFields() (all []parameter) {
	for i := range volumefield.All {
		f := &volumefield.All[i]
		if f.Parameter == nil {
			continue
		}
		p := parameter{name: f.ParameterName(), field: f, set: func(w *Wish, value string) error {
			return setField(f, &w.Volume, value)
		}}
		switch {
		case f.Parameter.Refused != "":
			p.set = never(f.Parameter.Refused)
		case f.Kind == volumefield.Own: // the only one that a class can ask for
			p.set = recurringJobs
		}
		all = append(all, p)
	}
	return all
}

// setField judges a value and puts it into a field of a volume.
func setField(f *volumefield.Field, s *client.VolumeSpec, value string) error {
	into := f.In(s)
	switch f.Kind {
	case volumefield.Number:
		n, err := strconv.Atoi(value)
		if err != nil || !f.Within(int64(n)) {
			return fmt.Errorf("%q is not a number from %d to %d", value, f.Least, f.Most)
		}
		into.SetInt(int64(n))
		return nil
	case volumefield.Flag:
		yes, err := parseTruth(value)
		into.SetBool(yes)
		return err
	case volumefield.Tags:
		into.Set(reflect.ValueOf(tags(value)))
		return nil
	case volumefield.Size:
		if n, err := resource.ParseQuantity(value); err != nil || n.Sign() < 0 {
			return fmt.Errorf("%q is not a number of bytes or a quantity such as 2Mi", value)
		}
	}
	into.SetString(value)
	return oneOf(value, f.Words)
}

// Parameters returns the names of all parameters of a StorageClass that are known.
func Parameters() (names []string) {
	for _, p := range parameters {
		names = append(names, p.name)
	}
	return names
}

// find returns the row of a parameter; the reference's names are the same in any case.
func find(name string) (*parameter, bool) {
	i := slices.IndexFunc(parameters, func(p parameter) bool { return strings.EqualFold(p.name, name) })
	if i < 0 {
		return nil, false
	}
	return &parameters[i], true
}

// ParseClass reads the parameters of a StorageClass. An empty value is as good as none. unknown are
// those that the table does not have: classes in use carry parameters of other versions, so that
// they are passed over. An error is INVALID_ARGUMENT and names the parameter.
func ParseClass(given map[string]string) (w Wish, unknown []string, err error) {
	w.TopologyMode = TopologyAny
	for _, p := range parameters {
		if p.field != nil && p.field.Parameter.Default != "" {
			if err := p.set(&w, p.field.Parameter.Default); err != nil {
				panic("csi: the default of parameter " + p.name + " is none: " + err.Error())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, ok := find(name)
		switch {
		case !ok && !strings.HasPrefix(name, reservedPrefix):
			unknown = append(unknown, name)
		case !ok || p.set == nil || given[name] == "":
		default:
			if err := p.set(&w, given[name]); err != nil {
				return w, nil, Refuse("parameter %s: %v", name, err)
			}
		}
	}
	return w, unknown, nil
}

// forNode are the parameters that the node looks at. It finds them in the volume context.
var forNode = []string{ParamFSType, ParamMkfs, ParamEncrypted, ParamExclusive}

// ParseContext reads the parameters in a volume context that are for the node, by the same names as
// ParseClass: in any case. The others were judged when the volume was made.
func ParseContext(given map[string]string) (Wish, error) {
	own := map[string]string{}
	for name, value := range given {
		if p, ok := find(name); ok && slices.Contains(forNode, p.name) {
			own[name] = value
		}
	}
	w, _, err := ParseClass(own)
	return w, err
}

// Change is an action of the manager that makes a volume what a VolumeAttributesClass asks for.
type Change struct {
	// Name of the parameter, and of the action.
	Name, Action string
	// Input of the action, by the names of its fields.
	Input map[string]any
}

// ParseMutable reads the parameters of a VolumeAttributesClass. Here nothing is passed over: what
// is asked for would not be done. An error is INVALID_ARGUMENT and names the parameter.
func ParseMutable(given map[string]string) ([]Change, error) {
	var all []Change
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, ok := find(name)
		if !ok || !p.mutable() {
			return nil, Refuse("parameter %s cannot be changed: use one of %s", name, strings.Join(mutable(), ", "))
		}
		var w Wish
		if err := p.set(&w, given[name]); err != nil {
			return nil, Refuse("parameter %s: %v", name, err)
		}
		var value any = given[name]
		if p.field.Kind == volumefield.Number && !p.field.Change.Quantity {
			value, _ = strconv.Atoi(given[name]) // it has been judged
		}
		all = append(all, Change{name, p.field.Change.Action, map[string]any{p.field.InputField(): value}})
	}
	return all, nil
}

// Override has the parameters of a VolumeAttributesClass replace those of the StorageClass.
// An error is INVALID_ARGUMENT and names the parameter.
func (w *Wish) Override(given map[string]string) error {
	changes, err := ParseMutable(given)
	for _, ch := range changes {
		p, _ := find(ch.Name) // ParseMutable has found it
		if err := p.set(w, given[ch.Name]); err != nil {
			return Refuse("parameter %s: %v", ch.Name, err)
		}
	}
	return err
}

// mutable says whether an action changes what the parameter asks for.
func (p *parameter) mutable() bool { return p.field != nil && p.field.Change != nil }

// mutable are the names of parameters that can be changed.
func mutable() (names []string) {
	for _, p := range parameters {
		if p.mutable() {
			names = append(names, p.name)
		}
	}
	return names
}

func oneOf(value string, words []string) error {
	if words != nil && !slices.Contains(words, value) {
		return fmt.Errorf("%q is not one of %s", value, strings.Join(words, ", "))
	}
	return nil
}

// choice is one of some words.
func choice(words []string, field func(*Wish) *string) func(*Wish, string) error {
	return func(w *Wish, value string) error {
		*field(w) = value
		return oneOf(value, words)
	}
}

func truth(field func(*Wish) *bool) func(*Wish, string) error {
	return func(w *Wish, value string) (err error) {
		*field(w), err = parseTruth(value)
		return err
	}
}

func parseTruth(value string) (bool, error) {
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%q is not true or false", value)
	}
	return yes, nil
}

// tags are separated by commas; blanks around them do not count.
func tags(value string) (all []string) {
	for tag := range strings.SplitSeq(value, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			all = append(all, tag)
		}
	}
	return all
}

// never refuses what needs something that is not built; false asks for nothing.
func never(why string) func(*Wish, string) error {
	return func(_ *Wish, value string) error {
		if no, err := strconv.ParseBool(value); err == nil && !no {
			return nil
		}
		return fmt.Errorf("%q %s", value, why)
	}
}

func fileSystem(w *Wish, value string) error {
	if w.FSType != "" && w.FSType != value {
		return fmt.Errorf("%q differs from the other one given, %q", value, w.FSType)
	}
	w.FSType = value
	return oneOf(value, fileSystems)
}

// mkfsArguments are separated by blanks.
func mkfsArguments(w *Wish, value string) error {
	w.Mkfs = strings.Fields(value)
	return nil
}

// recurringJobs is a JSON list of {name, isGroup}.
func recurringJobs(w *Wish, value string) error {
	var jobs []struct {
		Name    string
		IsGroup bool
	}
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&jobs); err != nil {
		return fmt.Errorf(`%q is not a list such as [{"name":"daily","isGroup":false}]: %v`, value, err)
	}
	for _, j := range jobs {
		if j.Name == "" {
			return fmt.Errorf("%q has a job without a name", value)
		}
		w.Volume.RecurringJobSelector = append(w.Volume.RecurringJobSelector,
			client.RecurringJobName{Name: j.Name, IsGroup: j.IsGroup})
	}
	return nil
}
