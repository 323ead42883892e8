//go:build race

package proxy

// memoryFactor: the race detector keeps several bytes for each one of the program.
const memoryFactor = 8
