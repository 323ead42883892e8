// Package system answers requests of the /v1 API about what the installation as a whole has:
// settings, events, backups of the system and support bundles.
package system
