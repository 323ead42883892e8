package alerts

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rulesFile     = "../../deploy/monitoring/alerts.yaml"
	dashboardFile = "../../deploy/monitoring/dashboard.json"
	pageFile      = "../../docs/guide/metrics.md"
)

var promql = parser.NewParser(parser.Options{})

// metric is what a row of the page says of a metric.
type metric struct {
	kind   string
	labels []string
}

var row = regexp.MustCompile("^\\| `((?:longhorn|ankole)_[a-z0-9_]+)` \\| (gauge|counter|histogram) \\| ([^|]*) \\|")

// page reads the table of metrics; package metrics holds it to what is served.
func page(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{}
	for _, line := range strings.Split(string(text), "\n") {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var labels []string
		for _, l := range strings.Split(m[3], ",") {
			if l = strings.Trim(l, " `"); l != "" {
				labels = append(labels, l)
			}
		}
		out[m[1]] = metric{m[2], labels}
	}
	if len(out) < 70 {
		t.Fatalf("the page has %d metrics", len(out))
	}
	return out
}

// expression is one of the rules or of the dashboard.
type expression struct{ where, text string }

func rules(t *testing.T) (*rulefmt.RuleGroups, []expression) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, problems := rulefmt.Parse(text, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	for _, p := range problems {
		t.Error(p)
	}
	if groups == nil {
		t.FailNow()
	}
	var out []expression
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			out = append(out, expression{"alert " + r.Alert, r.Expr})
		}
	}
	return groups, out
}

// variables of the dashboard stand for what Grafana puts in their place.
var variables = strings.NewReplacer("$volume", ".*", "$node", ".*")

func dashboard(t *testing.T) []expression {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	var out []expression
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			out = append(out, expression{"panel " + p.Title, variables.Replace(target.Expr)})
		}
	}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			inner := strings.TrimSuffix(strings.TrimPrefix(q["query"].(string), "label_values("), ")")
			name, label, _ := strings.Cut(inner, ", ")
			out = append(out, expression{"variable " + v.Name, "sum by (" + label + ") (" + name + ")"})
		}
	}
	if len(out) < 40 {
		t.Fatalf("the dashboard has %d expressions", len(out))
	}
	return out
}

// problems are what is wrong with an expression: it is none, or it asks for a metric or label that
// is not served.
func problems(text string, served map[string]metric) []string {
	expr, err := promql.ParseExpr(text)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	known := []string{"le"}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, ok := served[s.Name]
		if base, isBucket := strings.CutSuffix(s.Name, "_bucket"); !ok && isBucket {
			m, ok = served[base]
			ok = ok && m.kind == "histogram"
		}
		if !ok {
			out = append(out, "no metric "+s.Name)
			return nil
		}
		known = append(known, m.labels...)
		for _, l := range s.LabelMatchers {
			if l.Name != model.MetricNameLabel && !slices.Contains(m.labels, l.Name) {
				out = append(out, s.Name+" has no label "+l.Name)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(known, l) {
					out = append(out, "nothing has label "+l)
				}
			}
		}
		return nil
	})
	return out
}

// TestExpressions: every expression of rules and dashboard is one for Prometheus, and asks for
// metrics and labels that are served.
func TestExpressions(t *testing.T) {
	served := page(t)
	_, all := rules(t)
	for _, e := range append(all, dashboard(t)...) {
		for _, p := range problems(e.text, served) {
			t.Errorf("%s: %s: %s", e.where, p, e.text)
		}
	}
}

// TestProblemsAreFound: the test above can fail.
func TestProblemsAreFound(t *testing.T) {
	served := map[string]metric{"longhorn_a": {"gauge", []string{"node"}}, "ankole_b": {"histogram", nil}}
	for text, want := range map[string]int{
		`longhorn_a{node="x"} > 0`:                               0,
		`rate(ankole_b_bucket[5m])`:                              0,
		`histogram_quantile(0.9, sum by (le) (ankole_b_bucket))`: 0,
		`longhorn_a{disk="x"}`:                                   1,
		`longhorn_c`:                                             1,
		`longhorn_a_bucket`:                                      1,
		`sum by (disk) (longhorn_a)`:                             1,
		`longhorn_a >`:                                           1,
	} {
		if got := problems(text, served); len(got) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestRules: a rule says how bad it is and what to do, and uses labels that its samples have.
func TestRules(t *testing.T) {
	served := page(t)
	groups, _ := rules(t)
	names := map[string]bool{}
	used := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if names[r.Alert] {
				t.Errorf("%s is there twice", r.Alert)
			}
			names[r.Alert] = true
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
				t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s says too little", r.Alert)
			}
			expr, err := promql.ParseExpr(r.Expr)
			if err != nil {
				continue // TestExpressions tells
			}
			var known []string
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				switch n := n.(type) {
				case *parser.VectorSelector:
					known = append(known, served[n.Name].labels...)
				case *parser.AggregateExpr:
					known = append(known, n.Grouping...)
				}
				return nil
			})
			for _, m := range used.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s uses label %s, which its samples do not have", r.Alert, m[1])
				}
			}
		}
	}
}
