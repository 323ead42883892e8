package node

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestSmartAttributes is the table from what smartctl prints to attributes.
func TestSmartAttributes(t *testing.T) {
	for text, want := range map[string][]v1beta2.HealthAttribute{
		``:                             nil,
		`no JSON`:                      nil,
		`{"smart_status":{}}`:          nil,
		`{"ata_smart_attributes":{}}`:  nil,
		`{"ata_smart_attributes":[1]}`: nil,
		`{"ata_smart_attributes":{"table":[{"id":9,"name":"Power_On_Hours","value":90,"raw":{"value":1234,"string":"1234"}},
			{"id":194,"name":"Temperature_Celsius","raw":{"value":31}}]}}`: {
			{Name: "Power_On_Hours", ID: 9, RawValue: 1234}, {Name: "Temperature_Celsius", ID: 194, RawValue: 31}},
		`{"nvme_smart_health_information_log":{"data_units_read":1e30,"unsafe_shutdowns":-1}}`: {
			{Name: "data_units_read", RawValue: math.MaxInt64}, {Name: "unsafe_shutdowns", RawValue: -1}},
		`{"nvme_smart_health_information_log":{"temperature":40,"percentage_used":3,
			"temperature_sensors":[40,41],"x":"y"}}`: {
			{Name: "percentage_used", RawValue: 3}, {Name: "temperature", RawValue: 40}},
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
