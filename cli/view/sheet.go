package view

import (
	"strings"

	"ankole.storage/cli/output"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// conditionRow is a condition with its name.
type conditionRow struct {
	name string
	resource.Condition
}

// PrintConditions prints conditions by their names.
func PrintConditions(s *output.Sheet, title string, m map[string]resource.Condition) {
	var rows []conditionRow
	for _, name := range output.SortedKeys(m) {
		rows = append(rows, conditionRow{name, m[name]})
	}
	output.SheetTable(s, title, []output.Column[conditionRow]{
		{Header: "CONDITION", Value: func(c conditionRow) string { return c.name }},
		{Header: "STATUS", Value: func(c conditionRow) string { return c.Status }},
		{Header: "SINCE", Right: true,
			Value: func(c conditionRow) string { return output.Age(c.LastTransitionTime, s.Now()) }},
		{Header: "REASON", Value: func(c conditionRow) string { return c.Reason }},
		{Header: "MESSAGE", Value: func(c conditionRow) string { return c.Message }},
	}, rows)
}

// maxFindings is how many lines of one list are shown; the rest is counted.
const maxFindings = 12

// PrintFindings prints a list with what to do, and says how many did not fit.
func PrintFindings(s *output.Sheet, title string, all []findings.Finding) {
	if len(all) == 0 {
		return
	}
	s.Title(title)
	for _, f := range all[:min(len(all), maxFindings)] {
		s.Printf("  %s: %s\n", output.OneLine(f.Object), output.OneLine(f.What))
		if f.Do != "" {
			s.Printf("     %s\n", strings.TrimPrefix(s.Spelled(": "+output.OneLine(f.Do)), ":"))
		}
	}
	if more := len(all) - maxFindings; more > 0 {
		s.Printf("  and %d more; see them all with -o yaml\n", more)
	}
}
