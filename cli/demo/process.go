package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ankole.storage/rest/resource"
)

// processes lists the arguments of every process on this machine that can be seen, by pid.
func processes(proc string) map[int][]string {
	out := map[int][]string{}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return out
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil || len(text) == 0 {
			continue
		}
		var args []string
		for _, a := range bytes.Split(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
			args = append(args, string(a))
		}
		out[pid] = args
	}
	return out
}

// replicaPID finds the process of a replica: the one with the verb "replica" and the replica's data
// directory among its arguments. The directory's name ends in random digits, so it is of this
// cluster and of no other. 0 means that there is none on this machine.
func replicaPID(all map[int][]string, r resource.Replica) int {
	directory := filepath.Base(r.DataPath)
	if directory == "." || directory == "/" {
		return 0
	}
	for pid, args := range all {
		if slices.Contains(args, "replica") && slices.ContainsFunc(args, func(a string) bool {
			return strings.HasSuffix(a, "/replicas/"+directory)
		}) {
			return pid
		}
	}
	return 0
}
