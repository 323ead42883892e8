package cluster

// defaultSettings are the settings of a standalone cluster that differ from the defaults. A user's
// own choice stands: the values are written over the settings only when they change here.
//
// The default of 25 % for storage-minimal-available-percentage is meant for disks that hold nothing
// else. Here all nodes share the disk of somebody's machine, which is often fuller than that, and
// then no volume could be placed.
var defaultSettings = map[string]string{"storage-minimal-available-percentage": "5"}

// anonymousAccess of a standalone cluster: its servers are on loopback, where only this machine
// reaches them. Pages of other sites in a browser here do not: see docs/authentication.md.
const anonymousAccess = "all"
