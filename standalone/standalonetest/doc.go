// Package standalonetest holds the tests of a whole standalone cluster: real control plane, real
// processes.
//
// The tests share one cluster where they can, each in a namespace of its own. Their Pods run this
// test binary itself in the role of a small server (see testpod_test.go), so that probes, signals,
// credentials and mounts are exercised by a program under the test's control.
package standalonetest
