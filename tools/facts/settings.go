package main

import (
	"fmt"
	"regexp"
	"strings"
)

type settingFact struct {
	Name               string   `json:"name"`
	Category           string   `json:"category"`
	Type               string   `json:"type"`
	Default            string   `json:"default"`
	Minimum            string   `json:"minimum,omitempty"`
	Maximum            string   `json:"maximum,omitempty"`
	Options            []string `json:"options,omitempty"`
	Required           bool     `json:"required,omitempty"`
	ReadOnly           bool     `json:"readOnly,omitempty"`
	DataEngineSpecific bool     `json:"dataEngineSpecific,omitempty"`
}

var (
	categoryTitle = regexp.MustCompile("^\\d+\\. Category `([^`]+)`$")
	bounded       = regexp.MustCompile(`^(\d+)\.\.(\d+)$`)
	halfBounded   = regexp.MustCompile(`^>= (\d+)$`)
)

func parseSettings(page string) ([]settingFact, error) {
	var facts []settingFact
	for _, s := range sections(page) {
		m := categoryTitle.FindStringSubmatch(s.title)
		if m == nil {
			continue
		}
		for _, row := range s.tables("Name", "Type", "Default", "Range / options", "Flags") {
			facts = append(facts, parseSetting(m[1], row))
		}
	}
	if len(facts) == 0 {
		return nil, fmt.Errorf("no table of settings found")
	}
	return facts, nil
}

func parseSetting(category string, row []string) settingFact {
	f := settingFact{Name: row[0], Category: category, Type: row[1]}
	// A default in brackets is set by the manager at its start; two quotes stand for none.
	if !strings.HasPrefix(row[2], "(") && row[2] != `""` {
		f.Default = row[2]
	}
	limits := parenthesis.ReplaceAllString(row[3], "")
	if m := bounded.FindStringSubmatch(limits); m != nil {
		f.Minimum, f.Maximum = m[1], m[2]
	} else if m := halfBounded.FindStringSubmatch(limits); m != nil {
		f.Minimum = m[1]
	} else if limits != "" {
		for option := range strings.SplitSeq(limits, ",") {
			f.Options = append(f.Options, strings.TrimSpace(option))
		}
	}
	for flag := range strings.FieldsSeq(row[4]) {
		switch flag {
		case "R":
			f.Required = true
		case "RO":
			f.ReadOnly = true
		case "J":
			f.DataEngineSpecific = true
		}
	}
	return f
}
