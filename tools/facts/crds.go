package main

import (
	"fmt"
	"regexp"
	"strings"
)

type crdFacts struct {
	Condition []field `json:"condition"`
	Kinds     []kind  `json:"kinds"`
}

type kind struct {
	Kind      string   `json:"kind"`
	Plural    string   `json:"plural"`
	Singular  string   `json:"singular"`
	List      string   `json:"list"`
	ShortName string   `json:"shortName"`
	Columns   []column `json:"columns"`
	Fields    []field  `json:"fields"`
}

type column struct {
	Name     string `json:"name"`
	Type     string `json:"type,omitempty"`
	JSONPath string `json:"jsonPath,omitempty"`
}

type field struct {
	Path     string   `json:"path"`
	Type     string   `json:"type"`
	Enum     []string `json:"enum,omitempty"`
	Default  string   `json:"default,omitempty"`
	Minimum  string   `json:"minimum,omitempty"`
	Maximum  string   `json:"maximum,omitempty"`
	Required bool     `json:"required,omitempty"`
	Nullable bool     `json:"nullable,omitempty"`
	Legacy   bool     `json:"legacy,omitempty"`
}

var (
	names       = regexp.MustCompile("^plural `(\\w+)`, singular `(\\w+)`, list kind `(\\w+)`, short name `(\\w+)`")
	parenthesis = regexp.MustCompile(`\s*\([^)]*\)`)
)

func parseCRDs(page string) (crdFacts, error) {
	var facts crdFacts
	for _, s := range sections(page) {
		if s.title == "Common facts" {
			for _, row := range s.tables("Condition object field") {
				facts.Condition = append(facts.Condition, field{Path: row[0], Type: row[1]})
			}
			continue
		}
		k, err := parseKind(s)
		if err != nil {
			return facts, fmt.Errorf("section %s: %w", s.title, err)
		}
		facts.Kinds = append(facts.Kinds, k)
	}
	return facts, nil
}

func parseKind(s section) (kind, error) {
	k := kind{Kind: s.title}
	for _, line := range s.lines {
		if m := names.FindStringSubmatch(line); m != nil {
			k.Plural, k.Singular, k.List, k.ShortName = m[1], m[2], m[3], m[4]
		}
		if text, ok := strings.CutPrefix(line, "Printer columns: "); ok {
			text = strings.TrimSuffix(parenthesis.ReplaceAllString(text, ""), ".")
			for name := range strings.SplitSeq(text, ",") {
				k.Columns = append(k.Columns, column{Name: strings.TrimSpace(name)})
			}
		}
	}
	if k.Plural == "" || len(k.Columns) == 0 {
		return k, fmt.Errorf("no line with the names or with the printer columns")
	}
	for _, row := range s.tables("Column", "Type") {
		for i := range k.Columns {
			if k.Columns[i].Name == row[0] {
				k.Columns[i].Type, k.Columns[i].JSONPath = row[1], strings.Trim(row[2], "`")
			}
		}
	}
	for _, row := range s.tables("JSON", "Type", "Enum / default / flags") {
		k.Fields = append(k.Fields, parseField(row[0], row[1], row[2]))
	}
	for _, row := range s.tables("JSON", "Type", "Meaning") {
		fieldType, flags, _ := strings.Cut(row[1], ",")
		f := parseField(row[0], fieldType, flags)
		f.Legacy = true
		k.Fields = append(k.Fields, f)
	}
	if len(k.Fields) == 0 {
		return k, fmt.Errorf("no table of fields")
	}
	return k, nil
}

func parseField(path, fieldType, flags string) field {
	f := field{Path: path, Type: fieldType}
	for flag := range strings.SplitSeq(flags, ";") {
		flag = strings.TrimSpace(flag)
		word, rest, _ := strings.Cut(flag, " ")
		switch word {
		case "enum:":
			for value := range strings.SplitSeq(rest, ",") {
				f.Enum = append(f.Enum, strings.Trim(strings.TrimSpace(value), `"`))
			}
		case "default":
			f.Default = rest
		case "min":
			f.Minimum = rest
		case "max":
			f.Maximum = rest
		case "required":
			f.Required = true
		case "nullable":
			f.Nullable = true
		}
	}
	return f
}
