package v1beta2

import "time"

// ConditionStatus is True, False or Unknown.
type ConditionStatus string

const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// Condition is one observation about an object. A list of conditions has one entry per type.
type Condition struct {
	// Type names what is observed.
	// +optional
	Type string `json:"type"`
	// Status is True, False or Unknown.
	// +optional
	Status ConditionStatus `json:"status"`
	// LastProbeTime is kept for readers; it is normally empty.
	// +optional
	LastProbeTime string `json:"lastProbeTime"`
	// LastTransitionTime is when Status last changed (RFC 3339); a new reason or message does not move it.
	// +optional
	LastTransitionTime string `json:"lastTransitionTime"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message"`
}

// FindCondition returns the condition of a type, or one with status Unknown if the list has none.
func FindCondition(list []Condition, conditionType string) Condition {
	for _, c := range list {
		if c.Type == conditionType {
			return c
		}
	}
	return Condition{Type: conditionType, Status: ConditionUnknown}
}

// IsConditionTrue reports whether the list has the condition with status True.
func IsConditionTrue(list []Condition, conditionType string) bool {
	return FindCondition(list, conditionType).Status == ConditionTrue
}

// SetCondition returns a copy of the list with the condition put in, and whether its status changed. Only a change of
// status moves the transition time, and only a change of status should be recorded as an event.
func SetCondition(list []Condition, c Condition, now time.Time) (updated []Condition, statusChanged bool) {
	updated = append(make([]Condition, 0, len(list)+1), list...)
	for i, old := range updated {
		if old.Type != c.Type {
			continue
		}
		statusChanged = old.Status != c.Status
		c.LastProbeTime, c.LastTransitionTime = old.LastProbeTime, old.LastTransitionTime
		if statusChanged {
			c.LastTransitionTime = now.UTC().Format(time.RFC3339)
		}
		updated[i] = c
		return updated, statusChanged
	}
	c.LastTransitionTime = now.UTC().Format(time.RFC3339)
	return append(updated, c), true
}
