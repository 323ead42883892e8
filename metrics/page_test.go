package metrics

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// line is the line of docs/guide/metrics.md for a metric.
func (d *Definition) line() string {
	labels := make([]string, len(d.Labels))
	for i, l := range d.Labels {
		labels[i] = "`" + l + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s |", d.Name, d.Type, strings.Join(labels, ", "), d.Unit,
		d.Owner, d.Source, d.Help)
}

// TestPage: docs/guide/metrics.md shows the table, line by line and nothing else. What is wanted is
// printed.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../docs/guide/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	have := slices.DeleteFunc(strings.Split(string(text), "\n"), func(l string) bool {
		return !strings.HasPrefix(l, "| `longhorn_") && !strings.HasPrefix(l, "| `ankole_")
	})
	var want []string
	for i := range Definitions {
		want = append(want, Definitions[i].line())
	}
	if !slices.Equal(have, want) {
		t.Errorf("docs/guide/metrics.md has %d lines of metrics and should have\n%s", len(have), strings.Join(want, "\n"))
	}
}

var metricName = regexp.MustCompile(`\b(longhorn|ankole)_[a-z0-9_]+`)

// TestMonitoringUsesWhatThereIs: each metric that the dashboard or an alert names exists. The
// expressions are checked in tools/alerts.
func TestMonitoringUsesWhatThereIs(t *testing.T) {
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../deploy/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := metricName.FindAllString(string(text), -1)
		if len(found) < 20 {
			t.Errorf("%s names %d metrics", file, len(found))
		}
		for _, name := range found {
			d := definitions[name]
			if base, isBucket := strings.CutSuffix(name, "_bucket"); d == nil && isBucket {
				if d = definitions[base]; d != nil && d.Type != Histogram {
					d = nil
				}
			}
			if d == nil || d.Source == fromNobody {
				t.Errorf("%s names %s, which is not served", file, name)
			}
		}
	}
}

// TestDefinitions: the table is complete in itself.
func TestDefinitions(t *testing.T) {
	if len(definitions) != len(Definitions) {
		t.Error("a name is there twice")
	}
	for _, d := range Definitions {
		if d.Help == "" || d.Unit == "" || d.Owner == "" || d.Source == "" || metricName.FindString(d.Name) != d.Name ||
			(d.Type == Counter) != (strings.HasSuffix(d.Name, "_total") && d.Name != "longhorn_node_count_total") {
			t.Errorf("%+v", d)
		}
	}
}
