// Package luks says what the Secret of an encrypted volume or backing image asks for, and whether a
// LUKS2 header is that. cryptsetup makes, reads and opens headers; who calls it is elsewhere.
package luks
