package node

import (
	"encoding/json"
	"maps"
	"slices"
)

// maxAttributes bounds what is kept of one device; those of today have some thirty.
const maxAttributes = 256

// Attribute is something that a device counts: hours, temperature, errors.
type Attribute struct {
	// Disk is its name on the node. Empty in the answer of a device.
	Disk string
	// Name is what smartctl calls it. ID is the number of an ATA attribute, else 0.
	Name string
	ID   int
	// Raw is the value as the device counts; the unit depends on device and attribute.
	Raw float64
}

// Attributes are what the devices below the node's disks count, for metrics; none while the setting
// is off or before they have answered this process. Of several devices below a disk it is the
// largest value.
func (a *Agent) Attributes() []Attribute {
	if all := a.attributes.Load(); all != nil {
		return *all
	}
	return nil
}

// attributesOf are those of all disks, in order.
func attributesOf(disks map[string]Health) []Attribute {
	type key struct {
		name string
		id   int
	}
	var out []Attribute
	for _, disk := range slices.Sorted(maps.Keys(disks)) {
		at := map[key]int{}
		for _, a := range disks[disk].Attributes {
			k := key{a.Name, a.ID}
			i, ok := at[k]
			if !ok {
				a.Disk = disk
				at[k] = len(out)
				out = append(out, a)
				continue
			}
			out[i].Raw = max(out[i].Raw, a.Raw)
		}
	}
	return out
}

// smartAttributes reads the attributes in what smartctl prints: the table of an ATA device, or the
// numbers of an NVMe device's log.
func smartAttributes(text []byte) []Attribute {
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
	var out []Attribute
	for _, a := range r.ATA.Table {
		out = append(out, Attribute{Name: a.Name, ID: a.ID, Raw: a.Raw.Value})
	}
	for _, name := range slices.Sorted(maps.Keys(r.NVMe)) {
		if v, ok := r.NVMe[name].(float64); ok {
			out = append(out, Attribute{Name: name, Raw: v})
		}
	}
	return out[:min(len(out), maxAttributes)]
}
