package memdisk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"

	"ankole.storage/dataplane/disk"
)

// Rule makes operations fail.
type Rule struct {
	// Op is the operation, "" any.
	Op Op
	// Name is a path.Match pattern for the last part of the path, "" any.
	Name string
	// Skip lets that many matching operations pass first; Times is how often the rule then applies,
	// 0 for ever. Chance makes it apply to one in so many, 0 to each.
	Skip, Times, Chance int
	// Err is what the operation returns, disk.ErrIO or disk.ErrNoSpace as a rule. Nothing else
	// happens: what a failed sync should have made durable stays as it was, to be kept or lost at a
	// crash.
	Err error
	// Forget is what Linux does after a failed sync: the data is taken for written, so that a later
	// sync succeeds and does not make it durable either. Only writing it again helps.
	Forget bool
	// Partial is a write that fails midway: of its sectors a part, from the first one on, has been
	// written. Where there was a hole, what the failure hit keeps its space and no content, as file
	// systems leave it.
	Partial bool

	rand  *rand.Rand
	spent bool
}

// Inject adds a rule and returns what takes it away. The first one that matches an operation
// applies.
func (fs *FS) Inject(r Rule) (stop func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	// Seeded by what has happened, so that the same history makes the same choices.
	r.rand = rand.New(rand.NewPCG(uint64(fs.changes), uint64(len(fs.rules))))
	fs.rules = append(fs.rules, &r)
	return func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.rules = slices.DeleteFunc(fs.rules, func(o *Rule) bool { return o == &r })
	}
}

// InjectText adds the rules that ParseRules reads from text.
func (fs *FS) InjectText(text string) (stop func(), err error) {
	rules, err := ParseRules(text)
	if err != nil {
		return nil, err
	}
	var stops []func()
	for _, r := range rules {
		stops = append(stops, fs.Inject(r))
	}
	return func() {
		for _, f := range stops {
			f()
		}
	}, nil
}

// Injected counts the operations that a rule has applied to.
func (fs *FS) Injected() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.injected
}

// ClearRules removes all rules.
func (fs *FS) ClearRules() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rules = nil
}

var ops = []Op{OpOpen, OpList, OpStat, OpRead, OpExtents, OpLock, OpCreate, OpRename, OpLink, OpRemove, OpMkdir,
	OpSyncDir,
	OpWrite, OpSync, OpTruncate, OpPunch, OpPreallocate}

var outcomes = map[string]Rule{
	"eio": {Err: disk.ErrIO}, "enospc": {Err: disk.ErrNoSpace}, "unsupported": {Err: disk.ErrUnsupported},
	"forget": {Err: disk.ErrIO, Forget: true}, "partial": {Err: disk.ErrIO, Partial: true},
}

// ErrRule: the text of a rule cannot be read.
var ErrRule = errors.New("memdisk: not a rule")

// ParseRules reads rules, one per line:
//
//	<operation>[,<operation>…] <pattern> <outcome> [skip <n>] [times <n>] [chance <n>]
//
// An operation is one of the Op constants or "any", the pattern one of path.Match for the last part
// of the path, the outcome eio, enospc, unsupported, forget (of a sync: it fails, and what it
// should have written is never made durable by a later one) or partial (of a write: it fails when a
// part of it has been written). For example:
//
//	sync volume-head-* eio times 1
//	write,create * enospc skip 3 chance 2
func ParseRules(text string) ([]Rule, error) {
	var rules []Rule
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		r, err := parseRule(f)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrRule, strings.TrimSpace(line), err)
		}
		for _, op := range strings.Split(f[0], ",") {
			if r.Op = Op(op); op == "any" {
				r.Op = ""
			} else if !slices.Contains(ops, r.Op) {
				return nil, fmt.Errorf("%w: %q: no operation %q", ErrRule, strings.TrimSpace(line), op)
			}
			rules = append(rules, r)
		}
	}
	return rules, nil
}

func parseRule(f []string) (Rule, error) {
	if len(f) < 3 || len(f)%2 == 0 {
		return Rule{}, errors.New("want operations, a pattern, an outcome and pairs of a word and a number")
	}
	r, ok := outcomes[f[2]]
	if !ok {
		return r, fmt.Errorf("no outcome %q", f[2])
	}
	if _, err := path.Match(f[1], "x"); err != nil {
		return r, fmt.Errorf("pattern %q: %w", f[1], err)
	}
	r.Name = f[1]
	for i := 3; i < len(f); i += 2 {
		n, err := strconv.Atoi(f[i+1])
		if err != nil || n < 0 {
			return r, fmt.Errorf("%s %q is not a number", f[i], f[i+1])
		}
		switch f[i] {
		case "skip":
			r.Skip = n
		case "times":
			r.Times = n
		case "chance":
			r.Chance = n
		default:
			return r, fmt.Errorf("no option %q", f[i])
		}
	}
	return r, nil
}

func (fs *FS) fault(op Op, name string) error {
	r := fs.rule(op, name)
	if r == nil {
		return nil
	}
	fs.injected++
	switch {
	case r.Forget:
		return fmt.Errorf("%s %s: injected: %w, %w", op, name, r.Err, errForgotten)
	case r.Partial:
		return &partialError{error: fmt.Errorf("%s %s: injected midway: %w", op, name, r.Err), at: r.rand.Int64()}
	}
	return fmt.Errorf("%s %s: injected: %w", op, name, r.Err)
}

// partialError is of a write that failed midway; at chooses where.
type partialError struct {
	error
	at int64
}

func (e *partialError) Unwrap() error { return e.error }

// errForgotten marks a failed sync after which the system takes the data for written.
var errForgotten = errors.New("and the data is taken for written")

// rule returns the rule that applies to an operation, nil if there is none.
func (fs *FS) rule(op Op, name string) *Rule {
	for _, r := range fs.rules {
		if r.spent || r.Op != "" && r.Op != op {
			continue
		}
		if ok, err := path.Match(r.Name, path.Base(name)); r.Name != "" && (err != nil || !ok) {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		if r.Chance > 1 && r.rand.IntN(r.Chance) > 0 {
			continue
		}
		if r.Times > 0 {
			if r.Times--; r.Times == 0 {
				r.spent = true
			}
		}
		return r
	}
	return nil
}
