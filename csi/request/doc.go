// Package request is what calls of the Container Storage Interface ask for and how they are
// refused, for the controller service and the node service alike: capabilities, parameters of a
// StorageClass, the Secret of an encrypted volume, the manager's API, and the codes of errors. It
// serves nothing.
package request
