// Package vm runs tests in a virtual machine that has what the kernel of a test machine may lack:
// device-mapper with dm_crypt, and the clients of NFS and SMB.
//
// The machine is an emulator (QEMU without KVM, so that it runs anywhere), a kernel of the
// distribution, and a file system in memory that holds a test binary and the programs that it
// wants: those of the image of the CSI driver, servers of NFS and SMB. Its first process runs the
// tests and writes to the serial console, which is all that comes out. Nothing is measured in it:
// it is slow.
package vm
