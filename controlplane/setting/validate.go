package setting

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxValueLength bounds a value: far above any sensible one, far below what the API server stores
// in one object.
const maxValueLength = 16 << 10

// Validate returns an error unless the value, in plain or in stored form, is one the setting can
// take. It knows nothing of the cluster; rules that depend on other settings are in ValidateChange.
//
// The message is `value <value> of settings <name> is invalid: <why>`, which clients match. An
// unknown name gives ErrUnknown.
func Validate(name, value string) error {
	d, err := Lookup(name)
	if err != nil {
		return err
	}
	if err := check(d, value); err != nil {
		return invalid(name, value, err)
	}
	return nil
}

// ValidateChange is Validate, and in addition refuses a value that contradicts another setting as
// it is stored; of stored it looks at the setting itself and at the one that it is Against. A
// contradiction that is stored already is not looked for: writing a stored value once more is no
// change.
func ValidateChange(name, value string, stored Values) error {
	if err := Validate(name, value); err != nil {
		return err
	}
	d, _ := Lookup(name) // known: it is valid
	if before, ok := stored[name]; ok && Plain(d, Normalize(name, before)) == Plain(d, Normalize(name, value)) {
		return nil
	}
	if err := errors.Join(checkLegacyCPU(name, value, stored), checkPurge(name, value, stored)); err != nil {
		return invalid(name, value, err)
	}
	return nil
}

func invalid(name, value string, why error) error {
	if len(value) > maxValueLength {
		value = value[:32] + "…"
	}
	return fmt.Errorf("value %s of settings %s is invalid: %w", value, name, why)
}

func check(d Definition, value string) error {
	if len(value) > maxValueLength {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(value), maxValueLength)
	}
	// A default that is empty until the system fills it can be written back.
	if d.Required && d.Default != "" && strings.TrimSpace(value) == "" {
		return fmt.Errorf("required setting %s shouldn't be empty", d.Name)
	}
	if d.OnlyDefault != "" && Plain(d, Normalize(d.Name, value)) != Plain(d, d.Default) {
		return fmt.Errorf("only its default %q is possible: %s", d.Default, d.OnlyDefault)
	}
	byEngine, isJSON := splitEngines(value)
	switch {
	case !d.DataEngineSpecific:
		if isJSON && d.Name != SystemManagedCSIComponentsResourceLimits {
			return fmt.Errorf("setting %s is not specific to a data engine and takes a plain value", d.Name)
		}
		return checkPlain(d, strings.TrimSpace(value))
	case !isJSON:
		return checkPlain(d, strings.TrimSpace(value))
	}
	for engine := range byEngine {
		if !knownEngine(engine) {
			return fmt.Errorf("data engine %q is unknown; the only one is %s", engine, DataEngine)
		}
	}
	for n, engine := range d.engines() {
		own, ok := byEngine[engine]
		if !ok && n == 0 {
			return fmt.Errorf("no value for data engine %s", engine)
		}
		if !ok {
			continue
		}
		if err := checkPlain(d, own); err != nil {
			return err
		}
	}
	return nil
}

// checkPlain checks the value for one data engine.
func checkPlain(d Definition, value string) error {
	if value == "" {
		if d.Required && d.Default != "" {
			return fmt.Errorf("required setting %s shouldn't be empty", d.Name)
		}
		return nil
	}
	var number float64
	switch d.Type {
	case TypeInt:
		n, err := Int(d.Name, value)
		if err != nil {
			return err
		}
		number = float64(n)
	case TypeFloat:
		f, err := Float(d.Name, value)
		if err != nil {
			return err
		}
		number = f
	case TypeBool:
		if _, err := Bool(d.Name, value); err != nil {
			return err
		}
	}
	if d.Range != nil {
		if number < float64(d.Range.Minimum) {
			return fmt.Errorf("should be greater than or equal to %d", d.Range.Minimum)
		}
		if d.Range.Maximum != nil && number > float64(*d.Range.Maximum) {
			return fmt.Errorf("should be less than or equal to %d", *d.Range.Maximum)
		}
	}
	if clean, ok := cleaners[d.Name]; ok {
		value = clean(value)
	}
	if len(d.Options) > 0 && !slices.Contains(d.Options, value) {
		return fmt.Errorf("should be one of %s", strings.Join(d.Options, ", "))
	}
	if check, ok := forms[d.Name]; ok {
		return check(value)
	}
	return nil
}

// Against is the setting that a value of another one can contradict, "" for most.
func Against(name string) string {
	switch name {
	case DisableSnapshotPurge:
		return AutoCleanupSystemGeneratedSnapshot
	case AutoCleanupSystemGeneratedSnapshot:
		return DisableSnapshotPurge
	}
	return legacyAgainst(name)
}

// checkPurge refuses to have snapshots removed automatically while removing them is switched off.
func checkPurge(name, value string, stored Values) error {
	other := Against(name)
	if name != DisableSnapshotPurge && name != AutoCleanupSystemGeneratedSnapshot {
		return nil
	}
	on, err := Bool(name, value)
	if err != nil || !on || !stored.Bool(other) {
		return err
	}
	return fmt.Errorf("%s and %s cannot both be true; set %s to false first", name, other, other)
}
