// Package qcow2 reads images of the format qcow2, versions 2 and 3, as their specification has them
// (docs/interop/qcow2.rst of QEMU): plain, zero and compressed clusters, and clusters that are cut
// into 32. The tables that say where clusters are, are read once, when an image is opened. A Writer
// makes a new image; nothing is changed in one that is there.
package qcow2
