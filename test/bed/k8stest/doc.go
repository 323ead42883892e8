// Package k8stest installs the system on a cluster of real nodes and runs acceptance scenarios on
// it.
package k8stest
