package serve

import (
	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// TimeText is the form of creation times, which is not RFC 3339.
const TimeText = "2006-01-02 15:04:05 -0700 MST"

// maxShown bounds how much of a rejected value a message repeats.
const maxShown = 256

// Shorten bounds what a message repeats of a request.
func Shorten(value string) string {
	if len(value) > maxShown {
		return value[:maxShown] + "…"
	}
	return value
}

func conditionView(c lh.Condition) resource.Condition {
	return resource.Condition{ConditionType: c.Type, Status: string(c.Status), LastProbeTime: c.LastProbeTime,
		LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

// Conditions lists conditions; it is never nil.
func Conditions(list []lh.Condition) []resource.Condition {
	out := []resource.Condition{}
	for _, c := range list {
		out = append(out, conditionView(c))
	}
	return out
}

// ConditionMap keys conditions by their type; it is never nil.
func ConditionMap(list []lh.Condition) map[string]resource.Condition {
	out := map[string]resource.Condition{}
	for _, c := range list {
		out[c.Type] = conditionView(c)
	}
	return out
}
