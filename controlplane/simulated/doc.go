// Package simulated plays the controllers of production against a simulated cluster, to find waits
// that nothing ends and promises that are broken (docs/design/testing.md). It has tests only.
//
// The world steps an object only when something wakes it: an event that its controller's own
// watches pass on, the time that its last step asked for, a stream, or the retry of a step that
// failed. The watches are those that the controllers register in production (loop.Registration).
// Caches lag behind the API server by drawn times, lose intermediate states, and change between two
// reads of a step. Time is simulated (testing/synctest).
//
// What is real: the controllers of volumes, attachments, engines, replicas, instance managers,
// nodes, snapshots, settings and orphans, the allocator, the scheduler, and the agents that remove
// data. What is a model: the API server, kubelets, garbage collection, instance managers with their
// processes and streams, engines with the membership protocol in the small, the witness, the look
// of agents at disks. Backups are not played.
//
// There are two kinds of tests. A scene (scene, story) says what happens; what is late and in what
// order controllers look is drawn. Snapshots, clones, live upgrades and migrations are played
// there, among drawn faults too (drawn). Of the others everything is drawn (TestWorld).
//
// A history is drawn by its seed: users' orders and faults close to each other, then rest. After
// forty minutes of rest everybody looks at everything once, as a new leader would. Whoever finds
// something to do then, and had been at rest, was not woken for it: the test fails. At the end all
// faults end, and every volume has to be as it is wanted. At all times the last good copies, the
// writers, the limits and the number of looks are checked.
//
//	go test ./controlplane/simulated -run 'TestWorld$' -args -first 94 -seeds 1 -trace
package simulated
