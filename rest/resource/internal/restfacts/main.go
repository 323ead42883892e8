// Command restfacts reads the tables of the REST reference (Markdown) and prints the facts in them
// as JSON: schemas with their fields, routes, and the states in which a volume offers each action.
// It is run by hand when the reference changes:
//
//	go run ./rest/resource/internal/restfacts <rest-api.md >rest/resource/testdata/rest_facts.json
//
// The tests of the API compare the code with that file, so the facts are written down twice,
// independently.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// Facts is the whole output.
type Facts struct {
	// Declared is the list of schema ids.
	Declared []string `json:"declared"`
	Schemas  []Schema `json:"schemas"`
	Routes   []Route  `json:"routes"`
	// VolumeActions maps an action to the columns of the presence table in which it is marked.
	VolumeActions map[string][]string `json:"volumeActions"`
}

// Schema is one schema whose fields or methods the reference tabulates.
type Schema struct {
	ID                string   `json:"id"`
	Plural            string   `json:"plural,omitempty"`
	CollectionMethods []string `json:"collectionMethods,omitempty"`
	ResourceMethods   []string `json:"resourceMethods,omitempty"`
	Fields            []Field  `json:"fields,omitempty"`
}

// Field is one row of a field table.
type Field struct {
	Name     string  `json:"name"`
	Type     string  `json:"type"`
	Nullable bool    `json:"nullable,omitempty"`
	Create   bool    `json:"create,omitempty"`
	Update   bool    `json:"update,omitempty"`
	Required bool    `json:"required,omitempty"`
	Unique   bool    `json:"unique,omitempty"`
	Default  *string `json:"default,omitempty"`
}

// Route is one row of the route list.
type Route struct {
	Paths   []string `json:"paths"`
	Methods []string `json:"methods"`
	Actions []string `json:"actions,omitempty"`
}

var (
	schemaLine = regexp.MustCompile("^(?:\\*\\*[a-zA-Z]+\\*\\* — )?Schema id `(\\w+)`, plural `(\\w+)`; " +
		"collectionMethods \\[([^]]*)\\], resourceMethods \\[([^]]*)\\]")
	boldLine   = regexp.MustCompile(`^\*\*(\w+)\*\*`)
	fieldsLine = regexp.MustCompile(`^(\w+) fields:`)
	nullable   = " (nullable)"
)

// titled gives the schema of a field table that stands under a heading instead of a line naming its
// schema.
var titled = map[string]string{
	"## 6. Snapshots":         "snapshot",
	"### 7.3 Backup resource": "backup",
	"### 8.1 Tags":            "tag",
	"**definition**":          "settingDefinition",
}

// sameLayout lists schemas that share one table.
var sameLayout = map[string][]string{
	"condition": {"volumeCondition", "nodeCondition", "diskCondition", "longhornCondition"},
}

type parser struct {
	facts    Facts
	byID     map[string]int
	pending  []string // schemas that wait for their field table, oldest first
	inFields string
	columns  []string
	section  string
}

func main() {
	facts, err := parse(os.Stdin)
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", " ")
		err = out.Encode(facts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "restfacts:", err)
		os.Exit(1)
	}
}

func parse(r io.Reader) (Facts, error) {
	p := parser{byID: map[string]int{}, facts: Facts{VolumeActions: map[string][]string{}}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.line(lines.Text())
	}
	if err := lines.Err(); err != nil {
		return Facts{}, err
	}
	if len(p.facts.Declared) == 0 || len(p.facts.Schemas) == 0 || len(p.facts.Routes) == 0 ||
		len(p.facts.VolumeActions) == 0 {
		return Facts{}, fmt.Errorf("input lacks a table that is expected in it (declared schemas %d, schemas %d, "+
			"routes %d, actions %d)",
			len(p.facts.Declared), len(p.facts.Schemas), len(p.facts.Routes), len(p.facts.VolumeActions))
	}
	return p.facts, nil
}

func (p *parser) line(text string) {
	switch {
	case strings.HasPrefix(text, "#"):
		p.section = text
		if strings.HasPrefix(text, "## ") {
			p.pending = nil
		}
		if id, ok := titled[text]; ok {
			p.pending = []string{id}
		}
	case strings.HasPrefix(text, "Declared schemas"):
		_, list, _ := strings.Cut(text, ": ")
		list, _, _ = strings.Cut(list, " (plus")
		p.facts.Declared = strings.Split(strings.ReplaceAll(list, " (sic)", ""), ", ")
	case schemaLine.MatchString(text):
		m := schemaLine.FindStringSubmatch(text)
		s := p.schema(m[1])
		s.Plural, s.CollectionMethods, s.ResourceMethods = m[2], quoted(m[3]), quoted(m[4])
		p.pending = []string{m[1]}
	case text == "**volumeAttachment** and **attachment**":
		p.pending = []string{"volumeAttachment", "attachment"}
	case boldLine.MatchString(text):
		if id, ok := titled[text]; ok {
			p.pending = []string{id}
		} else {
			p.pending = []string{boldLine.FindStringSubmatch(text)[1]}
		}
	case fieldsLine.MatchString(text):
		p.pending = []string{fieldsLine.FindStringSubmatch(text)[1]}
	case strings.HasPrefix(text, "|"):
		p.row(cells(text))
	default:
		p.columns, p.inFields = nil, ""
	}
}

// row handles one row of a table; the first row of a table names its columns.
func (p *parser) row(c []string) {
	if p.columns == nil {
		p.columns = c
		if len(c) > 1 && c[0] == "field" && (c[1] == "schema type" || c[1] == "type") && len(p.pending) > 0 {
			p.inFields, p.pending = p.pending[0], p.pending[1:]
		}
		return
	}
	if strings.HasPrefix(c[0], "---") {
		return
	}
	switch {
	case p.inFields != "":
		ids := sameLayout[p.inFields]
		if ids == nil {
			ids = []string{p.inFields}
		}
		for _, id := range ids {
			s := p.schema(id)
			s.Fields = append(s.Fields, p.field(c))
		}
	case strings.HasPrefix(p.section, "## 3. ") && p.columns[0] == "path":
		p.route(c)
	case strings.HasPrefix(p.section, "### 5.1 ") && p.columns[0] == "action":
		p.presence(c)
	}
}

func (p *parser) schema(id string) *Schema {
	i, ok := p.byID[id]
	if !ok {
		i = len(p.facts.Schemas)
		p.byID[id] = i
		p.facts.Schemas = append(p.facts.Schemas, Schema{ID: id})
	}
	return &p.facts.Schemas[i]
}

func (p *parser) field(c []string) Field {
	f := Field{Name: strings.Trim(c[0], "`")}
	f.Type, f.Nullable = strings.CutSuffix(c[1], nullable)
	for i, name := range p.columns {
		if i >= len(c) || c[i] == "" {
			continue
		}
		switch name {
		case "create":
			f.Create = true
		case "update":
			f.Update = true
		case "required":
			f.Required = true
		case "unique":
			f.Unique = true
		case "default":
			text := strings.Trim(c[i], `"`)
			f.Default = &text
		}
	}
	return f
}

func (p *parser) route(c []string) {
	r := Route{}
	for _, path := range strings.Split(c[0], ", ") {
		r.Paths = append(r.Paths, strings.Trim(strings.TrimSpace(path), "`"))
	}
	for _, m := range strings.Split(c[1], ", ") {
		switch m {
		case "A":
			r.Methods = append(r.Methods, "POST")
		default:
			r.Methods = append(r.Methods, m)
		}
	}
	if len(c) > 2 && c[2] != "" {
		r.Actions = strings.Split(c[2], ", ")
	}
	p.facts.Routes = append(p.facts.Routes, r)
}

var (
	inBrackets = regexp.MustCompile(` \([^)]*\)`)
	inBraces   = regexp.MustCompile(`^(\w+)\{([^}]*)\}(\w+)$`)
	listComma  = regexp.MustCompile(`, `)
)

func (p *parser) presence(c []string) {
	for _, name := range listComma.Split(inBrackets.ReplaceAllString(c[0], ""), -1) {
		names := []string{name}
		if m := inBraces.FindStringSubmatch(name); m != nil {
			names = nil
			for _, mid := range strings.Split(m[2], ",") {
				names = append(names, m[1]+mid+m[3])
			}
		}
		for _, n := range names {
			for i, mark := range c[1:] {
				if mark != "" {
					p.facts.VolumeActions[n] = append(p.facts.VolumeActions[n], p.columns[i+1])
				}
			}
		}
	}
}

func cells(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	out := strings.Split(line, "|")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

func quoted(list string) []string {
	var out []string
	for _, one := range strings.Split(list, ", ") {
		out = append(out, strings.Trim(one, "'"))
	}
	return out
}
