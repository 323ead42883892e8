package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestSmartAttributes is the table from what smartctl prints to attributes.
func TestSmartAttributes(t *testing.T) {
	for text, want := range map[string][]Attribute{
		``:                             nil,
		`no JSON`:                      nil,
		`{"smart_status":{}}`:          nil,
		`{"ata_smart_attributes":{}}`:  nil,
		`{"ata_smart_attributes":[1]}`: nil,
		`{"ata_smart_attributes":{"table":[{"id":9,"name":"Power_On_Hours","value":90,"raw":{"value":1234,"string":"1234"}},
			{"id":194,"name":"Temperature_Celsius","raw":{"value":31}}]}}`: {
			{Name: "Power_On_Hours", ID: 9, Raw: 1234}, {Name: "Temperature_Celsius", ID: 194, Raw: 31}},
		`{"nvme_smart_health_information_log":{"temperature":40,"percentage_used":3,
			"temperature_sensors":[40,41],"x":"y"}}`: {
			{Name: "percentage_used", Raw: 3}, {Name: "temperature", Raw: 40}},
	} {
		if got := smartAttributes([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	many := `{"nvme_smart_health_information_log":{` + strings.TrimSuffix(strings.Repeat(`"%d":1,`, 1000), ",") + `}}`
	args := make([]any, 1000)
	for i := range args {
		args[i] = i
	}
	if got := smartAttributes(fmt.Appendf(nil, many, args...)); len(got) != maxAttributes {
		t.Errorf("%d attributes", len(got))
	}
}

// TestAttributesOfTheAgent: by disk, the largest of several devices, and none once the setting is
// off.
func TestAttributesOfTheAgent(t *testing.T) {
	a := NewAgent(AgentConfig{})
	if got := a.Attributes(); got != nil {
		t.Errorf("%v", got)
	}
	n := readyNode()
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"a": {Path: "/a"}, "b": {Path: "/b"}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"a": {}, "b": {}}
	hours := func(h float64) Attribute { return Attribute{Name: "Power_On_Hours", ID: 9, Raw: h} }
	a.health.answers = map[string]Health{
		"/b": {time.Now(), HealthReport{Attributes: []Attribute{hours(5), hours(7), hours(6)}}},
		"/a": {time.Now(), HealthReport{Attributes: []Attribute{hours(1)}}}}
	a.healthOf(n, true)
	want := []Attribute{{"a", "Power_On_Hours", 9, 1}, {"b", "Power_On_Hours", 9, 7}}
	if got := a.Attributes(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	a.healthOf(n, false)
	if got := a.Attributes(); got != nil {
		t.Errorf("%v", got)
	}
}
