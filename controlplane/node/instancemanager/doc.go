// Package instancemanager keeps one instance manager per node running and mirrors what it runs.
//
// An InstanceManager object stands for one Pod of the same name on one node, which starts and
// watches the engine and replica processes there. The object's status follows the Pod (state.go)
// and, through one stream per Pod kept by the leader, the processes in it (streams.go). The Pod is
// replaced when it ends (with back-off), and, while it holds no instance, when settings that are
// baked into it have changed; I/O goes first, so a Pod with instances is left alone and the
// condition SettingSynced says what waits.
//
// The objects themselves are made by package node, one per node for the default image.
// docs/design/controlplane.md has the states, the invariants and the decision table.
package instancemanager
