// Package upstream is Kubernetes' own tests of storage drivers (External Storage) as a program. Its
// only test expects a cluster and a definition of the driver, which k8stest.TestUpstream gives it.
package upstream
