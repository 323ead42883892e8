package setting

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DataEngine is the key of the one data engine in values of settings that are stored per data
// engine.
const DataEngine = "v1"

// foreignDataEngine is an engine of other versions of the system. Clients and objects name it
// beside ours: its value is checked, kept and shown, and nothing reads it.
const foreignDataEngine = "v2"

// engines are the data engines that a setting has values for, ours first: those of its default.
// A definition that came over the API without its default is of ours.
func (d Definition) engines() []string {
	byEngine, ok := splitEngines(d.Default)
	if !ok {
		return []string{DataEngine}
	}
	return slices.Sorted(maps.Keys(byEngine))
}

// splitEngines returns the values by data engine of a value in JSON form; ok is false for a plain
// value.
func splitEngines(value string) (byEngine map[string]string, ok bool) {
	if !strings.HasPrefix(strings.TrimSpace(value), "{") {
		return nil, false
	}
	var raw map[string]any
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil || decoder.More() {
		return nil, false
	}
	byEngine = make(map[string]string, len(raw))
	for engine, v := range raw {
		switch v := v.(type) {
		case string:
			byEngine[engine] = strings.TrimSpace(v)
		case json.Number:
			byEngine[engine] = v.String()
		case bool:
			byEngine[engine] = strconv.FormatBool(v)
		default:
			return nil, false
		}
	}
	return byEngine, true
}

// joinEngines returns the stored form of values by data engine: the engines in order, no blanks.
func joinEngines(byEngine map[string]string) string {
	text, err := json.Marshal(byEngine)
	if err != nil {
		panic(err) // A map of strings always has a JSON form.
	}
	return string(text)
}

// Plain returns the value that holds for the data engine, whichever form it is stored in. A value
// in JSON form that does not name the engine counts as empty.
func Plain(d Definition, value string) string {
	if d.DataEngineSpecific {
		if byEngine, ok := splitEngines(value); ok {
			return byEngine[d.engines()[0]]
		}
	}
	return strings.TrimSpace(value)
}

// Normalize returns a value in the form in which it is stored: without blanks around it, truth
// values as true or false, paths cleaned, options in their own spelling, per-engine settings as
// JSON. What is wrong with a value is for Validate to say; Normalize leaves it as it is.
func Normalize(name, value string) string {
	value = strings.TrimSpace(value)
	d, err := Lookup(name)
	if err != nil {
		return value
	}
	if !d.DataEngineSpecific {
		return normalizePlain(d, value)
	}
	byEngine, isJSON := splitEngines(value)
	engines, stored := d.engines(), map[string]string{}
	if !isJSON {
		if value == "" || strings.HasPrefix(value, "{") {
			return value
		}
		for _, engine := range engines {
			stored[engine] = normalizePlain(d, value)
		}
		return joinEngines(stored)
	}
	if _, ok := byEngine[engines[0]]; !ok {
		return value
	}
	for engine, own := range byEngine {
		switch {
		case !knownEngine(engine):
			return value
		case slices.Contains(engines, engine):
			stored[engine] = normalizePlain(d, own)
		}
	}
	return joinEngines(stored)
}

func knownEngine(name string) bool { return name == DataEngine || name == foreignDataEngine }

func normalizePlain(d Definition, value string) string {
	if value == "" {
		return value
	}
	if d.Type == TypeBool {
		if b, err := strconv.ParseBool(value); err == nil {
			return strconv.FormatBool(b)
		}
		return value
	}
	if clean, ok := cleaners[d.Name]; ok {
		return clean(value)
	}
	return value
}

// plainNumber is how numbers are written: other readers of a setting know no exponents, no plus
// and no hexadecimal digits.
var plainNumber = regexp.MustCompile(`^-?([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// zeroWithSign says whether a number is written as a negative zero.
func zeroWithSign(text string) bool {
	return strings.HasPrefix(text, "-") && !strings.ContainsAny(text, "123456789")
}

// Int returns the value of a setting as a whole number. An empty value means the default.
func Int(name, value string) (int, error) {
	d, text, err := read(name, value)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || !plainNumber.MatchString(text) || zeroWithSign(text) {
		return 0, fmt.Errorf("%q of setting %s is not a whole number", text, d.Name)
	}
	return n, nil
}

// Float returns the value of a setting as a number. An empty value means the default.
func Float(name, value string) (float64, error) {
	d, text, err := read(name, value)
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !plainNumber.MatchString(text) || zeroWithSign(text) {
		return 0, fmt.Errorf("%q of setting %s is not a number", text, d.Name)
	}
	return f, nil
}

// Bool returns the value of a setting as a truth value. An empty value means the default.
func Bool(name, value string) (bool, error) {
	d, text, err := read(name, value)
	if err != nil {
		return false, err
	}
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q of setting %s should be true or false", text, d.Name)
}

// String returns the value of a setting as text. An empty value means the default.
func String(name, value string) (string, error) {
	_, text, err := read(name, value)
	return text, err
}

func read(name, value string) (Definition, string, error) {
	d, err := Lookup(name)
	if err != nil {
		return d, "", err
	}
	text := Plain(d, value)
	if text == "" {
		text = Plain(d, d.Default)
	}
	return d, text, nil
}
