package node

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
)

// maxAttributes bounds what is kept of one device; those of today have some thirty.
const maxAttributes = 256

// smartAttributes reads the attributes in what smartctl prints: the table of an ATA device, or the
// numbers of an NVMe device's log.
func smartAttributes(text []byte) []v1beta2.HealthAttribute {
	var r struct {
		ATA struct {
			Table []struct {
				ID   int    `json:"id"`
				Name string `json:"name"`
				Raw  struct {
					Value float64 `json:"value"`
				} `json:"raw"`
			} `json:"table"`
		} `json:"ata_smart_attributes"`
		NVMe map[string]any `json:"nvme_smart_health_information_log"`
	}
	if len(text) > maxHealthText || json.Unmarshal(text, &r) != nil {
		return nil
	}
	var out []v1beta2.HealthAttribute
	for _, a := range r.ATA.Table {
		out = append(out, v1beta2.HealthAttribute{Name: a.Name, ID: a.ID, RawValue: whole(a.Raw.Value)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.NVMe)) {
		if v, ok := r.NVMe[name].(float64); ok {
			out = append(out, v1beta2.HealthAttribute{Name: name, RawValue: whole(v)})
		}
	}
	return out[:min(len(out), maxAttributes)]
}

// whole is a count of a device; those beyond 63 bits are the largest there is.
func whole(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(v)
}
