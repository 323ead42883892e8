// Command mutate tries the tests: it makes small changes to packages, one at a time, and looks
// whether a test fails.
//
//	tools/mutate.sh [-budget seconds] [-seed text] [-page] [package…]
//
// A change that no test notices shows a rule that nothing holds. Each such mutant gets a test, or,
// where it changes nothing that a test could see, a line in tools/mutate/reviewed with the reason.
// A survivor that is not listed, and a line that fits no mutant any more, make the exit status 1.
//
// The operators work on the syntax tree with its types, see operators.go and statements.go. All
// mutants of a package are compiled into one test binary, each behind a test of its number, which
// an environment variable selects; the changed files are laid over the tree with go test -overlay.
// So a package is compiled once, and a mutant costs one run of the tests that come by it.
//
// With a budget, packages and mutants are taken in an order that the seed gives, until the time is
// over: with the commit's hash as seed every commit tries another share.
package main

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	root    string
	budget  time.Duration
	seed    string
	page    bool
	list    bool
	verbose bool
	workers int
	// file and fn restrict what is tried, for work on one place.
	file, fn string
	// open: those that are listed as open are tried too. record: what is not noticed becomes the list.
	open, record bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "folder of the module")
	flag.DurationVar(&o.budget, "budget", 0, "stop after this time; 0 tries all mutants")
	flag.StringVar(&o.seed, "seed", "", "order in which mutants are tried")
	flag.BoolVar(&o.page, "page", false, "write the table of docs/mutation-testing.md; needs all mutants of all packages")
	flag.BoolVar(&o.list, "list", false, "print the mutants and try none")
	flag.BoolVar(&o.verbose, "v", false, "print the verdict on every mutant")
	flag.IntVar(&o.workers, "workers", 2, "mutants tried at once")
	flag.StringVar(&o.file, "file", "", "only mutants of this file")
	flag.StringVar(&o.fn, "func", "", "only mutants of this function")
	flag.BoolVar(&o.open, "open", false, "try those too that are listed as open")
	flag.BoolVar(&o.record, "record", false, "list as open what is not noticed; implies -open")
	flag.Parse()
	o.open = o.open || o.record
	ok, err := run(o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports whether every mutant that was tried is noticed or listed.
func run(o options, names []string) (bool, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return false, err
	}
	o.root = root
	chosen, err := choosePackages(names)
	if err != nil {
		return false, err
	}
	shuffle(chosen, o.seed, func(t target) string { return t.pkg })
	var end time.Time
	if o.budget > 0 {
		end = time.Now().Add(o.budget)
	}
	ok := true
	var sums []summary
	for _, t := range chosen {
		if !end.IsZero() && time.Now().After(end) {
			break
		}
		sum, err := tryPackage(o, t, end)
		if err != nil {
			return false, err
		}
		fmt.Println(sum)
		sums = append(sums, sum)
		ok = ok && (o.open || sum.survived+sum.unreached == 0) && sum.stale == 0
	}
	if o.page {
		return ok, writePage(root, sums)
	}
	fmt.Printf("%d of %d packages, %d mutants tried, %d not noticed and not listed\n", len(sums), len(chosen),
		total(sums, summary.tried),
		total(sums, func(s summary) int { return s.survived + s.unreached }))
	return ok, nil
}

func choosePackages(names []string) ([]target, error) {
	if len(names) == 0 {
		// The others have no lists yet.
		return slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return t.first == 0 }), nil
	}
	var chosen []target
	for _, name := range names {
		name = strings.Trim(strings.TrimPrefix(name, "./"), "/")
		i := slices.IndexFunc(targets, func(t target) bool { return t.pkg == name })
		if i < 0 {
			i = len(targets)
			targets = append(targets, target{pkg: name})
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

// shuffle brings things into an order that depends on the seed and on their names only.
func shuffle[T any](list []T, seed string, name func(T) string) {
	if seed == "" {
		return
	}
	rank := func(x T) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, seed, "\x00", name(x), "\x00")
		return h.Sum64() * 0x9e3779b97f4a7c15
	}
	slices.SortStableFunc(list, func(a, b T) int {
		if ra, rb := rank(a), rank(b); ra != rb && ra < rb {
			return -1
		} else if ra > rb {
			return 1
		}
		return 0
	})
}

// tryPackage tries the mutants of a package until the end, if there is one.
func tryPackage(o options, t target, end time.Time) (summary, error) {
	sum := summary{target: t}
	subjects, err := load(o.root, []target{t})
	if err != nil {
		return sum, err
	}
	s := subjects[0]
	if err := s.leaveOut(); err != nil {
		return sum, fmt.Errorf("%s: %w", t.pkg, err)
	}
	todo, err := sum.choose(o, s.mutants)
	if err != nil {
		return sum, err
	}
	shuffle(todo, o.seed, (*mutant).key)
	if o.list {
		for _, m := range todo {
			fmt.Printf("%s/%s:%d: %s\n", t.pkg, m.file, m.line, m.key())
		}
		return sum, nil
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return sum, err
	}
	defer os.RemoveAll(work)
	b, err := prepare(s, work)
	if err != nil {
		return sum, err
	}
	for _, name := range b.unfit {
		fmt.Printf("%s: %s is left out: it fails without a mutant\n", t.pkg, name)
	}
	left := b.tryAll(o, todo, end, &sum)
	if o.record {
		return sum, writeOpen(openFile(o.root, t.pkg), left)
	}
	return sum, nil
}

// choose returns the mutants to try, and complains about entries of the lists that no mutant fits.
func (s *summary) choose(o options, all []*mutant) ([]*mutant, error) {
	equivalent, err := readReviewed(reviewedFile(o.root, s.pkg))
	if err != nil {
		return nil, err
	}
	open, err := readOpen(openFile(o.root, s.pkg))
	if err != nil {
		return nil, err
	}
	for _, key := range append(equivalent.stale(all), open.stale(all)...) {
		fmt.Printf("%s: listed, but there is no such mutant any more:\n  %s\n", s.pkg, key)
		s.stale++
	}
	if o.record {
		s.stale = 0
	}
	var todo []*mutant
	for _, m := range all {
		switch {
		case o.file != "" && o.file != m.file || o.fn != "" && o.fn != m.fn:
		case equivalent[m.key()] != "":
			s.equivalent++
		case open[m.key()] != "" && !o.open:
			s.open++
		default:
			todo = append(todo, m)
		}
	}
	s.all = len(all)
	return todo, nil
}

// tryAll tries mutants, several at once, and returns those that are not noticed.
func (b *bed) tryAll(o options, todo []*mutant, end time.Time, sum *summary) (left []*mutant) {
	var mu sync.Mutex
	var all sync.WaitGroup
	queue := make(chan *mutant)
	for range o.workers {
		all.Go(func() {
			for m := range queue {
				verdict, by := b.try(m)
				mu.Lock()
				sum.count(verdict)
				lives := verdict == survived || verdict == unreached
				if lives {
					left = append(left, m)
				}
				if by != "" {
					verdict += " by " + by
				}
				if o.verbose || lives {
					fmt.Printf("%s/%s:%d: %s\n  %s\n", sum.pkg, m.file, m.line, verdict, m.key())
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range todo {
		if !end.IsZero() && time.Now().After(end) {
			break
		}
		queue <- m
	}
	close(queue)
	all.Wait()
	return left
}
