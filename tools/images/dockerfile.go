package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// target is one image of a Dockerfile.
type target struct {
	name       string
	env        []string // NAME=value
	labels     map[string]string
	user       string
	entrypoint []string
	copies     []copied
}

// copied is one COPY: a file or a folder of the build's context, and where it goes.
type copied struct{ from, to string }

// errDockerfile marks what a Dockerfile asks for that is not understood.
var errDockerfile = errors.New("Dockerfile") //nolint:staticcheck // the name of the file

// parse reads the part of the Dockerfile language that needs no container engine.
func parse(text string) ([]*target, error) {
	var targets []*target
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		bad := func(why string) error { return fmt.Errorf("%w line %d: %s: %s", errDockerfile, n+1, why, line) }
		word, rest, _ := strings.Cut(line, " ")
		if word == "FROM" {
			fields := strings.Fields(rest)
			if len(fields) != 3 || fields[0] != "scratch" || fields[1] != "AS" {
				return nil, bad("only FROM scratch AS <name> is understood")
			}
			targets = append(targets, &target{name: fields[2], labels: map[string]string{}})
			continue
		}
		if len(targets) == 0 {
			return nil, bad("comes before FROM")
		}
		if err := targets[len(targets)-1].add(word, strings.TrimSpace(rest)); err != nil {
			return nil, bad(err.Error())
		}
	}
	return targets, nil
}

// add takes in one instruction.
func (t *target) add(word, rest string) error {
	switch word {
	case "COPY":
		fields := strings.Fields(rest)
		if len(fields) != 2 || strings.HasPrefix(fields[0], "-") || !strings.HasPrefix(fields[1], "/") {
			return errors.New("only COPY <file or folder/> </absolute/path> is understood")
		}
		t.copies = append(t.copies, copied{fields[0], fields[1]})
	case "ENV":
		name, _, ok := strings.Cut(rest, "=")
		if !ok || strings.ContainsAny(rest, " \"") || name == "" {
			return errors.New("only ENV NAME=value without spaces is understood")
		}
		t.env = append(t.env, rest)
	case "LABEL":
		for pair := range strings.FieldsSeq(rest) {
			k, v, ok := strings.Cut(pair, `="`)
			if !ok || !strings.HasSuffix(v, `"`) {
				return errors.New(`only LABEL name="value" without spaces is understood`)
			}
			t.labels[k] = strings.TrimSuffix(v, `"`)
		}
	case "USER":
		t.user = rest
	case "ENTRYPOINT":
		if err := json.Unmarshal([]byte(rest), &t.entrypoint); err != nil {
			return errors.New("only a JSON list is understood")
		}
	default:
		return errors.New("an instruction that needs a container engine")
	}
	return nil
}
