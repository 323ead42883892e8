package resource

// Setting is a named global value with its definition.
type Setting struct {
	Resource
	Name  string `json:"name" api:"required,unique"`
	Value string `json:"value" api:"update,required"`
	// Applied is false while a change waits until it can take effect.
	Applied    bool              `json:"applied"`
	Definition SettingDefinition `json:"definition"`
}

// SettingDefinition says what a setting is for and what it may hold.
type SettingDefinition struct {
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
	Category    string `json:"category"`
	// ValueType is one of string, int, float, bool and deprecated.
	ValueType string `json:"type" schema:"string"`
	Required  bool   `json:"required"`
	ReadOnly  bool   `json:"readOnly"`
	Default   string `json:"default"`
	// Options are the allowed values, strings or numbers; absent where the value is free.
	Options    []any            `json:"options,omitempty" schema:"array[string]"`
	Range      map[string]int64 `json:"range,omitempty" schema:"map[string]"`
	FloatRange Bounds           `json:"floatRange,omitempty" schema:"map[string]"`
	// DataEngineSpecific means that Value is a JSON object with one entry per data engine.
	DataEngineSpecific bool `json:"dataEngineSpecific,omitempty"`
}

// Bounds maps "minimum" and "maximum" to numbers; either may be missing.
type Bounds map[string]float64

// SettingInput is the part of a setting that PUT reads.
type SettingInput struct {
	Value *string `json:"value"`
}
