package work

import (
	"ankole.storage/backup"
	"ankole.storage/backup/format"
)

// Results of a verification, which the reference has not.
type (
	// VerifyInfo is what a part of a verification has found.
	VerifyInfo struct {
		// Backups are the complete ones; Hurt is how many faults each has that has any.
		Backups []string
		Hurt    map[string]int
		// Blocks were read, ReadBytes of them; Done of Total are behind it.
		Blocks      int
		ReadBytes   int64 `json:",string"`
		Done, Total int
		// Next is where the next part goes on; "" if there is none.
		Next string
		// Faults are the first of FaultCount.
		Faults     []FaultInfo
		FaultCount int
	}
	// FaultInfo is something that is wrong.
	FaultInfo struct {
		Kind, Object, Error string
		// Backups are the first of BackupCount that it hurts.
		Backups     []string
		BackupCount int
	}
)

// What a part tells in detail: its output has a bound, and an object that it is written to.
const (
	toldFaults  = 100
	toldBackups = 20
)

func verifyInfo(v *backup.Verified) *VerifyInfo {
	out := &VerifyInfo{Backups: v.Backups, Hurt: map[string]int{}, Blocks: v.Blocks, ReadBytes: v.ReadBytes,
		Done: v.Done, Total: v.Total, FaultCount: len(v.Faults), Faults: []FaultInfo{}}
	if v.Next != (format.Checksum{}) {
		out.Next = v.Next.String()
	}
	for i, f := range v.Faults {
		for _, b := range f.Backups {
			out.Hurt[b]++
		}
		if i < toldFaults {
			out.Faults = append(out.Faults, FaultInfo{Kind: string(f.Kind), Object: f.Object, Error: f.Err.Error(),
				Backups: f.Backups[:min(len(f.Backups), toldBackups)], BackupCount: len(f.Backups)})
		}
	}
	return out
}
