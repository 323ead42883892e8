// Package shop is what the tests of mutate change.
package shop

import "errors"

// ErrNone says that nothing was ordered.
var ErrNone = errors.New("nothing was ordered")

const discountFrom = 10

// Order is what a customer wants.
type Order struct {
	Name, Street string
	Gift         bool
}

// Price is what n things cost. A test is missing at the number where the discount begins.
func Price(n int) (int, error) {
	if n <= 0 {
		return 0, ErrNone
	}
	if n >= discountFrom {
		return n * 9, nil
	}
	return n * 10, nil
}

// Label fills the fields of an order.
func Label(name, street string) Order {
	return Order{Name: name, Street: street, Gift: name != street && name != ""}
}

// Kind tells kinds of things apart.
func Kind(s string) int {
	switch s {
	case "apple", "pear":
		return 1
	}
	return 2
}

// Count counts down.
func Count(n int) int {
	steps := 0
	for n > 0 {
		n--
		steps++
	}
	return steps
}

// Longest is the longer of two, each at least one long.
func Longest(a, b []string) int {
	longest := 1
	for _, list := range [][]string{a, b} {
		longest = max(longest, len(list))
	}
	return longest
}

// Unused is not called by a test.
func Unused() string { return "x" }
