package main

import (
	"regexp"
	"slices"
	"strings"
)

// knobs are variables of the environment that say what tests do: whoever repeats one needs them
// too.
var knobs = []string{
	"SEED",
	"SEEDS",
	"FROM",
	"OPERATOR_SEEDS",
	"OPERATOR_FROM",
	"ROUNDS",
	"FAULT",
	"UPGRADES",
	"MUTATIONS",
	"CGO_ENABLED",
	"ANKOLE_BIN",
	"ANKOLE_ENGINE",
	"ANKOLE_F3_ROUNDS",
	"ANKOLE_GATE",
	"ANKOLE_STUBBORN",
	"ANKOLE_TIMES",
	"KEY",
	"RAPID_SEED",
	"ANKOLE_SOAK",
}

// plain are arguments that may be quoted as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

func quote(arg string) string {
	if plain.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// again is the command that repeats a test, or all of a package.
func (r *report) again(pkg, test string) string {
	var words []string
	for _, v := range r.environment {
		if name, value, ok := strings.Cut(v, "="); ok && value != "" && slices.Contains(knobs, name) {
			words = append(words, name+"="+quote(value))
		}
	}
	slices.Sort(words)
	words = append(words, "go")
	if r.module != "" && r.module != "." {
		words = append(words, "-C", quote(r.module))
	}
	words = append(words, "test", "-count=1")
	if slices.Contains(r.args, "-race") {
		words = append(words, "-race")
	}
	if test != "" {
		words = append(words, "-run", quote(pattern(test)))
	}
	words = append(words, pkg)
	for _, a := range r.after() {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

// after are the arguments behind the packages, which are the tests' own.
func (r *report) after() []string {
	is := func(arg string) bool {
		return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "ankole.storage/")
	}
	for i := len(r.args) - 1; i >= 0; i-- {
		if is(r.args[i]) {
			return r.args[i+1:]
		}
	}
	return nil
}
