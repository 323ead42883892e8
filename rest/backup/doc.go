// Package backup answers requests of the /v1 API about backup targets and what is in them: backup
// volumes, backups of volumes and of backing images, and their verification. A store is never
// touched here: requests change objects, and their controllers do the rest.
package backup
