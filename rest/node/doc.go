// Package node answers requests of the /v1 API about nodes with their disks and tags, and about
// what is on them: engine images, instance managers with the logs of their instances, and orphans.
package node
