// Package recurringjob has the jobs of RecurringJob objects run: snapshots, their removal and trims
// of file systems, on a schedule.
//
// A RecurringJob becomes a CronJob of the same name, whose Pods run the manager's image as
// `longhorn-manager recurring-job <name>` (package run). Kubernetes keeps the schedule, does not
// start a run while one is under way, repeats a failed one, and takes everything away with the
// RecurringJob, which owns it.
//
// A run holds an attachment ticket for each detached volume that it works on. It takes them back
// itself; those of a run whose Pod has ended otherwise are taken back here, so that a run that is
// killed at any moment keeps no volume attached.
//
// Volumes follow jobs by their labels (Follows). decide is pure; docs/guide/recurring-jobs.md has
// its table.
package recurringjob
