// Package enginebinaryv1 is the service by which controllers have engine binaries run.
package enginebinaryv1
